"""Translate loops into the algebra.

| Catalyst | algebra |
| --- | --- |
| LogicalRDD of a recorded loop | Loop of the recorded kind |
| LogicalRDD that its step was called with | Given |
| UnionLoop (`WITH RECURSIVE … UNION ALL`) | Loop of kind levels |
| UnionLoopRef | Given |

A loop that is used twice is translated once; another use of a recorded one has other columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from deltafold.algebra.plan import Column, Given, Loop, Plan
from deltafold.language.determinism.tie_breaking import break_ties_before_translation
from deltafold.language.loops.recording import RecordedLoops
from deltafold.language.names import Names, renumber
from deltafold.language.normalise import normal_form
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

UNLIMITED = (1 << 31) - 1  # levels, as -1 says to Spark
LEVEL_LIMIT, DEFAULT_LEVELS = "spark.sql.cteRecursionLevelLimit", 100


class LoopTranslation:
    """Translates the loops of one query.

    ordered: translates a plan whose used columns are known, with its columns in Spark's order; whole: the same of a
    plan of its own. `normal`: the normal forms of the recorded plans that were translated.
    """

    def __init__(
        self,
        spark: SparkSession,
        names: Names,
        recorded: RecordedLoops,
        ordered: Callable[[J], Plan],
        whole: Callable[[J], Plan],
    ) -> None:
        self._spark, self._names, self._recorded = spark, names, recorded
        self._ordered, self._whole = ordered, whole
        self._numbers: dict[tuple[str, int], str] = {}
        self._loops: dict[int, Loop] = {}
        self.normal: list[J] = []

    @property
    def called(self) -> tuple[str, ...]:
        """The names of the loops in the order in which the query called them; empty for one that is not read."""
        return tuple(self._numbers.get(("recorded", number), "") for number in self._recorded.calls)

    def relation(self, node: J) -> Plan:
        """Return the plan of a LogicalRDD that is not a source: the answer of a loop, or the rows that a step reads."""
        number, columns = int(node.rdd().id()), self._columns(node)
        if number in self._recorded.given:
            return Given(self._name("recorded", self._recorded.given[number]), columns)
        found = self._loops.get(number) or self._record(number, columns)
        positions = [found.columns.index(key) for key in found.keys]
        return replace(found, columns=columns, keys=tuple(columns[position] for position in positions))

    def union_loop(self, node: J) -> Plan:
        """Return the loop of a `WITH RECURSIVE … UNION ALL`."""
        columns, name = self._columns(node), self._name("union", int(node.id()))
        anchor, term = self._ordered(node.anchor()), self._ordered(node.recursion())
        detail = renumber(str(node.simpleString(1000)))
        most = catalyst.option(node.maxDepth())
        if most is None:
            most = int(str(self._spark.conf.get(LEVEL_LIMIT)))
            detail += "" if most == DEFAULT_LEVELS else f" ~ {most} levels"
        most = int(most) if int(most) >= 0 else UNLIMITED
        return Loop(name, "levels", anchor, term, columns, most, detail=detail)

    def union_loop_rows(self, node: J) -> Plan:
        """Return the rows that the recursive part of a `WITH RECURSIVE` reads."""
        return Given(self._name("union", int(node.loopId())), self._columns(node))

    def _record(self, number: int, columns: Sequence[Column]) -> Loop:
        recorded, name = self._recorded.loops[number], self._name("recorded", number)
        options = recorded.options
        start, step = (self._whole(self._normal_form(plan)) for plan in (recorded.start, recorded.step))
        outputs = [str(attribute.name()) for attribute in catalyst.sequence(recorded.start.output())]
        keys = tuple(columns[outputs.index(key)] for key in options.keys)
        loop = Loop(
            name, options.kind, start, step, tuple(columns), options.limit, keys, options.keep,
            tolerance=options.tolerance,
        )  # fmt: skip
        self._loops[number] = loop
        return loop

    def _normal_form(self, plan: J) -> J:
        found = normal_form(self._spark, break_ties_before_translation(self._spark, plan))
        self.normal.append(found)
        return found

    def _columns(self, node: J) -> tuple[Column, ...]:
        return tuple(self._names.column(attribute) for attribute in catalyst.sequence(node.output()))

    def _name(self, kind: str, number: int) -> str:
        return self._numbers.setdefault((kind, number), f"loop_{len(self._numbers) + 1}")
