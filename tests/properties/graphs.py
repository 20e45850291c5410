"""Graphs of views that read each other, and what recomputing all of them by Spark's batch gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hypothesis import strategies as st
from pyspark.sql import DataFrame

from deltafold.api import PipelineReport, View
from tests.properties.comparing import difference
from tests.sandbox import Sandbox

SOURCES: tuple[str, ...] = "t", "u"
SHAPES = [
    "select k, sum(v) v from {a} group by k",
    "select k % 2 as k, max(v) v from {a} group by k % 2",
    "select k, count(distinct v) v from {a} group by k",
    "select k, v from {a} where v > 1",
    "select a.k, a.v + b.v as v from {a} a join (select k, max(v) v from {b} group by k) b on a.k = b.k",
    "select a.k, coalesce(b.v, a.v) v from {a} a left join (select k, min(v) v from {b} group by k) b on a.k = b.k",
    "select k, v from {a} union all select k, v + 1 from {b}",
    "select k, v from {a} where k not in (select k from {b} where v > 3)",
    "select k, v from (select k, v, row_number() over (partition by k order by v desc) n from {a}) where n <= 2",
]


@dataclass(frozen=True)
class Size:
    """The numbers of datasets of graphs, and of layers above the sources."""

    least: int
    most: int
    depth: int


SMALL, LARGE = Size(3, 8, depth=4), Size(5, 30, depth=6)


@st.composite
def graphs(draw: st.DrawFn, size: Size = SMALL) -> dict[str, str]:
    """Queries of (k, v), each over two of the sources and the queries before it."""
    depth: dict[str, int] = dict.fromkeys(SOURCES, 0)
    queries = dict[str, str]()
    for number in range(draw(st.integers(size.least, size.most))):
        below = st.sampled_from([name for name, layer in depth.items() if layer < size.depth])
        a, b = draw(below), draw(below)
        query = draw(st.sampled_from(SHAPES))
        queries[f"d{number}"] = query.replace("{a}", f"{{{a}}}").replace("{b}", f"{{{b}}}")
        depth[f"d{number}"] = 1 + max(depth[name] for name in (a, b) if f"{{{name}}}" in queries[f"d{number}"])
    return queries


def declare(sandbox: Sandbox, queries: Mapping[str, str]) -> dict[str, View]:
    """Views with these queries, in which {name} is a source or a view; each is a source for the next ones."""
    views = dict[str, View]()
    for name, query in queries.items():
        views[name] = sandbox.view(query.replace("{", "").replace("}", ""), name)
        sandbox.warehouse.source(name, views[name])
    return views


def recomputed(sandbox: Sandbox, queries: Mapping[str, str], versions: Mapping[str, int]) -> Iterator[DataFrame]:
    """Each query by Spark's batch over the sources at these versions, by the location of their tables."""
    frames: dict[str, DataFrame] = {}
    for name, table in sandbox.warehouse.tables().items():
        if table.place in versions:
            frames[name] = table.scan(versions[table.place])
    for name, query in queries.items():
        frames[name] = sandbox.spark.sql(query, **{n: f for n, f in frames.items() if f"{{{n}}}" in query})  # type: ignore[arg-type]
        yield frames[name]


def confirm(sandbox: Sandbox, queries: Mapping[str, str], report: PipelineReport) -> None:
    """Compare all datasets that the run refreshed with recomputing the whole graph at its versions."""
    for name, expected in zip(queries, recomputed(sandbox, queries, report.versions), strict=True):
        if report[name].ok:
            found = difference(expected.collect(), sandbox.warehouse.views[name].answer().collect())
            assert not found, f"{name}: {found}"
