"""The batch definition of loops: evaluate a query with `fixpoint` or `iterate` round by round.

Every round is checkpointed, so that plans do not grow. The refresh of loops shares no code with this module, since it
is tested against it. To verify a loop to a tolerance, one batch step is applied to its stored answer, and the change
is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import count
from typing import assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from deltafold.algebra.errors import NotConvergedError, QueryError
from deltafold.algebra.loops import advise, contracts, show_residuals
from deltafold.algebra.plan import Norm
from deltafold.algebra.results.report import MeasuredPoint
from deltafold.algebra.sqltext import quoted
from deltafold.language.determinism.tie_breaking import break_ties
from deltafold.language.loops.options import LoopOptions, StepFunction
from deltafold.spark.checkpoint import without_constraints

BEST = "__best"
ANSWER_ROW = "__known"


class Definition:
    """Evaluates loops by their definition, from the start."""

    def evaluate(self, start: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
        """Return the answer of a loop; raises NotConvergedError beyond its limit."""
        names = start.columns

        def name_columns(rows: DataFrame) -> DataFrame:
            stepped = step(rows)
            return stepped if stepped.columns == names else stepped.toDF(*names)

        match options.kind:
            case "best":
                return _best_rows(start, name_columns, options)
            case "times":
                return _repeat(start, name_columns, options.limit)
            case "converged":
                return _converge(start, name_columns, options)
            case "levels" | "set":
                return _least_set(start, name_columns, options)
            case _:
                assert_never(options.kind)


def _least_set(start: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
    """Return the rows of start, and of the step over the rows so far, until no round adds a row."""
    rows = _compute_once(start.distinct())
    size = rows.count()
    _check_rounds(min(size, 1), options)
    for rounds in count(2):
        rows = _compute_once(rows.union(step(rows)).distinct())
        previous = size
        size = rows.count()
        if size == previous:
            break
        _check_rounds(rounds, options)
    return rows


def _best_rows(start: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
    """Return the best row of each key, among the rows that were better than all before when they were found."""
    answer = accepted = _compute_once(_best_of(start, options))
    _check_rounds(min(accepted.count(), 1), options)
    for rounds in count(2):
        candidates = _best_of(step(accepted), options)
        better = _compute_once(_improvements(candidates, answer, options))
        if not better.count():
            break
        accepted = _compute_once(accepted.union(better))
        answer = _compute_once(_best_of(accepted, options))
        _check_rounds(rounds, options)
    return answer


def _best_of(rows: DataFrame, options: LoopOptions) -> DataFrame:
    """Return of each key the row whose other columns are least, or greatest, in their order; NULL is the least."""
    others = [name for name in rows.columns if name not in options.keys]
    choose = F.min if options.keep == "least" else F.max
    best = rows.groupBy(*map(quoted, options.keys)).agg(choose(F.struct(*map(quoted, others))).alias(BEST))
    return best.select(*(F.col(quoted(n)) if n in options.keys else F.col(BEST)[n].alias(n) for n in rows.columns))


def _improvements(candidates: DataFrame, answer: DataFrame, options: LoopOptions) -> DataFrame:
    """Return the candidates that are better than the answer's row of their key, or whose key it does not have."""
    others = [name for name in answer.columns if name not in options.keys]
    keys = [F.col(quoted(name)).alias(f"{ANSWER_ROW}_{i}") for i, name in enumerate(options.keys)]
    best_rows = answer.select(*keys, F.struct(*map(quoted, others)).alias(ANSWER_ROW))
    same = [F.col(quoted(name)).eqNullSafe(F.col(f"{ANSWER_ROW}_{i}")) for i, name in enumerate(options.keys)]
    value = F.struct(*map(quoted, others))
    best = F.col(ANSWER_ROW)
    better = value < best if options.keep == "least" else value > best
    joined = candidates.join(best_rows, reduce(Column.__and__, same), "left").where(best.isNull() | better)
    return joined.select(*map(quoted, answer.columns))


def _repeat(start: DataFrame, step: StepFunction, times: int) -> DataFrame:
    """Return the rows after `times` steps."""
    rows = _compute_once(start)
    for _ in range(times):
        rows = _compute_once(step(rows))
        rows.count()
    return rows


