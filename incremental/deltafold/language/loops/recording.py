"""Record the loops of a query while it is read: each becomes a relation without data, as sources are.

The step is called once, over a relation that stands for the rows found so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from deltafold.language.loops.options import LoopOptions, StepFunction
from deltafold.language.unread import Placeholders
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J


@dataclass(frozen=True)
class RecordedLoop:
    """One loop as Spark analysed it; given: the RDD number of the relation that its step reads."""

    start: J
    step: J
    given: int
    options: LoopOptions


@dataclass(frozen=True)
class RecordedLoops:
    """The loops of one query by the RDD number of their answers.

    given: the answer's number by that of the rows that its step reads; calls: the answers' numbers in the order of the
    calls, without those that a step calls.
    """

    loops: dict[int, RecordedLoop] = field(default_factory=dict[int, RecordedLoop])
    given: dict[int, int] = field(default_factory=dict[int, int])
    calls: list[int] = field(default_factory=list[int])

    @property
    def numbers(self) -> set[int]:
        """The RDD numbers of the relations that stand for loops, and for their rows."""
        return {*self.loops, *self.given}

    @property
    def facts(self) -> object:
        """Everything but the plans: equal for loops of the same options, called in the same order."""
        return self.calls, self.given, {number: loop.options for number, loop in self.loops.items()}

    @property
    def plans(self) -> Iterator[J]:
        """The analysed plans of all starts and steps."""
        for loop in self.loops.values():
            yield loop.start
            yield loop.step


class LoopRecorder:
    """Records loops in one session; placeholders: makes those of answers, and of what steps read."""

    def __init__(self, spark: SparkSession, recorded: RecordedLoops, placeholders: Placeholders) -> None:
        self._spark, self._recorded, self._placeholders = spark, recorded, placeholders
        self._depth = 0

    def evaluate(self, start: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
        """Record a loop and return a relation that stands for its answer."""
        schema = StructType([StructField(each.name, each.dataType) for each in start.schema])
        position = len(self._recorded.given)
        answer, number = self._placeholders.make(self._spark, ("answer", position), schema)
        rows, given = self._placeholders.make(self._spark, ("rows", position), schema)
        self._recorded.given[given] = number
        if not self._depth:
            self._recorded.calls.append(number)
        self._depth += 1
        try:
            plans = catalyst.analysed_plan(start), catalyst.analysed_plan(step(rows))
        finally:
            self._depth -= 1
        self._recorded.loops[number] = RecordedLoop(*plans, given, options)
        return answer
