"""Record the loops of a query while it is read, and translate them into the algebra.

Each loop becomes a relation without data, as sources are. The step is called once, over a relation that stands for the
rows found so far.

| Catalyst | algebra |
| --- | --- |
| LogicalRDD of a recorded loop | Loop of the recorded kind |
| LogicalRDD that its step was called with | Given |
| UnionLoop (`WITH RECURSIVE … UNION ALL`) | Loop of kind levels |
| UnionLoopRef | Given |

A loop that is used twice is translated once; another use of a recorded one has other columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from deltafold.algebra.plan import Column, Given, Loop, Plan
from deltafold.language.determinism.tie_breaking import break_ties_before_translation
from deltafold.language.loops.options import LoopOptions, StepFunction
from deltafold.language.names import Names, renumber
from deltafold.language.normalise import normal_form
from deltafold.language.unread import Placeholders
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J


@dataclass(frozen=True)
class RecordedLoop:
    """One loop as Spark analysed it; rows: the RDD number of the relation that its step reads."""

    start: J
    step: J
    rows: int
    options: LoopOptions


@dataclass(frozen=True)
class RecordedLoops:
    """The loops of one query by the RDD number of their answers.

    by_rows: the answer's number by that of the rows that its step reads; calls: the answers' numbers in the order of
    the calls, without those that a step calls.
    """

    loops: dict[int, RecordedLoop] = field(default_factory=dict[int, RecordedLoop])
    by_rows: dict[int, int] = field(default_factory=dict[int, int])
    calls: list[int] = field(default_factory=list[int])

    @property
    def numbers(self) -> set[int]:
        """The RDD numbers of the relations that stand for loops, and for their rows."""
        return {*self.loops, *self.by_rows}

    @property
    def facts(self) -> object:
        """Everything but the plans: equal for loops of the same options, called in the same order."""
        return self.calls, self.by_rows, {number: loop.options for number, loop in self.loops.items()}

    @property
    def plans(self) -> Iterator[J]:
        """The analysed plans of all starts and steps."""
        for loop in self.loops.values():
            yield loop.start
            yield loop.step


class LoopRecorder:
    """Records loops in one session; placeholders: makes the relations of answers, and those that steps read."""

    def __init__(self, spark: SparkSession, recorded: RecordedLoops, placeholders: Placeholders) -> None:
        self._spark = spark
        self._recorded = recorded
        self._placeholders = placeholders
        self._depth = 0

    def evaluate(self, start: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
        """Record a loop and return a relation that stands for its answer."""
        schema = StructType([StructField(column.name, column.dataType) for column in start.schema])
        position = len(self._recorded.by_rows)
        answer, number = self._placeholders.make(self._spark, ("answer", position), schema)
        rows, rows_number = self._placeholders.make(self._spark, ("rows", position), schema)
        self._recorded.by_rows[rows_number] = number
        if not self._depth:
            self._recorded.calls.append(number)
        self._depth += 1
        try:
            start_plan = catalyst.analysed_plan(start)
            step_plan = catalyst.analysed_plan(step(rows))
        finally:
            self._depth -= 1
        self._recorded.loops[number] = RecordedLoop(start_plan, step_plan, rows_number, options)
        return answer


UNLIMITED = (1 << 31) - 1  # levels; Spark writes -1
LEVEL_LIMIT = "spark.sql.cteRecursionLevelLimit"
DEFAULT_LEVELS = 100


class LoopTranslation:
    """Translates the loops of one query.

    ordered: translates a part of the query, with its columns in Spark's order; whole: translates a recorded plan
    likewise, and collects the columns that it uses first. `normal`: the normal forms of the recorded plans that were
    translated.
    """

    def __init__(
        self,
        spark: SparkSession,
        names: Names,
        recorded: RecordedLoops,
        ordered: Callable[[J], Plan],
        whole: Callable[[J], Plan],
    ) -> None:
        self._spark = spark
        self._names = names
        self._recorded = recorded
        self._ordered = ordered
        self._whole = whole
        self._numbers: dict[tuple[str, int], str] = {}
        self._loops: dict[int, Loop] = {}
        self.normal: list[J] = []

    @property
    def called(self) -> tuple[str, ...]:
        """The names of the loops in the order in which the query called them; empty for one that is not read."""
        return tuple(self._numbers.get(("recorded", number), "") for number in self._recorded.calls)

    def relation(self, node: J) -> Plan:
        """Return the plan of a LogicalRDD that is not a source: the answer of a loop, or the rows that a step reads."""
        number = int(node.rdd().id())
        columns = self._columns(node)
        if number in self._recorded.by_rows:
            return Given(self._name("recorded", self._recorded.by_rows[number]), columns)
        loop = self._loops.get(number) or self._translate_recorded(number, columns)
        positions = [loop.columns.index(key) for key in loop.keys]
        return replace(loop, columns=columns, keys=tuple(columns[position] for position in positions))

    def union_loop(self, node: J) -> Plan:
        """Return the loop of a `WITH RECURSIVE … UNION ALL`."""
        columns = self._columns(node)
        name = self._name("union", int(node.id()))
        anchor = self._ordered(node.anchor())
        term = self._ordered(node.recursion())
        detail = renumber(str(node.simpleString(1000)))
        most = catalyst.option(node.maxDepth())
        if most is None:
            most = int(str(self._spark.conf.get(LEVEL_LIMIT)))
            detail += "" if most == DEFAULT_LEVELS else f" ~ {most} levels"
        most = int(most) if int(most) >= 0 else UNLIMITED
        return Loop(name=name, kind="levels", init=anchor, step=term, columns=columns, limit=most, detail=detail)

    def union_loop_rows(self, node: J) -> Plan:
        """Return the rows that the recursive part of a `WITH RECURSIVE` reads."""
        return Given(self._name("union", int(node.loopId())), self._columns(node))

    def _translate_recorded(self, number: int, columns: Sequence[Column]) -> Loop:
        recorded = self._recorded.loops[number]
        name = self._name("recorded", number)
        options = recorded.options
        start, step = (self._whole(self._normal_form(plan)) for plan in (recorded.start, recorded.step))
        outputs = [str(attribute.name()) for attribute in catalyst.sequence(recorded.start.output())]
        keys = tuple(columns[outputs.index(key)] for key in options.keys)
        loop = Loop(
            name=name,
            kind=options.kind,
            init=start,
            step=step,
            columns=tuple(columns),
            limit=options.limit,
            keys=keys,
            keep=options.keep,
            tolerance=options.tolerance,
        )
        self._loops[number] = loop
        return loop

    def _normal_form(self, plan: J) -> J:
        normal = normal_form(self._spark, break_ties_before_translation(self._spark, plan))
        self.normal.append(normal)
        return normal

    def _columns(self, node: J) -> tuple[Column, ...]:
        return tuple(self._names.column(attribute) for attribute in catalyst.sequence(node.output()))

    def _name(self, kind: str, number: int) -> str:
        return self._numbers.setdefault((kind, number), f"loop_{len(self._numbers) + 1}")
