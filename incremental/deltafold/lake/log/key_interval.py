"""Find where in its files a merge has to look: between the least and the greatest first key of the change.

The files of a state are sorted by it, so Parquet skips the pages outside, whose rows are then neither read nor matched.
That pays off where the keys of a change are near each other, as those of today's windows or of new numbers.
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
from deltafold.lake.files import Action
from deltafold.lake.version_diff import physical_name

LEAST, GREATEST = "__least", "__greatest"
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


def interval_measures(field: StructField) -> list[Column]:
    """Return aggregates: the least and the greatest number of a column; none if its values have no numbers."""
    known = NUMBERED.get(field.dataType.simpleString())
    if known is None:
        return []
    number = F.expr(known.number.format(quoted(field.name)))
    return [F.min(number).alias(LEAST), F.max(number).alias(GREATEST)]


def narrow_interval(field: StructField, found: Mapping[str, Any], files: Sequence[Action]) -> Column | None:
    """Return the condition of the rows of a table whose column is in the measured interval; None if most rows are.

    field: the column in the table's schema; found: the measures; files: AddFiles, in whose interval values are taken as
    evenly spread. Files without statistics count as wholly within.
    """
    known = NUMBERED.get(field.dataType.simpleString())
    least, greatest = found.get(LEAST), found.get(GREATEST)
    if known is None or least is None or greatest is None:
        return None
    total = sum(int(file["size"]) for file in files)
    within = sum(int(file["size"]) * _share(known, physical_name(field), file, least, greatest) for file in files)
    if within > NARROW * total:
        return None
    low, high = (F.expr(known.value.format(number)) for number in (least, greatest))
    return F.col(quoted(field.name)).between(low, high)


def _share(known: Numbered, name: str, file: Action, least: int, greatest: int) -> float:
    """Return which part of the interval of a file's values the wanted interval covers."""
    statistics = json.loads(file.get("stats") or "{}")
    try:
        low, high = (known.of_text(statistics[end][name]) for end in ("minValues", "maxValues"))
    except (KeyError, TypeError, ValueError):  # none, or a year after 9999
        return 1.0
    return max(0, min(high, greatest) - max(low, least) + 1) / (high - low + 1)
