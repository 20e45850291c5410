"""The touched candidates of a refresh: all candidates of each key that changed, as stored and as they will be.

| column | contains |
| --- | --- |
| the row's columns, `__level` | the candidate |
| `__rows_before`, `__accepted_before` | as stored; 0 for one that is not |
| `__rows` | its derivations so far in this refresh |
| `__accepted_rows` | how often it is accepted so far |
| what acceptance.py adds | the moves that it chooses from |

`after` adds a change of derivations: keys that are new are looked up in the stored table, then counts are added and the
candidates judged again. A small one is one task's, and the driver holds the rows; of a large table only the buckets of
the new keys are read. Either way the rows are computed once, with the measures that choose the next move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import StateError
from deltafold.algebra.loops import ACCEPTED, LEVEL
from deltafold.algebra.program import BUCKET, ROWS, WEIGHT
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.loops.acceptance import KNOWN, Acceptance, RoundChange
from deltafold.dataflow.loops.candidates import Candidates
from deltafold.spark.checkpoint import Checkpoints, LocalPlan, in_one_task, is_local

ROWS_BEFORE, ACCEPTED_BEFORE = "__rows_before", "__accepted_before"
STORED_ROWS, STORED_ACCEPTED = "__stored_rows", "__stored_accepted"
COUNTS = {
    WEIGHT: "bigint", STORED_ROWS: "bigint", STORED_ACCEPTED: "tinyint",
    ROWS_BEFORE: "bigint", ACCEPTED_BEFORE: "tinyint", ROWS: "bigint", KNOWN: "bigint",
}  # fmt: skip


def as_counts(given: Mapping[str, str]) -> list[str]:
    """Return SQL of the counts of a candidate, NULL for those that are not given."""
    return [f"CAST({given.get(name, 'NULL')} AS {type_}) AS {name}" for name, type_ in COUNTS.items()]


@dataclass(frozen=True)
class LoopBefore:
    """The table of a loop before the refresh: its rows, and whether one task reads them soon enough."""

    rows: DataFrame
    small: bool


@dataclass(frozen=True, kw_only=True)
class Touched:
    """The touched candidates after some rounds; move: what the next one changes, None in the end.

    plan: what computed them, where the driver holds them.
    """

    frame: DataFrame
    measures: Mapping[str, Any]
    move: RoundChange | None
    block: ExitStack
    plan: LocalPlan | None = None

    @property
    def size(self) -> int:
        """The number of touched candidates."""
        return int(self.measures["touched"])

    @property
    def changed(self) -> int:
        """The number of those that are stored otherwise now, or not any more."""
        return int(self.measures["changed"])

    @property
    def same_answer(self) -> bool:
        """Whether each candidate is accepted as often as it was, so that the loop's answer is the same."""
        return not self.measures["otherwise"]

    @property
    def buckets(self) -> tuple[int, ...]:
        """The buckets in which they are."""
        return tuple(sorted(self.measures["buckets"]))

    def free(self) -> None:
        """Free the rows and what they were computed from."""
        self.block.close()


Again = Callable[[Touched], Touched | None]
"""Makes a move once more, from other touched candidates."""


