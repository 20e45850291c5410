"""Loops and the nearest of several points, as functions of DataFrames.

Called by a user, they evaluate the loop with ordinary PySpark (definition.py). While Deltafold reads a query function,
they only record the loop (recording.py), so that a refresh can maintain it.

A loop over several frames is evaluated as one frame: the number of the part, and the columns of all parts, NULL where
a part lacks one. Parts share columns of equal name and type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast, get_args, overload

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from deltafold.algebra.errors import QueryError
from deltafold.algebra.plan import Keep, Norm, Tolerance, traits_of
from deltafold.algebra.sqltext import quoted
from deltafold.language.loops.definition import Definition
from deltafold.language.loops.options import LoopOptions, evaluator
from deltafold.spark.connect import check_frame

Frames = tuple[DataFrame, ...]
ColumnNames = str | Sequence[str]
MOST_LEVELS = 1000
MOST_STEPS = 100
CENTER = "center"
_CENTERS = "__centers"
_PART = "__part"


@overload
def fixpoint(
    init: DataFrame, step: Callable[[DataFrame], DataFrame], key: ColumnNames | None = None, keep: Keep | None = None,
    limit: int | None = None,
) -> DataFrame: ...  # fmt: skip


@overload
def fixpoint(
    init: Frames, step: Callable[..., Frames], key: ColumnNames | None = None, keep: Keep | None = None,
    limit: int | None = None,
) -> Frames: ...  # fmt: skip


def fixpoint(
    init: DataFrame | Frames,
    step: Callable[..., Any],
    key: ColumnNames | None = None,
    keep: Keep | None = None,
    limit: int | None = None,
) -> DataFrame | Frames:
    """Return the least set of rows that contains the rows of init and those of step(this set).

    step: a function of a frame with init's columns that returns as many columns of the same types; of several frames,
    where init is a tuple, that returns as many. With a key, of each key only the row whose other columns, in their
    order, are least (keep "greatest": greatest) is kept, and the step sees only rows that were kept when they were
    found. limit: the most rounds that may find rows, 1,000 unless given.
    Raises QueryError, and NotConvergedError beyond the limit.
    """
    keys = _names(key)
    kept = keep or ("least" if key is not None else None)
    if kept is not None and (kept not in get_args(Keep) or not keys):
        raise QueryError(f"fixpoint: keep is {kept!r}, with the key {keys}. Pass a key, and keep least or greatest.")
    most = MOST_LEVELS if limit is None else limit
    return _evaluate(
        init, step, LoopOptions(function="fixpoint", kind="best" if keys else "set", limit=most, keys=keys, keep=kept)
    )


def recursive_union(name: str, init: DataFrame, step: Callable[[DataFrame], DataFrame], limit: int | None) -> DataFrame:
    """Return the fixpoint of a recursive relation of SQL, as `fixpoint` does; name: of the relation, for messages."""
    most = MOST_LEVELS if limit is None else limit
    return cast(DataFrame, _evaluate(init, step, LoopOptions(function=f"recursion {name}", kind="set", limit=most)))


@overload
def iterate(
    start: DataFrame, step: Callable[[DataFrame], DataFrame], times: int | None = None, *,
    key: ColumnNames | None = None, residual: float | None = None, error: float | None = None,
    contraction: float | None = None, norm: Norm = "max",
    limit: int = MOST_STEPS,
) -> DataFrame: ...  # fmt: skip


@overload
def iterate(
    start: Frames, step: Callable[..., Frames], times: int | None = None, *, key: ColumnNames | None = None,
    residual: float | None = None, error: float | None = None, contraction: float | None = None, norm: Norm = "max",
    limit: int = MOST_STEPS,
) -> Frames: ...  # fmt: skip


def iterate(
    start: DataFrame | Frames,
    step: Callable[..., Any],
    times: int | None = None,
    *,
    key: ColumnNames | None = None,
    residual: float | None = None,
    error: float | None = None,
    contraction: float | None = None,
    norm: Norm = "max",
    limit: int = MOST_STEPS,
) -> DataFrame | Frames:
    """Apply a step to start repeatedly: a number of times, or until the rows hardly change any more.

    times: the exact number of steps. residual: until one more step would change the answer by no more than this. error,
    contraction: until the answer is within `error` of the step's fixpoint, for a step that shrinks every difference to
    `contraction` of it. The last two compare the double columns of rows with equal `key` in a norm (sum, mean or max of
    the absolute differences), and take at most `limit` steps. step: as in fixpoint.
    Raises QueryError, and NotConvergedError beyond the limit.
    """
    _check_contract(times, residual, error, contraction)
    if contraction is not None and not 0 <= contraction < 1:
        raise QueryError(f"iterate: contraction {contraction} is out of range. Pass a number from 0 to below 1.")
    if norm not in get_args(Norm):
        raise QueryError(f"iterate: unknown norm {norm!r}. Use sum, mean or max.")
    if times is not None:
        if times < 0:
            raise QueryError(f"iterate: it cannot take {times} steps. Pass 0 or more.")
        return _evaluate(start, step, LoopOptions(function="iterate", kind="times", limit=times, keys=_names(key)))
    if key is None:
        raise QueryError("iterate: rows are compared by their key, and there is none. Pass key=(columns).")
    tolerance = Tolerance(norm, residual, error, contraction)
    return _evaluate(
        start,
        step,
        LoopOptions(
            function="iterate", kind="converged", limit=limit, keys=_names(key), keep=None, tolerance=tolerance
        ),
    )


def nearest(points: DataFrame, centers: DataFrame, on: ColumnNames) -> DataFrame:
    """Return each point with the struct `center` of the center that is nearest in the columns `on` (Euclidean).

    Of several equally near centers the least is taken, column by column. A point or a center with a NULL or NaN among
    these columns is left out, and so is every point where there is no center. Raises QueryError.
    """
    columns = _names(on)
    for what, frame in (("points", points), ("centers", centers)):
        if missing := [name for name in columns if name not in frame.columns]:
            raise QueryError(f"nearest: the {what} have no column {', '.join(missing)}. Name columns that both have.")
    if CENTER in points.columns:
        raise QueryError(f"nearest: the points have a column {CENTER}. Rename it, as the answer has one of this name.")

    def distance(center: Column) -> Column:
        return reduce(Column.__add__, (_square(F.col(quoted(name)) - center[name]) for name in columns))

    listed = _keep_numbers(centers, columns).agg(F.collect_set(F.struct(*map(quoted, centers.columns))).alias(_CENTERS))
    ranked = F.transform(_CENTERS, lambda center: F.struct(distance(center).alias("far"), center.alias(CENTER)))
    with_center = _keep_numbers(points, columns).crossJoin(listed).withColumn(CENTER, F.array_min(ranked)[CENTER])
    return with_center.where(F.col(CENTER).isNotNull()).select(*map(quoted, points.columns), CENTER)


def _square(difference: Column) -> Column:
    value = difference.cast("double")
    return value * value


def _keep_numbers(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the rows that have a number in each of the columns."""
    for name in columns:
        frame = frame.where(F.col(quoted(name)).isNotNull() & ~F.isnan(F.col(quoted(name)).cast("double")))
    return frame


