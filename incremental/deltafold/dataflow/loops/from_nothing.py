"""Compute all candidates of a loop from its init and side inputs as they are: the first epoch, or one that starts over.

Level by level (semi-naive evaluation): each is derived from what was accepted of the last one. Nothing is stored that
could be touched, so a round reads what was accepted so far only as far as its kind needs it: sets to leave out rows
that are there, kind best to leave out values that are not better.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.loops import ACCEPTED, LEVEL
from deltafold.algebra.program import BUCKET, ROWS, WEIGHT
from deltafold.algebra.sqltext import quoted
from deltafold.algebra.tuning import Tuning
from deltafold.dataflow.loops.acceptance import beyond_limit
from deltafold.dataflow.loops.candidates import ANSWER
from deltafold.dataflow.loops.leaves import FrontierChange
from deltafold.dataflow.loops.rounds import Round, Step
from deltafold.spark.checkpoint import Checkpoints

MOST_PARTS = 8  # frames that a round unites; more are copied into one


@dataclass
class Pile:
    """Candidates that grow by a level a round, in few frames that are computed already."""

    most: int
    small: bool
    parts: list[tuple[DataFrame, ExitStack]] = field(default_factory=list["tuple[DataFrame, ExitStack]"])

    @property
    def frame(self) -> DataFrame:
        """All of them."""
        return reduce(DataFrame.unionByName, [part for part, _ in self.parts])

    def add(self, part: DataFrame, block: ExitStack) -> None:
        """Add computed candidates, from which the next level is still derived; block: frees them."""
        if len(self.parts) >= MOST_PARTS:
            together, own = self.frame, ExitStack()
            together = together.coalesce(
                1 if self.small else max(1, together.sparkSession.sparkContext.defaultParallelism)
            )
            counted = [F.count(F.lit(1)).alias("rows")]
            kept, _ = Checkpoints(own, self.most).measure(together, counted, small=self.small)
            self.free()
            self.parts = [(kept, own)]
        self.parts.append((part, block))

    def free(self) -> None:
        """Free the computed rows."""
        for _, block in self.parts:
            block.close()


class FromNothing:
    """Computes a loop from nothing, once. block: frees the result when the epoch ends."""

    def __init__(self, step: Step, tuning: Tuning, block: ExitStack) -> None:
        self._step, self._candidates, self._tuning = step, step.candidates, tuning
        self._pile = Pile(tuning.local_rows, step.is_small())
        block.callback(self._pile.free)

    def run(self) -> tuple[DataFrame, tuple[Round, ...]]:
        """Return all candidates to store, and the rounds; raises NotConvergedError beyond the loop's limit."""
        rounds, loop, sides = list[Round](), self._candidates.loop, self._step.sides
        change, block = self._step.sum_weights([self._step.init(sides.rules.after(loop.init))]), ExitStack()
        while change is not None:
            level, measured = self._accept(change, block)
            self._pile.add(level, measured)
            number, fixed = int(self.measures["accepted"]), loop.has_fixed_rows and not rounds
            if not number and not fixed:
                break
            if number and len(rounds) >= loop.limit:
                raise beyond_limit(self._candidates)
            rounds.append(Round("levels", number))
            change, block = self._derive(level, len(rounds) - 1, fixed=fixed)
        return self._collect(), tuple(rounds)

    def _accept(self, change: DataFrame, block: ExitStack) -> tuple[DataFrame, ExitStack]:
        """Compute the candidates of one level, with their acceptance."""
        own, judged = ExitStack(), self._judge(change)
        measures = [F.expr(f"count_if({ACCEPTED} > 0)").alias("accepted")]
        with block:
            frame, self.measures = Checkpoints(own, self._tuning.local_rows).measure(
                judged, measures, small=self._step.is_small()
            )
        return frame, own

    def _judge(self, change: DataFrame) -> DataFrame:
        """Return the candidates of a new level, with 1 for those that are accepted."""
        candidates = self._candidates
        names = [F.col(quoted(name)) for name in candidates.identity]
        rows = change.select(*names, F.col(WEIGHT).alias(ROWS))
        if candidates.is_levelled_bag or not self._pile.parts:
            new = rows.select("*", F.lit(1).alias(ACCEPTED))
            return self._best(new) if candidates.loop.traits.keeps_best else new
        accepted = self._pile.frame.where(f"{ACCEPTED} > 0")
        if candidates.loop.traits.is_set:
            accepted = accepted.select(*map(quoted, candidates.row), F.lit(True).alias("__known"))
            new = rows.alias("t").join(accepted.alias("u"), F.expr(candidates.same(candidates.row)), "left")
            return new.select(*(f"t.{quoted(c)}" for c in rows.columns), F.expr(f"if(__known, 0, 1) AS {ACCEPTED}"))
        least, sign = candidates.best_of
        best = F.expr(f"{least}({candidates.value_sql()})").alias("__lower")
        lower = accepted.groupBy(*map(quoted, candidates.key)).agg(best)
        new = rows.alias("t").join(lower.alias("u"), F.expr(candidates.same(candidates.key)), "left")
        better = F.expr(f"if(__lower IS NULL OR {candidates.value_sql('t.')} {sign} __lower, 1, 0)").alias(ACCEPTED)
        return self._best(new.select(*(f"t.{quoted(c)}" for c in rows.columns), better))

    def _best(self, rows: DataFrame) -> DataFrame:
        """Of a key's values at one level only the best is accepted."""
        key = ", ".join(map(quoted, self._candidates.key))
        value, (least, _) = self._candidates.value_sql(), self._candidates.best_of
        best = f"{value} <=> {least}({value}) OVER (PARTITION BY {key})"
        return rows.withColumn(ACCEPTED, F.expr(f"if({best}, {ACCEPTED}, 0)"))

    def _derive(self, level: DataFrame, number: int, *, fixed: bool) -> tuple[DataFrame | None, ExitStack]:
        """Return the candidates derived from the accepted rows of a level; fixed: from an empty loop, too."""
        block, candidates = ExitStack(), self._candidates
        times = f"{ACCEPTED} * {candidates.copies_sql(ROWS)}"
        frontier = level.where(f"{ACCEPTED} > 0").withColumn(WEIGHT, F.expr(f"CAST({times} AS BIGINT)"))
        frontier = frontier.select(*map(quoted, candidates.identity), WEIGHT)

        def rows_after() -> DataFrame:
            return candidates.repeat_rows(self._pile.frame, times)

        def rows_before() -> DataFrame:
            return rows_after().where(f"{LEVEL} < {number}")

        leaves = FrontierChange(candidates, self._step.sides, self._step.size, frontier, rows_before, rows_after)
        derived = self._step.after(leaves, block) if fixed else self._step.derive_change(leaves, block)
        return self._step.sum_weights([] if derived is None else [derived]), block

    def _collect(self) -> DataFrame:
        """Return all candidates under the columns of the table."""
        candidates, accepted = self._candidates, f"{ACCEPTED} * {ANSWER}"
        if candidates.loop.traits.keeps_best:
            accepted = candidates.last_accepted_sql(ACCEPTED)
        values = {ACCEPTED: f"CAST({accepted} AS TINYINT)", BUCKET: candidates.bucket_sql}
        columns = [F.expr(f"{values.get(name, quoted(name))}").alias(name) for name in candidates.columns]
        return self._pile.frame.select(*columns)