@dataclass(frozen=True)
class TouchedCandidates:
    """Computes touched candidates; most: the most rows that the driver keeps."""

    candidates: Candidates
    acceptance: Acceptance
    stored: LoopBefore
    most: int

    def after(self, last: Touched | None, change: DataFrame | None, block: ExitStack) -> Touched:
        """Return the touched candidates once the last move is made and a change of derivations is added.

        change: one row a candidate, with its weight; None for none. block: what it is computed from, freed here.
        Raises StateError where a candidate would have a negative number of derivations.
        """
        with block:
            checkpoints = Checkpoints(block, self.most)
            entries = [] if change is None else self._entries(change, checkpoints)
            if last is not None:
                entries = [*entries, self._apply_move(last)]
            together = reduce(DataFrame.unionByName, entries)
            summed = self._sum(together.coalesce(1) if self.stored.small else together)
            own, judged = ExitStack(), self.acceptance.judge(summed)
            plan = LocalPlan(judged.coalesce(1), self._measures, self.most) if self.stored.small else None
            local = None if plan is None else plan.run()
            if local is not None:
                return self._check(*local, own, plan)
            frame, measured = Checkpoints(own, self.most).measure(judged, self._measures, small=False)
            return self._check(frame, measured, own)

    def repeat_move(self, last: Touched, after: Touched) -> Again | None:
        """Return what makes the move that led from one result to another again, from a later one, with the same plan.

        None where the driver does not hold the rows of `last`. It returns None for more rows than the driver holds.
        """
        if after.plan is None or not is_local(last.frame):
            return None
        run, plan = after.plan.over(last.frame), after.plan
        if run is None:
            return None

        def again(touched: Touched) -> Touched | None:
            moved = run(touched.frame)
            return None if moved is None else self._check(*moved, ExitStack(), plan)

        return again

    def _check(
        self, frame: DataFrame, measures: Mapping[str, Any], own: ExitStack, plan: LocalPlan | None = None
    ) -> Touched:
        """Return the result of a round; raises StateError where a count is negative."""
        if measures["least"] is not None and int(measures["least"]) < 0:
            raise StateError(
                f"the table of {self.candidates.loop.name} does not match its sources: a row would have a negative "
                "number of derivations. Rebuild the view."
            )
        return Touched(frame=frame, measures=measures, move=self.acceptance.move(measures), block=own, plan=plan)

    def frontier(self, touched: Touched) -> DataFrame:
        """Return the candidates that move, with how often they are accepted more as their weight."""
        assert touched.move is not None
        moved = touched.frame.withColumn(WEIGHT, F.expr(touched.move.sql)).where(f"{WEIGHT} <> 0")
        return moved.select(*self._identity, WEIGHT)

    def accepted_rows(self, touched: Touched, *, moved: bool) -> DataFrame:
        """Return all rows that the step reads before a move, or once it is made (`moved`)."""
        here = f"{KNOWN} + {touched.move.sql}" if moved and touched.move is not None else KNOWN
        names, rows = self.candidates.reached_by, self.candidates.accepted_rows(self.stored.rows)
        reached = touched.frame.select(*map(quoted, names))
        kept = rows.alias("t").join(reached.alias("u"), F.expr(self.candidates.same(names)), "left_anti")
        return kept.unionByName(self.candidates.repeat_rows(touched.frame, here))

    def to_write(self, touched: Touched) -> DataFrame:
        """Return the touched candidates as they are to be stored, beside what is stored; those that differ."""
        accepted = f"CAST({self.acceptance.accepted_sql()} AS TINYINT) AS {ACCEPTED}"
        names = [*map(quoted, self.candidates.identity), ROWS, ROWS_BEFORE, ACCEPTED_BEFORE, BUCKET]
        return touched.frame.selectExpr(*names, accepted).where(
            f"{ROWS} <> {ROWS_BEFORE} OR {ACCEPTED} <> {ACCEPTED_BEFORE}"
        )

    def answer_change(self, touched: Touched) -> DataFrame:
        """Return the change of the loop's answer."""
        new = self.candidates.answer_rows_sql(ROWS, ACCEPTED)
        old = self.candidates.answer_rows_sql(ROWS_BEFORE, ACCEPTED_BEFORE)
        return self.candidates.sum_by_row(self.to_write(touched), f"{new} - {old}")

    @property
    def _identity(self) -> list[Column]:
        return [F.col(quoted(name)) for name in self.candidates.identity]

    @property
    def _measures(self) -> list[Column]:
        """The aggregates that choose the move, and those that measure what is to be written.

        A last level that improves or no longer improves a key of kind best shows in a move of some candidate of it.
        """
        changed = f"{ROWS} <> {ROWS_BEFORE} OR ({KNOWN} > 0) <> ({ACCEPTED_BEFORE} > 0)"
        otherwise = f"{KNOWN} <> {self.candidates.accepted_rows_sql(ROWS_BEFORE, ACCEPTED_BEFORE)}"
        return [
            F.expr("count(1) AS touched"),
            F.expr(f"count_if({changed}) AS changed"),
            F.expr(f"count_if({otherwise}) AS otherwise"),
            F.expr(f"min({ROWS}) AS least"),
            F.expr(f"collect_set({BUCKET}) AS buckets"),
            *self.acceptance.measures,
        ]

    def _entry(self, frame: DataFrame, given: Mapping[str, str]) -> DataFrame:
        """Candidates of one origin, under the columns of all."""
        return frame.selectExpr(*map(quoted, self.candidates.identity), *as_counts(given))

    def _entries(self, change: DataFrame, checkpoints: Checkpoints) -> list[DataFrame]:
        """Return the change, and what is stored of its keys."""
        if self.stored.small:
            return [self._look_up_at_once(change)]
        buckets = F.collect_set(F.expr(self.candidates.bucket_sql)).alias("buckets")
        rows, measured = checkpoints.measure(change, [buckets, F.count(F.lit(1)).alias("rows")], small=False)
        near = self.stored.rows
        if self.candidates.buckets > 1:
            near = near.where(F.col(BUCKET).isin(sorted(measured["buckets"])))
        names = self.candidates.reached_by
        keys = rows.select(*map(quoted, names))
        keys = F.broadcast(keys) if measured["rows"] <= self.most else keys
        reached = near.alias("t").join(keys.alias("u"), F.expr(self.candidates.same(names)), "left_semi")
        return [
            self._entry(rows, {WEIGHT: WEIGHT}),
            self._entry(reached, {STORED_ROWS: ROWS, STORED_ACCEPTED: ACCEPTED}),
        ]

    def _look_up_at_once(self, change: DataFrame) -> DataFrame:
        """Return the same by one task, which joins the change, computed for it alone, with the whole table.

        Each row of the change is there as often as it finds stored candidates: sums take its weight once (`max`).
        """
        stored, few = in_one_task(self.stored.rows, change)
        joined = few.alias("u").join(
            stored.alias("t"), F.expr(self.candidates.same(self.candidates.reached_by)), "left"
        )
        columns = {"u": {WEIGHT: f"u.{WEIGHT}"}, "t": {STORED_ROWS: f"t.{ROWS}", STORED_ACCEPTED: f"t.{ACCEPTED}"}}
        mine, theirs = (
            ", ".join([*(f"{side}.{quoted(n)} AS {quoted(n)}" for n in self.candidates.identity), *as_counts(given)])
            for side, given in columns.items()
        )
        both = f"inline(if(t.{LEVEL} IS NULL, array(struct({mine})), array(struct({mine}), struct({theirs}))))"
        return joined.selectExpr(both)

    def _apply_move(self, last: Touched) -> DataFrame:
        """Return the touched candidates so far, with the last move made."""
        accepted_rows = KNOWN if last.move is None else f"{KNOWN} + {last.move.sql}"
        columns = {name: name for name in (ROWS_BEFORE, ACCEPTED_BEFORE, ROWS)} | {KNOWN: accepted_rows}
        return self._entry(last.frame, columns)

    def _sum(self, entries: DataFrame) -> DataFrame:
        """Return a row for each candidate: as it was left, or else as it is stored, plus the change."""
        stored = f"coalesce(max({STORED_ROWS}), 0L)"
        accepted = self.candidates.accepted_rows_sql(stored, f"coalesce(max({STORED_ACCEPTED}), 0)")
        values = {
            ROWS_BEFORE: f"coalesce(max({ROWS_BEFORE}), {stored})",
            ACCEPTED_BEFORE: f"coalesce(max({ACCEPTED_BEFORE}), max({STORED_ACCEPTED}), CAST(0 AS TINYINT))",
            ROWS: f"coalesce(max({ROWS}), {stored}) + coalesce(max({WEIGHT}), 0L)",
            KNOWN: f"coalesce(max({KNOWN}), {accepted})",
        }
        aggregates = ((name, F.expr(sql)) for name, sql in values.items())
        summed = self.candidates.group(entries, self.candidates.identity, *aggregates)
        return summed.selectExpr("*", f"{self.candidates.bucket_sql} AS {BUCKET}")