def _evaluate(start: DataFrame | Frames, step: Callable[..., Any], options: LoopOptions) -> DataFrame | Frames:
    """Hand a loop to its evaluator; several frames as one with all their columns (`_Parts`)."""
    chosen = evaluator() or Definition()
    for frame in start if isinstance(start, tuple) else (start,):
        check_frame(options.function, frame)
    if isinstance(start, DataFrame):
        _check_keys(start, options)
        return chosen.evaluate(start, _check_step(start, step, options), options)
    parts = _Parts.of(start, options)
    tagged = parts.tag(start)

    def together(rows: DataFrame) -> DataFrame:
        stepped = step(*parts.split(rows))
        if not isinstance(stepped, tuple) or len(cast("tuple[Any, ...]", stepped)) != len(start):
            raise QueryError(f"{options.function}: the step returned no tuple of {len(start)} frames. Return one.")
        return parts.tag(cast(Frames, stepped))

    keys = (_PART, *options.keys) if options.keys else ()
    return parts.split(chosen.evaluate(tagged, together, replace(options, keys=keys)))


def _check_contract(times: int | None, residual: float | None, error: float | None, contraction: float | None) -> None:
    """Raise QueryError for an iteration with no condition that ends it, or with several."""
    chosen = [name for name, value in (("times", times), ("residual", residual), ("error", error)) if value is not None]
    if chosen == ["error"] and contraction is None:
        raise QueryError(
            "iterate: the distance from the fixpoint is known only by how much a step shrinks differences. Pass "
            "contraction=c, the part that is left of a difference, with error=ε, or pass residual=ε."
        )
    if len(chosen) != 1 or (contraction is None) == (chosen == ["error"]):
        raise QueryError(
            f"iterate: it has {', '.join(chosen) or 'no condition that ends it'}"
            f"{', contraction' if contraction is not None else ''}. "
            "Pass one of times=n, residual=ε, or error=ε with contraction=c."
        )


