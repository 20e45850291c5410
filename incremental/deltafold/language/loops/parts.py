"""Several frames of a loop as one: a number of the part, and the columns of all parts, NULL where a part has none.

Columns of equal name and type are shared by the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from deltafold.algebra.errors import QueryError
from deltafold.algebra.sqltext import quoted
from deltafold.language.loops.options import LoopOptions

LOOP_PART = "__part"


@dataclass(frozen=True)
class Parts:
    """The layout of a loop over several frames.

    columns: the shared columns as (name, type); places: of each part, its own names and the columns that have them.
    """

    loop: LoopOptions
    columns: tuple[tuple[str, DataType], ...]
    places: tuple[tuple[tuple[str, str], ...], ...]

    @classmethod
    def of(cls, frames: Sequence[DataFrame], loop: LoopOptions) -> Parts:
        """Return the layout of these frames; raises QueryError for a key that some frame does not have."""
        columns: dict[str, DataType] = {}
        places: list[tuple[tuple[str, str], ...]] = []
        for number, frame in enumerate(frames):
            own: list[tuple[str, str]] = []
            for field in frame.schema:
                known = columns.get(field.name)
                same = known is None or known.simpleString() == field.dataType.simpleString()
                name = field.name if same else f"{field.name}_{number}"
                columns.setdefault(name, field.dataType)
                own.append((field.name, name))
            places.append(tuple(own))
            if missing := [key for key in loop.keys if (key, key) not in own]:
                raise QueryError(
                    f"{loop.function}: part {number + 1} has no column {', '.join(missing)} of the key's type. "
                    "Every part needs the key."
                )
        return cls(loop, tuple(columns.items()), tuple(places))

    def tag(self, frames: Sequence[Any]) -> DataFrame:
        """Return the rows of all parts; raises QueryError where one has columns of other types."""
        union: DataFrame | None = None
        for number, (frame, own) in enumerate(zip(frames, self.places, strict=True)):
            one = self._tag_part(number, frame, own)
            union = one if union is None else union.union(one)
        assert union is not None
        return union

    def split(self, rows: DataFrame) -> tuple[DataFrame, ...]:
        """Return the parts of such rows under their own names."""
        return tuple(
            rows.where(F.col(LOOP_PART) == number).select(*(F.col(quoted(name)).alias(theirs) for theirs, name in own))
            for number, own in enumerate(self.places)
        )

    def _tag_part(self, number: int, frame: Any, own: tuple[tuple[str, str], ...]) -> DataFrame:
        types = dict(self.columns)
        wanted = [types[name].simpleString() for _, name in own]
        found = [field.dataType.simpleString() for field in frame.schema] if isinstance(frame, DataFrame) else None
        if found != wanted:
            what = type(frame).__name__ if found is None else f"columns of the types {', '.join(found)}"
            raise QueryError(
                f"{self.loop.function}: part {number + 1} of the step is {what}, and the start has "
                f"{', '.join(wanted)}. Return these."
            )
        renamed = frame.toDF(*(name for _, name in own))
        have = {name for _, name in own}
        values = [F.col(quoted(n)) if n in have else F.lit(None).cast(t).alias(n) for n, t in self.columns]
        return renamed.select(F.lit(number).alias(LOOP_PART), *values)
