"""Store k-means: the centers of each step with the sums of their points, the answer, and a log of the points.

| rows | `__step` | the row's columns | `__rows`, `__<call>_<part>` | `__margin` |
| --- | --- | --- | --- | --- |
| the start | -1 | a center | 0 | NULL |
| references | 0 … n − 1 | a center | of the points whose nearest center of this step it is | the least of them |
| the answer | n | a row | 0 | NULL |

`__number` is that of the cluster, the same in all steps. The margin of a point is how much nearer its nearest center is
than the next one: if no center moved by more than half of it, the nearest one is the same (triangle inequality). A
table without references (a center without a number in a coordinate, two equal centers) has the answer alone.

A table of its own has the points, one row for each change of one, with what follows from the references:

| column | contains |
| --- | --- |
| a point's columns | coordinates, then the arguments of the aggregates |
| `__weight` | 1, or -1 of a point that was removed |
| `__near` | the number of its nearest reference, of each step |
| `__margins` | its margin in each step, rounded down |
| `__margin` | the least of them, by which rows are sorted in files |

The references decide what the log contains: a refresh that keeps them appends the change of the points, one that
renews them writes all points again. It is empty until a refresh reads all points again because of their margins.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.loops import POSITION, STEP, Clusters, LoopState
from deltafold.algebra.monoids.family import infer_accumulator
from deltafold.algebra.plan import Column
from deltafold.algebra.program import BUCKET, ROWS, WEIGHT, Slot, State
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.loops.candidates import Candidates
from deltafold.dataflow.loops.iterated_answer import IteratedAnswer, sum_answer
from deltafold.dataflow.state_schema import Layout, StoredTable
from deltafold.lake.version_diff import Difference

START = -1  # the step of the rows that have the start
MARGIN, NEAR, MARGINS = "__margin", "__near", "__margins"


@dataclass(frozen=True)
class ClusterTable:
    """The table of one loop, which has one bucket."""

    loop: LoopState

    @property
    def clusters(self) -> Clusters:
        """How the step groups points."""
        assert self.loop.clusters is not None
        return self.loop.clusters

    @property
    def row(self) -> tuple[str, ...]:
        """The columns of a row."""
        return tuple(column.name for column in self.loop.columns)

    @property
    def point(self) -> tuple[Column, ...]:
        """The columns of a point: its coordinates, then the arguments of the aggregates."""
        coordinates = [column for column, _ in self.clusters.coordinates]
        arguments = [argument for call in self.clusters.calls for argument in call.arguments]
        return tuple(dict.fromkeys([*coordinates, *arguments]))

    @cached_property
    def layout(self) -> Layout:
        """The columns of the sums, as those of a state."""
        slots = tuple(Slot(call, infer_accumulator(call)) for call in self.clusters.calls)
        return Layout(
            State(name=self.loop.name, input=self.clusters.points, keys=(), bucket_by=(), slots=slots), None, 1
        )

    @property
    def sums(self) -> dict[str, tuple[str, str]]:
        """The type and the zero of each column of the sums, the number of rows first."""
        return {ROWS: ("bigint", "0")} | {name: (part.type, part.zero) for _, part, name in self.layout.parts}

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns in order."""
        return (*self.row, STEP.name, POSITION.name, *self.sums, MARGIN, BUCKET)

    @property
    def stored(self) -> StoredTable:
        """What others need to know of the table."""
        return StoredTable(self.columns, (), "0")

    @property
    def stored_points(self) -> StoredTable:
        """What others need to know of the log of points."""
        point = tuple(column.name for column in self.point)
        return StoredTable((*point, WEIGHT, NEAR, MARGINS, MARGIN, BUCKET), (MARGIN,), "0")

    def answer(self, table: DataFrame) -> DataFrame:
        """Return the loop's answer of a version of the table."""
        return table.where(f"{STEP.name} = {self.loop.limit}").select(*map(quoted, self.row))

    def references(self, table: DataFrame) -> DataFrame:
        """Return the centers of all steps with the sums of their points."""
        return table.where(f"{STEP.name} BETWEEN 0 AND {self.loop.limit - 1}").select(*map(quoted, self.columns))

    def start(self, table: DataFrame) -> DataFrame:
        """Return the centers of the start, which those of the first step are references of, by their number."""
        numbered = table.where(f"{STEP.name} = {START}").select(POSITION.name, *map(quoted, self.row))
        return numbered.select(F.lit(0).alias(STEP.name), "*")

    def start_rows(self, start: DataFrame) -> DataFrame:
        """Return numbered centers of the start as rows of the table."""
        return self._without_sums(start, START, POSITION.name)

    def answer_rows(self, answer: DataFrame) -> DataFrame:
        """Return an answer as rows of the table; without numbers all are of one cluster."""
        return self._without_sums(answer, self.loop.limit, POSITION.name if POSITION.name in answer.columns else "0")

    def _without_sums(self, rows: DataFrame, step: int, number: str) -> DataFrame:
        own = {STEP.name: (f"{step}", "int"), POSITION.name: (number, "int")}
        own |= {name: (zero, type_) for name, (type_, zero) in self.sums.items()}
        own |= {MARGIN: ("NULL", "double"), BUCKET: ("0", "int")}
        values = [F.expr(f"CAST({value} AS {type_})").alias(name) for name, (value, type_) in own.items()]
        return rows.select(*map(quoted, self.row), *values)

    def difference(self, versions: Difference) -> DataFrame:
        """Return the change of the answer between two versions of the table, from their files."""
        change = versions.frame((*self.row, STEP.name), consolidate=True)
        if WEIGHT not in change.columns:
            change = change.withColumn(WEIGHT, F.lit(1).cast("bigint"))
        return sum_answer(change.where(f"{STEP.name} = {self.loop.limit}"), self.row)


def stored_loop(loop: LoopState, table: str, buckets: int) -> StoredTable:
    """Return how one of the tables of a loop is stored."""
    if loop.clusters is not None:
        return ClusterTable(loop).stored if table == loop.name else ClusterTable(loop).stored_points
    return (Candidates(loop, buckets) if loop.levelled else IteratedAnswer(loop, buckets)).stored
