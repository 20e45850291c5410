"""Recursive queries over random graphs, each with its textbook answer.

Sources: `edges(a, b)`, or `(a, b, w)` with lengths, and `starts(x)`, which not every query reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.api import fixpoint
from tests.loops.references.model import ZSet
from tests.loops.references.oracles import closure, components, distances, levels, reachable, same_generation

Answer = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class SourceRows:
    """The rows of the sources, with their numbers of copies."""

    edges: ZSet
    starts: ZSet


@dataclass(frozen=True)
class Case:
    """A query; expected: its answer by an oracle, None where Spark's batch answer is the only one."""

    query: Any
    expected: Callable[[SourceRows], Answer] | None = None
    lengths: bool = False
    acyclic: bool = False


def reach(edges: DataFrame, starts: DataFrame) -> DataFrame:
    """Nodes that a path leads to."""
    return fixpoint(starts.select("x"), lambda r: r.join(edges, r.x == edges.a).select("b"))


def longer(edges: DataFrame) -> DataFrame:
    """Transitive closure, an edge longer each round."""
    return fixpoint(
        edges.select("a", "b"),
        lambda r: r.alias("r").join(edges.alias("e"), F.col("r.b") == F.col("e.a")).select("r.a", "e.b"),
    )


def squared(edges: DataFrame) -> DataFrame:
    """Transitive closure, paths joined with paths."""
    return fixpoint(
        edges.select("a", "b"),
        lambda r: r.alias("p").join(r.alias("q"), F.col("p.b") == F.col("q.a")).select("p.a", "q.b"),
    )


def shortest(edges: DataFrame, starts: DataFrame) -> DataFrame:
    """Shortest paths from starts that begin with a distance of their own."""

    def step(known: DataFrame) -> DataFrame:
        return known.join(edges, known.x == edges.a).select("b", F.col("y") + F.col("w"))

    return fixpoint(starts.select("x", (F.col("x") % 3).alias("y")), step, key="x", keep="least")


def labelled(edges: DataFrame) -> DataFrame:
    """Components by the least node."""
    both = edges.select("a", "b").union(edges.select("b", "a"))

    def step(known: DataFrame) -> DataFrame:
        return known.join(both, known.node == both.a).select("b", "label")

    return fixpoint(both.select(F.col("a").alias("node"), F.col("a").alias("label")), step, key="node")


def generations(edges: DataFrame) -> DataFrame:
    """Same generation; an edge leads from a child to a parent."""
    nodes = edges.select("a").union(edges.select("b")).distinct()

    def step(pairs: DataFrame) -> DataFrame:
        up, other = edges.alias("up"), edges.alias("other")
        one = pairs.alias("r").join(up, F.col("r.one") == F.col("up.b"))
        return one.join(other, F.col("r.two") == F.col("other.b")).select("up.a", "other.a")

    return fixpoint(nodes.select(F.col("a").alias("one"), F.col("a").alias("two")), step)


PATHS = """
with recursive r(x) as (select x from starts union all select e.b from r join edges e on r.x = e.a) select x from r
"""
DISTINCT_PATHS = PATHS.replace("union all select e.b", "union all select distinct e.b")
PARTS = """
with recursive r(x, n, path) as (
  select x, cast(1 as bigint), cast(x as string) from starts
  union all select e.b, r.n * (1 + e.w), concat(r.path, '/', e.b) from r join edges e on r.x = e.a)
select x, sum(n) total, count(*) ways, max(path) last from r group by x
"""
UNION = PATHS.replace("union all", "union")
UNREACHED = """
with recursive r(x) as (
  select x from starts union
  select e.b from r join (select a, b from edges group by a, b having count(*) < 3) e on r.x = e.a
  where not exists (select 1 from starts s where s.x = e.b + 100))
select e.a, count(*) n from edges e where not exists (select 1 from r where r.x = e.a) group by e.a
"""


def paths_by_length(given: SourceRows) -> Answer:
    """Each node once for each path, whatever its length."""
    found: Answer = Counter()
    for (node, _), number in levels(given.starts, given.edges).items():
        found[(node,)] += number
    return found


def lengths_of_paths(given: SourceRows) -> Answer:
    """Each start as often as it is there, and each node once for each length of a path from one."""
    longer = Counter((node,) for node, length in levels(given.starts, given.edges) if length)
    return Counter({(node,): copies for node, copies in given.starts.items()}) + longer


CASES = {
    "reachability": Case(reach, lambda g: Counter((node,) for node in reachable(g.starts, g.edges))),
    "SQL UNION": Case(UNION, lambda g: Counter((node,) for node in reachable(g.starts, g.edges))),
    "closure": Case(longer, lambda g: Counter(closure(g.edges))),
    "closure, squared": Case(squared, lambda g: Counter(closure(g.edges))),
    "same generation": Case(generations, lambda g: Counter(same_generation(g.edges))),
    "paths": Case(PATHS, paths_by_length, acyclic=True),
    "lengths of paths": Case(DISTINCT_PATHS, lengths_of_paths, acyclic=True),
    "parts": Case(PARTS, lengths=True, acyclic=True),
    "shortest paths": Case(
        shortest,
        lambda g: Counter(distances({node: node % 3 for node in g.starts}, g.edges).items()),
        lengths=True,
    ),
    "components": Case(labelled, lambda g: Counter(components(g.edges).items())),
    "around negation": Case(UNREACHED),
}


def rows(zset: Mapping[Any, int], width: int) -> list[tuple[Any, ...]]:
    """The rows of a source, each as often as it is there."""
    return [key if width > 1 else (key,) for key, copies in zset.items() for _ in range(copies)]