def _converge(start: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
    """Return the first point that one more step changes by no more than the tolerance, with the same keys."""
    assert options.tolerance is not None
    point = _compute_once(start)
    residuals = list[float]()
    _check_unique_keys(point, options)
    for _ in range(options.limit):
        moved = _compute_once(step(point))
        residual, unmatched = _distance(point, moved, options.keys, options.tolerance.norm)
        residuals.append(residual)
        if residual <= options.tolerance.allowed and not unmatched:
            _check_unique_keys(moved, options)
            return point
        _check_contraction(residuals, options)
        point = moved
    raise NotConvergedError(
        f"iterate did not converge in {options.limit} steps: one more step still changes the answer by "
        f"{show_residuals(residuals)}. {advise(residuals)}"
    )


def _distance(old: DataFrame, new: DataFrame, keys: Sequence[str], norm: Norm) -> tuple[float, int]:
    """Return the norm of the difference of two frames' double columns, and the number of keys on one side alone.

    Such a key counts with its value.
    """
    doubles = _double_columns(old, keys)
    sides = [
        frame.select(
            *(F.col(quoted(name)).alias(f"{side}_key_{i}") for i, name in enumerate(keys)),
            *(F.col(quoted(name)).cast("double").alias(f"{side}_{i}") for i, name in enumerate(doubles)),
            F.lit(1).alias(side),
        )
        for side, frame in (("old", old), ("new", new))
    ]
    same = [F.col(f"old_key_{i}").eqNullSafe(F.col(f"new_key_{i}")) for i in range(len(keys))]
    differences = [
        F.coalesce(F.abs(F.col(f"new_{i}") - F.col(f"old_{i}")), F.abs(f"new_{i}"), F.abs(f"old_{i}"), F.lit(0.0))
        for i in range(len(doubles))
    ]
    total = reduce(Column.__add__, differences)
    greatest = F.greatest(*differences) if len(differences) > 1 else differences[0]
    measure = {"sum": F.sum(total), "max": F.max(greatest), "mean": F.sum(total) / (F.count(F.lit(1)) * len(doubles))}
    joined = sides[0].join(sides[1], reduce(Column.__and__, same), "full")
    alone = F.count_if(F.col("old").isNull() | F.col("new").isNull()).alias("unmatched")
    row = joined.agg(F.coalesce(measure[norm], F.lit(0.0)).alias("norm"), alone).first()
    assert row is not None
    return float(row["norm"]), int(row["unmatched"])


def _double_columns(rows: DataFrame, keys: Sequence[str]) -> list[str]:
    """Return the columns that a tolerance compares; raises QueryError if there are none."""
    doubles = [field.name for field in rows.schema if isinstance(field.dataType, DoubleType | FloatType)]
    compared = [name for name in doubles if name not in keys]
    if not compared:
        raise QueryError("iterate: a tolerance compares columns of type double, and there is none. Cast them.")
    return compared


def _check_unique_keys(rows: DataFrame, options: LoopOptions) -> None:
    """Refuse rows that share a key; raises QueryError."""
    keys = [*map(quoted, options.keys)]
    repeated = rows.groupBy(*keys).agg(F.count("*").alias("__rows")).where("__rows > 1")
    if (key := repeated.select(F.to_json(F.struct(*keys))).first()) is not None:
        raise QueryError(f"iterate: several rows have the key {key[0]}. Aggregate by the key in the step.")


def _check_rounds(rounds: int, options: LoopOptions) -> None:
    """Refuse a loop that finds rows in more rounds than its limit; raises NotConvergedError."""
    if rounds > options.limit:
        raise NotConvergedError(
            f"{options.function}: round {rounds} still found rows, and the limit is {options.limit}. "
            "Raise the limit, or bound what the step counts up."
        )


def _check_contraction(residuals: Sequence[float], options: LoopOptions) -> None:
    """Refuse a step that shrinks differences less than it is declared to; raises NotConvergedError."""
    assert options.tolerance is not None
    declared = options.tolerance.contraction
    if declared is None or contracts(residuals, declared):
        return
    raise NotConvergedError(
        f"contraction {declared} of iterate: a step left {residuals[-1] / residuals[-2]:.4g} of a "
        "difference, which is more. Declare a greater contraction, or use residual."
    )


def _compute_once(frame: DataFrame) -> DataFrame:
    """Return the rows of a frame, computed once by the action that follows, with ties broken as everywhere.

    They are a relation of their own. Under the attributes of a start that selects from a source, a step that joins both
    by `rows["a"] == edges["b"]` would name one attribute twice.
    """
    own = frame.toDF(*frame.columns)
    return without_constraints(break_ties(own.sparkSession, own).localCheckpoint(eager=False))


class MeasuredPoints:
    """Evaluates the loops of a query, in the order of their calls, over the stored answers of some of them.

    stored: the answer of each loop by the number of its call; measured: of each loop that has a tolerance, the change
    by one step. A loop that the step of another one calls is evaluated by its definition.
    """

    def __init__(self, stored: Mapping[int, DataFrame]) -> None:
        self._stored = stored
        self._calls = count()
        self._depth = 0
        self.measured: list[MeasuredPoint] = []

    def evaluate(self, start: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
        """Return the stored answer of a loop to a tolerance, and the batch answer of any other."""
        stored = None if self._depth else self._stored.get(next(self._calls))
        self._depth += 1
        try:
            if stored is None or options.tolerance is None:
                return Definition().evaluate(start, step, options)
            return self._measure(stored.toDF(*start.columns), step, options)
        finally:
            self._depth -= 1

    def _measure(self, point: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
        assert options.tolerance is not None
        tolerance = options.tolerance
        point = _compute_once(point)
        moved = _compute_once(step(point).toDF(*point.columns))
        residual, unmatched = _distance(point, moved, options.keys, tolerance.norm)
        shrinks = None if tolerance.contraction is None else 1 - tolerance.contraction
        self.measured.append(MeasuredPoint(residual, tolerance.allowed, shrinks, unmatched))
        return point
