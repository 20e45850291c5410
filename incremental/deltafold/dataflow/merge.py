"""Merge h of a change into a state (⊗), as one commit of the state's table (lake/upsert.py).

A row of the change with `__replace` replaces its whole group, recomputed from its rows.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.monoids.kinds import recompute_condition
from deltafold.algebra.program import BUCKET, ROWS
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.lowering import Lowering
from deltafold.dataflow.state_schema import Layout
from deltafold.lake.physical_layout import arrange, sort_partitions
from deltafold.lake.protocol import Clause, Mark, Table
from deltafold.lake.upsert import Extent, Matching, Upsert
from deltafold.spark import catalyst
from deltafold.spark.checkpoint import in_one_task, plan_at_once

REPLACE = "__replace"


class Merge:
    """The expressions of ⊗ for one state, over `t` (stored) and `u` (the change)."""

    def __init__(self, lowering: Lowering, layout: Layout) -> None:
        self._lowering, self.layout = lowering, layout

    def first(self, table: Table, homomorphic: DataFrame, mark: Mark, *, name_mapping: bool) -> None:
        """Write the first epoch: the table is h of all rows."""
        table.append(self._arrange(self._complete(homomorphic)), mark, BUCKET, name_mapping=name_mapping)

    def upsert(
        self, homomorphic: DataFrame, extent: Extent, stored: Callable[[str | None], DataFrame], *, few: bool
    ) -> Upsert:
        """Return the change of the table; few: it is in one partition, and needs no shuffle."""
        return Upsert(
            extent=extent,
            matching=lambda: self._match(homomorphic),
            stored=stored,
            merged=lambda rows: self._rewritten(rows, homomorphic, few=few),
        )

    def _match(self, homomorphic: DataFrame) -> Matching:
        update = {ROWS: self._sql(self._rows), **{n: self._sql(self._merge_sql(n)) for n in self._stored}}
        update |= self._answers(self._merge_sql)
        insert = {
            BUCKET: f"u.{BUCKET}",
            ROWS: f"u.{ROWS}",
            **{n: f"u.{quoted(n)}" for n in (*self._stored, *self.layout.keys)},
        }
        insert |= self._answers(lambda name: f"u.{quoted(name)}")
        clauses = [
            *([Clause("delete", self._gone, {})] if self.layout.keys else []),
            Clause("update", None, quoted_values(update)),
            Clause("insert", f"u.{ROWS} > 0" if self.layout.keys else None, quoted_values(insert)),
        ]
        same = self._same_key if self.layout.keys else f"t.{BUCKET} = u.{BUCKET}"
        return Matching(change=homomorphic, same=same, clauses=clauses)

    def _rewritten(self, stored: DataFrame, change: DataFrame, *, few: bool) -> DataFrame:
        """Return stored rows with the change merged into them."""
        if few:
            stored, change = in_one_task(stored, change)
        joined = stored.alias("t").join(
            change.alias("u"), F.expr(f"t.{BUCKET} = u.{BUCKET} AND {self._same_key}"), "full"
        )
        kept = joined.where(self._survives)
        answers = self._answers(self._either)
        columns = {name: F.expr(self._either(name)) for name in (*self.layout.keys, *self._stored, ROWS, BUCKET)}
        columns |= answers
        rows = kept.select(*(columns[name].alias(name) for name in self.layout.columns))
        if not few:
            return self._arrange(rows)
        order = [BUCKET, *self.layout.sorted_by] if self.layout.buckets > 1 else self.layout.sorted_by
        return plan_at_once(sort_partitions(rows.coalesce(1), order))

    def keys_to_recompute(self, stored: DataFrame, homomorphic: DataFrame) -> DataFrame:
        """Return the keys of groups that still have rows and whose value a deletion may have changed."""
        tests = [
            condition.format(
                t={c.name: f"t.{quoted(slot.stored_name(c))}" for c in slot.accumulator.components},
                u={
                    c.name: f"u.{quoted(slot.stored_name(c))}"
                    for c in (*slot.accumulator.components, *slot.accumulator.watched)
                },
            )
            for slot in self.layout.state.slots
            if (condition := recompute_condition(slot.accumulator)) is not None
        ]
        joined = homomorphic.alias("u").join(stored.alias("t"), F.expr(f"t.{BUCKET} = u.{BUCKET} AND {self._same_key}"))
        reached = joined.where(" OR ".join(f"({test})" for test in tests))
        if self.layout.keys:  # the one row of a total remains when the last input row is removed
            reached = reached.where(f"t.{ROWS} + u.{ROWS} > 0")
        return reached.select(*(F.col(f"u.{quoted(name)}") for name in self.layout.keys))

    @property
    def _stored(self) -> tuple[str, ...]:
        return tuple(name for _, _, name in self.layout.parts)

    @property
    def _same_key(self) -> str:
        return " AND ".join(f"t.{quoted(name)} <=> u.{quoted(name)}" for name in self.layout.sorted_by) or "true"

    @property
    def _rows(self) -> str:
        total = f"if(u.{REPLACE}, u.{ROWS}, t.{ROWS} + u.{ROWS})"
        fault = "does not match its input: a group would have fewer than 0 rows. Rebuild the view"
        message = f"'the state {self.layout.state.name} {fault}'"
        return f"if({total} < 0, CAST(raise_error({message}) AS BIGINT), {total})"

    @property
    def _gone(self) -> str:
        return f"NOT u.{REPLACE} AND t.{ROWS} + u.{ROWS} = 0"

    @property
    def _survives(self) -> str:
        if not self.layout.keys:
            return "true"
        new = f"t.{ROWS} IS NULL AND u.{ROWS} > 0"
        return f"u.{ROWS} IS NULL OR ({new}) OR (t.{ROWS} IS NOT NULL AND NOT ({self._gone}))"

    def _merge_sql(self, name: str) -> str:
        """Return SQL for a stored column of a group that both sides have."""
        if name in self.layout.keys or name == BUCKET:
            return f"t.{quoted(name)}"
        if name == ROWS:
            return self._rows
        slot, part = next((slot, part) for slot, part, stored in self.layout.parts if stored == name)
        sides = {
            side: {p.name: f"{side}.{quoted(slot.stored_name(p))}" for p in slot.accumulator.components}
            for side in "tu"
        }
        return f"CAST(if(u.{REPLACE}, u.{quoted(name)}, {part.merge.format(**sides)}) AS {part.type})"

    def _either(self, name: str) -> str:
        """Return SQL for a stored column of a group that one side or both have."""
        one, other, both = f"t.{quoted(name)}", f"u.{quoted(name)}", self._merge_sql(name)
        return f"CASE WHEN u.{ROWS} IS NULL THEN {one} WHEN t.{ROWS} IS NULL THEN {other} ELSE {both} END"

    def _answers(self, sql_of: Callable[[str], str]) -> dict[str, Column]:
        values = self.layout.answer_values(self._lowering, sql_of)
        return {name: catalyst.column(self._lowering.spark, value) for name, value in values.items()}

    def _complete(self, homomorphic: DataFrame) -> DataFrame:
        """Return h of all rows as rows of the state, with the answer columns."""
        answers = self._answers(quoted)
        columns = {name: F.col(quoted(name)) for name in (*self.layout.keys, *self._stored, ROWS, BUCKET)} | answers
        rows = homomorphic.where(f"{ROWS} > 0") if self.layout.keys else homomorphic
        return rows.select(*(columns[name].alias(name) for name in self.layout.columns))

    def _arrange(self, rows: DataFrame) -> DataFrame:
        return arrange(rows, self.layout.buckets, self.layout.sorted_by)

    @staticmethod
    def _sql(text: str) -> Column:
        return F.expr(text)


def quoted_values(values: dict[str, Column] | dict[str, str] | dict[str, Column | str]) -> dict[str, Column | str]:
    """Return values of a MERGE clause by quoted column name."""
    return {quoted(name): value for name, value in values.items()}
