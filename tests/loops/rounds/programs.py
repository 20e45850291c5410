"""Random steps of loops, each as PySpark and as plain Python over lists of rows.

All relations have the columns x and y, integers or NULL. Arithmetic is modulo 5, so every loop ends; it is not
monotone, so the best value of a key does not make the worse ones superfluous.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

Pair = tuple[int | None, int | None]
Bag = list[Pair]
MODULUS = 5


class Node(Protocol):
    """A part of a step."""

    def frame(self, loop: DataFrame, given: Mapping[str, DataFrame]) -> DataFrame:
        """It as PySpark; loop: the rows found so far; given: the sources."""
        ...

    def rows(self, loop: Bag, given: Mapping[str, Sequence[Any]]) -> Bag:
        """It as plain Python."""
        ...


@dataclass(frozen=True)
class Rows:
    """The rows found so far."""

    def frame(self, loop: DataFrame, given: Mapping[str, DataFrame]) -> DataFrame:
        return loop

    def rows(self, loop: Bag, given: Mapping[str, Sequence[Any]]) -> Bag:
        return loop


@dataclass(frozen=True)
class Side:
    """Rows that do not depend on the loop: starts, edges, or the greatest length from each node with several edges."""

    name: str

    def frame(self, loop: DataFrame, given: Mapping[str, DataFrame]) -> DataFrame:
        edges = given["edges"]
        match self.name:
            case "starts":
                return given["starts"].select(F.col("x").alias("x"), (F.col("x") % 3).alias("y"))
            case "edges":
                return edges.select(F.col("a").alias("x"), F.col("w").alias("y"))
            case _:
                grouped = edges.groupBy(F.col("a").alias("x")).agg(F.max("w").alias("y"), F.count("*").alias("n"))
                return grouped.where("n > 1").select("x", "y")

    def rows(self, loop: Bag, given: Mapping[str, Sequence[Any]]) -> Bag:
        match self.name:
            case "starts":
                return [(x, x % 3) for (x,) in given["starts"]]
            case "edges":
                return [(a, w) for a, _, w in given["edges"]]
            case _:
                return [(a, max(lengths)) for a, lengths in lengths_from(given).items() if len(lengths) > 1]


@dataclass(frozen=True)
class Hop:
    """Along an edge, the length added."""

    child: Node

    def frame(self, loop: DataFrame, given: Mapping[str, DataFrame]) -> DataFrame:
        rows, edges = self.child.frame(loop, given), given["edges"].toDF("a", "b", "w")
        joined = rows.join(edges, rows["x"] == edges["a"])
        return joined.select(edges["b"].alias("x"), ((rows["y"] + edges["w"]) % MODULUS).alias("y"))

    def rows(self, loop: Bag, given: Mapping[str, Sequence[Any]]) -> Bag:
        rows = self.child.rows(loop, given)
        return [
            (b, None if y is None else (y + w) % MODULUS)
            for x, y in rows for a, b, w in given["edges"] if x is not None and x == a
        ]  # fmt: skip


@dataclass(frozen=True)
class Keep:
    """Without one class of sums; NULL is dropped."""

    child: Node
    dropped: int

    def frame(self, loop: DataFrame, given: Mapping[str, DataFrame]) -> DataFrame:
        return self.child.frame(loop, given).where(f"(x + y) % 4 <> {self.dropped}")

    def rows(self, loop: Bag, given: Mapping[str, Sequence[Any]]) -> Bag:
        return [
            (x, y) for x, y in self.child.rows(loop, given)
            if x is not None and y is not None and (x + y) % 4 != self.dropped
        ]  # fmt: skip


@dataclass(frozen=True)
class Without:
    """Rows for which there is no start `shift` behind (`also`: those for which there is one)."""

    child: Node
    shift: int
    also: bool

    def frame(self, loop: DataFrame, given: Mapping[str, DataFrame]) -> DataFrame:
        rows, starts = self.child.frame(loop, given), given["starts"].toDF("start")
        return rows.join(starts, starts["start"] + self.shift == rows["x"], "semi" if self.also else "anti")

    def rows(self, loop: Bag, given: Mapping[str, Sequence[Any]]) -> Bag:
        hidden = {x + self.shift for (x,) in given["starts"]}
        return [(x, y) for x, y in self.child.rows(loop, given) if (x in hidden) == self.also]


@dataclass(frozen=True)
class Greatest:
    """y: the greatest length of an edge from x, as before where there is none."""

    child: Node

    def frame(self, loop: DataFrame, given: Mapping[str, DataFrame]) -> DataFrame:
        rows, edges = self.child.frame(loop, given), given["edges"].toDF("a", "b", "w")
        top = edges.groupBy("a").agg(F.max("w").alias("top"))
        joined = rows.join(top, rows["x"] == top["a"], "left")
        return joined.select(rows["x"], F.coalesce(top["top"], rows["y"]).alias("y"))

    def rows(self, loop: Bag, given: Mapping[str, Sequence[Any]]) -> Bag:
        known = lengths_from(given)
        return [(x, y if x is None or x not in known else max(known[x])) for x, y in self.child.rows(loop, given)]


@dataclass(frozen=True)
class Turned:
    """x and y exchanged."""

    child: Node

    def frame(self, loop: DataFrame, given: Mapping[str, DataFrame]) -> DataFrame:
        return self.child.frame(loop, given).select(F.col("y").alias("x"), F.col("x").alias("y"))

    def rows(self, loop: Bag, given: Mapping[str, Sequence[Any]]) -> Bag:
        return [(y, x) for x, y in self.child.rows(loop, given)]


@dataclass(frozen=True)
class Distinct:
    """Without duplicates."""

    child: Node

    def frame(self, loop: DataFrame, given: Mapping[str, DataFrame]) -> DataFrame:
        return self.child.frame(loop, given).distinct()

    def rows(self, loop: Bag, given: Mapping[str, Sequence[Any]]) -> Bag:
        return [*set(self.child.rows(loop, given))]


@dataclass(frozen=True)
class Together:
    """UNION ALL."""

    left: Node
    right: Node

    def frame(self, loop: DataFrame, given: Mapping[str, DataFrame]) -> DataFrame:
        return self.left.frame(loop, given).union(self.right.frame(loop, given))

    def rows(self, loop: Bag, given: Mapping[str, Sequence[Any]]) -> Bag:
        return self.left.rows(loop, given) + self.right.rows(loop, given)


@dataclass(frozen=True)
class Composed:
    """Pairs (x, z) where the left has (x, y) and the right has (y, z)."""

    left: Node
    right: Node

    def frame(self, loop: DataFrame, given: Mapping[str, DataFrame]) -> DataFrame:
        one, two = self.left.frame(loop, given).toDF("x", "u"), self.right.frame(loop, given).toDF("v", "y")
        return one.join(two, one["u"] == two["v"]).select(one["x"], two["y"])

    def rows(self, loop: Bag, given: Mapping[str, Sequence[Any]]) -> Bag:
        left, right = self.left.rows(loop, given), self.right.rows(loop, given)
        return [(x, z) for x, y in left for v, z in right if y is not None and y == v]


def lengths_from(given: Mapping[str, Sequence[Any]]) -> dict[Any, list[int]]:
    """The lengths of the edges by where they start."""
    found = defaultdict[Any, list[int]](list)
    for a, _, w in given["edges"]:
        found[a].append(w)
    return found


def random_step(chance: random.Random, depth: int = 3) -> Node:
    """A random step that reads its loop under linear operators."""
    if depth == 0:
        return Rows()
    child = random_step(chance, depth - 1)
    match chance.randrange(10):
        case 0 | 1 | 2:
            return Hop(child)
        case 3:
            return Keep(child, chance.randrange(4))
        case 4:
            return Without(child, chance.randrange(3), chance.random() < 0.4)
        case 5:
            return Greatest(child)
        case 6:
            return chance.choice([Turned, Distinct])(child)
        case 7:
            return Composed(child, random_other(chance, depth - 1))
        case _:
            other = random_other(chance, depth - 1)
            return Together(child, other) if chance.random() < 0.5 else Together(other, child)


def random_other(chance: random.Random, depth: int) -> Node:
    """A second input of a node: it reads the loop, or other rows."""
    if chance.random() < 0.5:
        return random_step(chance, depth)
    side = Side(chance.choice(["starts", "edges", "busy"]))
    return Hop(side) if chance.random() < 0.3 else side
