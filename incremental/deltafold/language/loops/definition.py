"""The batch definition of loops: what a query with `fixpoint` or `iterate` means, evaluated round by round.

Every round is computed and cut off from its plan, so that plans do not grow. Nothing is shared with the refresh of
loops, which is tested against this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from deltafold.algebra.errors import NotConvergedError, QueryError
from deltafold.algebra.loops import advise, contracts, show_residuals
from deltafold.algebra.plan import Norm
from deltafold.algebra.sqltext import quoted
from deltafold.language.determinism.tie_breaking import break_ties
from deltafold.language.loops.options import LoopOptions, StepFunction
from deltafold.spark.checkpoint import without_constraints

BEST, KNOWN_ROW = "__best", "__known"


class Definition:
    """Evaluates loops by their definition, from the start."""

    def evaluate(self, start: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
        """Return the answer of a loop; raises NotConvergedError beyond its limit."""
        names = start.columns

        def name_columns(rows: DataFrame) -> DataFrame:
            found = step(rows)
            return found if found.columns == names else found.toDF(*names)

        match options.kind:
            case "best":
                return best_rows(start, name_columns, options)
            case "times":
                return repeat(start, name_columns, options.limit)
            case "converged":
                return converge(start, name_columns, options)
            case "levels" | "set":
                return least_set(start, name_columns, options)
            case _:
                assert_never(options.kind)


def least_set(start: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
    """Return the rows of init and of step(found), until no round adds a row."""
    found = compute_once(start.distinct())
    size, rounds = found.count(), 1
    check_rounds(min(size, 1), options)
    while True:
        grown = compute_once(found.union(step(found)).distinct())
        if (now := grown.count()) == size:
            return grown
        found, size, rounds = grown, now, rounds + 1
        check_rounds(rounds, options)


def best_rows(start: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
    """Return the best row of each key, among the rows that were better than all before when they were found."""
    accepted = compute_once(best_of(start, options))
    answer, rounds = accepted, 1
    check_rounds(min(accepted.count(), 1), options)
    while True:
        candidates = best_of(step(accepted), options)
        better = compute_once(improvements(candidates, answer, options))
        if not better.count():
            return answer
        accepted, rounds = compute_once(accepted.union(better)), rounds + 1
        answer = compute_once(best_of(accepted, options))
        check_rounds(rounds, options)


def best_of(rows: DataFrame, options: LoopOptions) -> DataFrame:
    """Return of each key the row whose other columns are least, or greatest, in their order; NULL is the least."""
    others = [name for name in rows.columns if name not in options.keys]
    choose = F.min if options.keep == "least" else F.max
    best = rows.groupBy(*map(quoted, options.keys)).agg(choose(F.struct(*map(quoted, others))).alias(BEST))
    return best.select(*(F.col(quoted(n)) if n in options.keys else F.col(BEST)[n].alias(n) for n in rows.columns))


def improvements(candidates: DataFrame, answer: DataFrame, options: LoopOptions) -> DataFrame:
    """Return the candidates that are better than the answer's row of their key, or whose key it does not have."""
    others = [name for name in answer.columns if name not in options.keys]
    keys = [F.col(quoted(name)).alias(f"{KNOWN_ROW}_{i}") for i, name in enumerate(options.keys)]
    known = answer.select(*keys, F.struct(*map(quoted, others)).alias(KNOWN_ROW))
    same = [F.col(quoted(name)).eqNullSafe(F.col(f"{KNOWN_ROW}_{i}")) for i, name in enumerate(options.keys)]
    value, best = F.struct(*map(quoted, others)), F.col(KNOWN_ROW)
    better = value < best if options.keep == "least" else value > best
    joined = candidates.join(known, reduce(Column.__and__, same), "left").where(best.isNull() | better)
    return joined.select(*map(quoted, answer.columns))


def repeat(start: DataFrame, step: StepFunction, times: int) -> DataFrame:
    """Return the rows after `times` steps."""
    rows = compute_once(start)
    for _ in range(times):
        rows = compute_once(step(rows))
        rows.count()
    return rows


def converge(start: DataFrame, step: StepFunction, options: LoopOptions) -> DataFrame:
    """Return the first point that one more step changes by no more than the tolerance, with the same keys."""
    assert options.tolerance is not None
    point, residuals = compute_once(start), list[float]()
    check_unique_keys(point, options)
    for _ in range(options.limit):
        moved = compute_once(step(point))
        residual, unmatched = distance(point, moved, options.keys, options.tolerance.norm)
        residuals.append(residual)
        if residual <= options.tolerance.allowed and not unmatched:
            check_unique_keys(moved, options)
            return point
        check_contraction(residuals, options)
        point = moved
    raise NotConvergedError(
        f"iterate did not converge in {options.limit} steps: one more step still changes the answer by "
        f"{show_residuals(residuals)}. {advise(residuals)}"
    )


def distance(old: DataFrame, new: DataFrame, keys: Sequence[str], norm: Norm) -> tuple[float, int]:
    """Return the norm of the difference of two frames' double columns, and the number of keys on one side alone.

    Such a key counts with its value.
    """
    doubles = double_columns(old, keys)
    sides = [
        frame.select(
            *(F.col(quoted(name)).alias(f"{side}_key_{i}") for i, name in enumerate(keys)),
            *(F.col(quoted(name)).cast("double").alias(f"{side}_{i}") for i, name in enumerate(doubles)),
            F.lit(True).alias(side),
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


def double_columns(rows: DataFrame, keys: Sequence[str]) -> list[str]:
    """Return the columns that a tolerance compares; raises QueryError if there are none."""
    found = [
        field.name for field in rows.schema
        if isinstance(field.dataType, DoubleType | FloatType) and field.name not in keys
    ]  # fmt: skip
    if not found:
        raise QueryError("iterate: a tolerance compares columns of type double, and there is none. Cast them.")
    return found


def check_unique_keys(rows: DataFrame, options: LoopOptions) -> None:
    """Refuse rows that share a key; raises QueryError."""
    keys = [*map(quoted, options.keys)]
    repeated = rows.groupBy(*keys).agg(F.count("*").alias("__rows")).where("__rows > 1")
    if (found := repeated.select(F.to_json(F.struct(*keys))).first()) is not None:
        raise QueryError(f"iterate: several rows have the key {found[0]}. Aggregate by the key in the step.")


def check_rounds(rounds: int, options: LoopOptions) -> None:
    """Refuse a loop that finds rows in more rounds than its limit; raises NotConvergedError."""
    if rounds > options.limit:
        raise NotConvergedError(
            f"{options.function}: round {rounds} still found rows, and the limit is {options.limit}. "
            "Raise the limit, or bound what the step counts up."
        )


def check_contraction(residuals: Sequence[float], options: LoopOptions) -> None:
    """Refuse a step that shrinks differences less than it is declared to; raises NotConvergedError."""
    assert options.tolerance is not None
    declared = options.tolerance.contraction
    if declared is None or contracts(residuals, declared):
        return
    raise NotConvergedError(
        f"contraction {declared} of iterate: a step left {residuals[-1] / residuals[-2]:.4g} of a "
        "difference, which is more. Declare a greater contraction, or use residual."
    )


def compute_once(frame: DataFrame) -> DataFrame:
    """Return the rows of a frame, computed once by the action that follows, with ties broken as everywhere.

    They are a relation of their own. Under the attributes of a start that selects from a source, a step that joins both
    by `rows["a"] == edges["b"]` would name one attribute twice.
    """
    own = frame.toDF(*frame.columns)
    return without_constraints(break_ties(own.sparkSession, own).localCheckpoint(eager=False))