def _check_step(start: DataFrame, step: Callable[..., Any], options: LoopOptions) -> Callable[[DataFrame], DataFrame]:
    """Return the step, which fails with a QueryError if it returns other columns than those of the start."""
    wanted = [field.dataType.simpleString() for field in start.schema]

    def run_step(rows: DataFrame) -> DataFrame:
        stepped = step(rows)
        if not isinstance(stepped, DataFrame):
            raise QueryError(
                f"{options.function}: the step returned {type(stepped).__name__}, not a DataFrame. Return the rows."
            )
        if (types := [field.dataType.simpleString() for field in stepped.schema]) != wanted:
            raise QueryError(
                f"{options.function}: the step returned columns of the types {', '.join(types)}, and the start has "
                f"{', '.join(wanted)}. {'Cast them' if len(types) == len(wanted) else 'Return as many columns'}."
            )
        return stepped

    return run_step


def _check_keys(start: DataFrame, options: LoopOptions) -> None:
    if missing := [name for name in options.keys if name not in start.columns]:
        raise QueryError(
            f"{options.function}: the key {', '.join(missing)} is not a column of the start "
            f"({', '.join(start.columns)}). Name its columns."
        )
    if traits_of(options.kind).keeps_best and len(options.keys) == len(start.columns):
        raise QueryError("fixpoint: the key has all columns, so nothing is left to compare. Leave the key out.")


def _names(columns: ColumnNames | None) -> tuple[str, ...]:
    return () if columns is None else (columns,) if isinstance(columns, str) else tuple(columns)


@dataclass(frozen=True)
class _Parts:
    """The layout of a loop over several frames.

    columns: the shared columns as (name, type); names: of each part, its own names and the columns that have them.
    """

    loop: LoopOptions
    columns: tuple[tuple[str, DataType], ...]
    names: tuple[tuple[tuple[str, str], ...], ...]

    @classmethod
    def of(cls, frames: Sequence[DataFrame], loop: LoopOptions) -> _Parts:
        """Return the layout of these frames; raises QueryError for a key that some frame does not have."""
        columns: dict[str, DataType] = {}
        names: list[tuple[tuple[str, str], ...]] = []
        for number, frame in enumerate(frames):
            own: list[tuple[str, str]] = []
            for field in frame.schema:
                type_before = columns.get(field.name)
                same = type_before is None or type_before.simpleString() == field.dataType.simpleString()
                name = field.name if same else f"{field.name}_{number}"
                columns.setdefault(name, field.dataType)
                own.append((field.name, name))
            names.append(tuple(own))
            if missing := [key for key in loop.keys if (key, key) not in own]:
                raise QueryError(
                    f"{loop.function}: part {number + 1} has no column {', '.join(missing)} of the key's type. "
                    "Every part needs the key."
                )
        return cls(loop, tuple(columns.items()), tuple(names))

    def tag(self, frames: Sequence[Any]) -> DataFrame:
        """Return the rows of all parts; raises QueryError where one has columns of other types."""
        union: DataFrame | None = None
        for number, (frame, own) in enumerate(zip(frames, self.names, strict=True)):
            one = self._tag_part(number, frame, own)
            union = one if union is None else union.union(one)
        assert union is not None
        return union

    def split(self, rows: DataFrame) -> tuple[DataFrame, ...]:
        """Return the parts of such rows under their own names."""
        return tuple(
            rows.where(F.col(_PART) == number).select(*(F.col(quoted(name)).alias(theirs) for theirs, name in own))
            for number, own in enumerate(self.names)
        )

    def _tag_part(self, number: int, frame: Any, own: tuple[tuple[str, str], ...]) -> DataFrame:
        by_name = dict(self.columns)
        wanted = [by_name[name].simpleString() for _, name in own]
        types = [field.dataType.simpleString() for field in frame.schema] if isinstance(frame, DataFrame) else None
        if types != wanted:
            what = type(frame).__name__ if types is None else f"columns of the types {', '.join(types)}"
            raise QueryError(
                f"{self.loop.function}: part {number + 1} of the step is {what}, and the start has "
                f"{', '.join(wanted)}. Return these."
            )
        renamed = frame.toDF(*(name for _, name in own))
        have = {name for _, name in own}
        values = [F.col(quoted(n)) if n in have else F.lit(None).cast(t).alias(n) for n, t in self.columns]
        return renamed.select(F.lit(number).alias(_PART), *values)
