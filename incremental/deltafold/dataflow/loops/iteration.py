"""Evaluate the steps of a loop whose rows are not kept by level: a number of them, or until they hardly change it.

Exactly n steps are replayed from the start, over side inputs that are computed once. To a tolerance, the first point is
the start with the stored values of the columns that the step computes (a warm start: keys that are new, gone or changed
otherwise follow the start), and the answer is the first point whose residual was measured to be small enough:

    X ← start, warm
    repeat  Y ← step(X);  ρ ← ‖Y − X‖;  if ρ ≤ allowed, over equal keys: the answer is X;  X ← Y

For a step that contracts to c, ‖X − X*‖ ≤ ρ / (1 − c) (Banach's fixed-point theorem), whatever X the steps began with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import NotConvergedError, QueryError
from deltafold.algebra.loops import LoopState, advise, contracts, show_residuals
from deltafold.algebra.plan import Column, Given, Plan, Tolerance
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.spark.checkpoint import Checkpoints

OLD, NEW = "__old", "__new"


@dataclass(frozen=True)
class Iterated:
    """The answer of a loop, computed.

    steps: the rows that each step gave; residuals: what each step changed, the last one of the answer; none of n steps.
    """

    rows: DataFrame
    steps: tuple[int, ...]
    residuals: tuple[float, ...] = ()


@dataclass(kw_only=True)
class Iteration:
    """One loop in one epoch.

    after: the rows of a plan outside the loop after the epoch; small: whether one task computes a step sooner than
    several that exchange rows; block: where the answer, and the side inputs, are computed until the epoch ends.
    """

    loop: LoopState
    lowering: Lowering
    after: Callable[[Plan], Relation]
    most: int
    small: bool
    block: ExitStack
    _sides: dict[str, DataFrame] = field(default_factory=dict[str, DataFrame])

    @property
    def names(self) -> list[str]:
        """The columns of the loop's rows."""
        return [column.name for column in self.loop.columns]

    def run(self, stored: DataFrame | None) -> Iterated:
        """Compute the answer; stored: the last one. Raises NotConvergedError, and QueryError for repeated keys."""
        return self._replay() if self.loop.tolerance is None else self._converge(stored)

    def start(self) -> DataFrame:
        """Return the rows of init."""
        return self._frame(self.after(self.loop.init), self.loop.init.columns)

    def step(self, rows: DataFrame) -> DataFrame:
        """Return the result of one step over these rows."""
        return self._frame(self._evaluate(self.loop.step, rows), self.loop.step.columns)

    def _replay(self) -> Iterated:
        held, rows = ExitStack(), self.start()
        steps = list[int]()
        for number in range(self.loop.limit + 1):
            rows = self.step(rows) if number else rows
            after = ExitStack()
            rows, measured = self._compute(rows, [F.count(F.lit(1)).alias("rows")], after)
            held.close()
            held = after
            steps.append(int(measured["rows"]))
        self.block.push(held.pop_all())
        return Iterated(rows, tuple(steps[1:]))

    def _converge(self, stored: DataFrame | None) -> Iterated:
        point, held = self._warm(stored), ExitStack()
        point, _ = self._compute(point, [F.count(F.lit(1)).alias("rows")], held)
        steps, residuals = list[int](), list[float]()
        for _ in range(self.loop.limit):
            after = ExitStack()
            pair, measured = self._compute(self._pair(point, self.step(point)), self._measures(), after)
            self._check_keys(measured)
            steps.append(int(measured["rows"]))
            residuals.append(float(measured["residual"]))
            if residuals[-1] <= self._tolerance.allowed and not int(measured["unmatched"]):
                after.close()
                self.block.push(held.pop_all())
                return Iterated(point, tuple(steps), tuple(residuals))
            self._check_contraction(residuals)
            held.close()
            point, held = self._take_new(pair), after
        held.close()
        raise NotConvergedError(
            f"{self.loop.name} did not converge in {self.loop.limit} steps: the last ones changed the answer by "
            f"{show_residuals(residuals)} ({self._tolerance.norm} norm), and "
            f"{self._tolerance.allowed:g} is allowed. {advise(residuals)}"
        )

    @property
    def _tolerance(self) -> Tolerance:
        tolerance = self.loop.tolerance
        assert tolerance is not None
        return tolerance

    def _warm(self, stored: DataFrame | None) -> DataFrame:
        """Return the start, with the stored values of the computed columns where its key is stored."""
        start = self.start()
        if stored is None:
            return start
        warm = [column.name for column in self.loop.warm]
        old = stored.select(
            *(F.col(quoted(key.name)).alias(f"__key_{i}") for i, key in enumerate(self.loop.keys)),
            F.struct(*map(quoted, warm)).alias(OLD),
        )
        same = [F.col(quoted(key.name)).eqNullSafe(F.col(f"__key_{i}")) for i, key in enumerate(self.loop.keys)]
        joined = start.join(old, reduce(SparkColumn.__and__, same), "left")
        values = {n: F.when(F.col(OLD).isNull(), F.col(quoted(n))).otherwise(F.col(OLD)[n]).alias(n) for n in warm}
        return joined.select(*(values.get(name, F.col(quoted(name))) for name in self.names))

    def _pair(self, old: DataFrame, new: DataFrame) -> DataFrame:
        """Return the rows of two points by their keys, beside each other, with the number of rows of each."""
        keys = [quoted(key.name) for key in self.loop.keys]
        values = F.struct(*(F.col(quoted(c.name)) for c in self.loop.columns if c not in self.loop.keys))
        sides = [
            frame.select(
                *keys, F.when(F.lit(side == OLD), values).alias(OLD), F.when(F.lit(side == NEW), values).alias(NEW)
            )
            for side, frame in ((OLD, old), (NEW, new))
        ]
        picked = [F.first(side, ignorenulls=True).alias(side) for side in (OLD, NEW)]
        counted = [F.count(side).alias(f"{side}_rows") for side in (OLD, NEW)]
        return sides[0].unionByName(sides[1]).groupBy(*keys).agg(*picked, *counted)

    def _measures(self) -> list[SparkColumn]:
        """Aggregates over pairs: the residual, a key with several rows, keys on one side, the rows of the new point."""
        differences = [_difference(column.name) for column in self.loop.warm]
        total = reduce(SparkColumn.__add__, differences)
        greatest = F.greatest(*differences) if len(differences) > 1 else differences[0]
        measure = {
            "sum": F.sum(total),
            "max": F.max(greatest),
            "mean": F.sum(total) / (F.count(F.lit(1)) * len(differences)),
        }[self._tolerance.norm]
        most = F.greatest(f"{OLD}_rows", f"{NEW}_rows")
        one_key = F.to_json(F.struct(*(F.col(quoted(key.name)) for key in self.loop.keys)))
        return [
            F.coalesce(measure, F.lit(0.0)).cast("string").alias("residual"),  # JSON has no NaN
            F.max(F.when(most > 1, one_key)).alias("repeated"),
            F.count_if((F.col(f"{OLD}_rows") == 0) | (F.col(f"{NEW}_rows") == 0)).alias("unmatched"),
            F.count(NEW).alias("rows"),
        ]

    def _take_new(self, pairs: DataFrame) -> DataFrame:
        """Return the new point of pairs."""
        keys = {key.name for key in self.loop.keys}
        columns = (F.col(quoted(n)) if n in keys else F.col(NEW)[n].alias(n) for n in self.names)
        return pairs.where(F.col(NEW).isNotNull()).select(*columns)

    def _check_keys(self, measures: Any) -> None:
        if (key := measures.get("repeated")) is not None:
            raise QueryError(
                f"{self.loop.name}: several rows have the key {key}. "
                "Aggregate by the key in the step of iterate, and give its start one row for each."
            )

    def _check_contraction(self, residuals: Sequence[float]) -> None:
        declared = self._tolerance.contraction
        if declared is None or contracts(residuals, declared):
            return
        raise NotConvergedError(
            f"contraction {declared:g} of {self.loop.name}: a step left {residuals[-1] / residuals[-2]:.4g} of a "
            "difference, which is more. Declare a greater contraction, or use residual instead of error."
        )

    def _evaluate(self, plan: Plan, rows: DataFrame) -> Relation:
        if isinstance(plan, Given):
            return self._read_given(plan, rows)
        return self.lowering.rows(plan, [self._evaluate(child, rows) for child in plan.children])

    def _read_given(self, leaf: Given, rows: DataFrame) -> Relation:
        if leaf.name == self.loop.name:
            rows = (
                rows.coalesce(1) if self.small else rows
            )  # so that one task joins and groups them without an exchange
            return self.lowering.leaf(rows, list(zip(self.names, leaf.columns, strict=True)), weighted=False)
        if leaf.name not in self._sides:
            plan = next(side.plan for side in self.loop.sides if side.given.name == leaf.name)
            named = [(column, f"c{i}") for i, column in enumerate(plan.columns)]
            frame = self.lowering.frame(self.after(plan), named)
            kept = Checkpoints(self.block, self.most).keep(frame.coalesce(1) if self.small else frame)
            self._sides[leaf.name] = kept
        named = [(f"c{i}", column) for i, column in enumerate(leaf.columns)]
        return self.lowering.leaf(self._sides[leaf.name], named, weighted=False)

    def _frame(self, relation: Relation, columns: Sequence[Column]) -> DataFrame:
        """Return a plan's rows under the names of the loop's columns."""
        return self.lowering.frame(relation, list(zip(columns, self.names, strict=True)))

    def _compute(self, frame: DataFrame, measures: list[SparkColumn], block: ExitStack) -> tuple[DataFrame, Any]:
        return Checkpoints(block, self.most).measure(frame, measures, small=self.small)


def _difference(name: str) -> SparkColumn:
    """Return the distance of a column's values in a pair; a key on one side counts with its value."""
    old, new = (F.col(side)[name].cast("double") for side in (OLD, NEW))
    return F.coalesce(F.abs(new - old), F.abs(new), F.abs(old), F.lit(0.0))
