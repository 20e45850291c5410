"""Measure the interval of a column in a change, and find out whether few rows of a table are in it (D-130).

Of files that are sorted by a column, only the pages are read that may have one of the change's rows: those between its
least and its greatest value. That pays off where the values of a change are near each other, as those of today's
windows or of new numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from deltafold.algebra.sqltext import quoted
from deltafold.lake.files import Action, physical_name

LEAST, GREATEST, NULLS = "__least", "__greatest", "__nulls"
NARROW = 0.5  # of the bytes; the reader that skips is slower than the one that reads all
UNIX_EPOCH, MICRO = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


@dataclass(frozen=True)
class Numbered:
    """A type whose values are in the order of numbers: SQL of the number, SQL of its value, and the number of a text
    in the log's statistics.
    """

    number: str
    value: str
    of_text: Callable[[Any], int]


INTEGER = Numbered("CAST({} AS BIGINT)", "CAST({}L AS BIGINT)", int)
NUMBERED: Mapping[str, Numbered] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), INTEGER),
    "date": Numbered(
        "CAST(unix_date({}) AS BIGINT)", "date_from_unix_date({})",
        lambda text: date.fromisoformat(text).toordinal() - UNIX_EPOCH.toordinal(),
    ),
    "timestamp": Numbered(
        "unix_micros({})", "timestamp_micros({}L)", lambda text: (datetime.fromisoformat(text) - UNIX_EPOCH) // MICRO
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class KeyInterval:
    """A column of a change, its type, and the least and the greatest number of its values.

    Both are None where no row has a value, one has none (NULL), or the values of the type are not numbers.
    """

    column: str
    type: str
    least: int | None = None
    greatest: int | None = None

    @staticmethod
    def measures(field: StructField, where: str = "true") -> list[Column]:
        """Return the aggregates over a change that `of` takes; where: the condition of the rows that count."""
        counted, column = F.expr(where), F.col(quoted(field.name))
        nulls = F.count_if(counted & column.isNull()).alias(NULLS)
        numbered = NUMBERED.get(field.dataType.simpleString())
        if numbered is None:
            return [nulls]
        number = F.when(counted, F.expr(numbered.number.format(quoted(field.name))))
        return [nulls, F.min(number).alias(LEAST), F.max(number).alias(GREATEST)]

    @classmethod
    def of(cls, field: StructField, measured: Mapping[str, Any]) -> KeyInterval:
        """Return the interval from the values of the aggregates."""
        least, greatest = (None if measured[NULLS] else measured.get(end) for end in (LEAST, GREATEST))
        return cls(column=field.name, type=field.dataType.simpleString(), least=least, greatest=greatest)

    def condition(self, stored: StructField, files: Sequence[Action]) -> Column | None:
        """Return the condition of the rows of a table whose column is in the interval; None if most rows are.

        stored: the column in the table's schema; files: AddFiles, in whose interval values are taken as evenly spread.
        Files without statistics count as wholly within.
        """
        numbered = NUMBERED.get(self.type) if stored.dataType.simpleString() == self.type else None
        if numbered is None or self.least is None or self.greatest is None:
            return None
        name, total = physical_name(stored), sum(int(file["size"]) for file in files)
        shares = (_share(numbered, name, file, self.least, self.greatest) * int(file["size"]) for file in files)
        if sum(shares) > NARROW * total:
            return None
        low, high = (F.expr(numbered.value.format(number)) for number in (self.least, self.greatest))
        return F.col(quoted(self.column)).between(low, high)


def _share(numbered: Numbered, name: str, file: Action, least: int, greatest: int) -> float:
    """Return which part of the interval of a file's values the wanted interval covers."""
    statistics = json.loads(file.get("stats") or "{}")
    try:
        low, high = (numbered.of_text(statistics[end][name]) for end in ("minValues", "maxValues"))
    except (KeyError, TypeError, ValueError):  # none, or a year after 9999
        return 1.0
    return max(0, min(high, greatest) - max(low, least) + 1) / (high - low + 1)
