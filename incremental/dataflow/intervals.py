"""Where the values of a key lie. In: held rows, the least and greatest value. Out: a few intervals.

A change is seldom spread evenly: today's rows, and a correction of last spring. One range from the least to the
greatest key would cover what lies between, so the range is cut into slices, and those without a row are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal
from itertools import pairwise

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SLICES = 256  # of a range
MOST = 16  # intervals of one key: a condition of more costs more than it saves
INTEGERS = ("tinyint", "smallint", "int", "bigint")
EPOCH = date(1970, 1, 1).toordinal()
EXACT = Context(prec=100)

Interval = tuple[str, str]
"""The least and the greatest value, as text."""


@dataclass(frozen=True)
class Scale:
    """The values of a type as consecutive numbers; column: the same in Spark, as decimal(38,0)."""

    number: Callable[[str], int]
    text: Callable[[int], str]
    column: Callable[[Column], Column]


@dataclass(frozen=True)
class Range:
    """All values of one key lie between two numbers of its scale."""

    key: Column
    scale: Scale
    least: int
    greatest: int

    @property
    def width(self) -> int:
        """Of a slice."""
        return -(-(self.greatest - self.least + 1) // SLICES)

    @property
    def slices(self) -> Column:
        """An aggregate: the slices that have a value."""
        above = self.scale.column(self.key) - F.lit(Decimal(self.least)).cast("decimal(38,0)")
        return F.collect_set(F.call_function("div", above, F.lit(Decimal(self.width)).cast("decimal(38,0)")))

    def intervals(self, slices: Sequence[int]) -> tuple[Interval, ...]:
        """Intervals that contain these slices and as little as may be beside them."""
        found: list[Interval] = []
        for first, last in runs(slices):
            low, high = self.least + first * self.width, self.least + (last + 1) * self.width - 1
            found.append((self.scale.text(low), self.scale.text(min(high, self.greatest))))
        return tuple(found)


def scale(type_: str) -> Scale | None:
    """The scale of a type; None for one whose values cannot be numbered exactly."""
    if type_ in INTEGERS:
        return Scale(int, str, lambda key: key.cast("decimal(38,0)"))
    if type_ == "date":
        return Scale(
            lambda text: date.fromisoformat(text).toordinal() - EPOCH,
            lambda number: date.fromordinal(number + EPOCH).isoformat(),
            lambda key: F.unix_date(key).cast("decimal(38,0)"),
        )
    found = re.fullmatch(r"decimal\((\d+),(\d+)\)", type_)
    if found is None or int(found[1]) + int(found[2]) + 2 > 38:
        return None
    places = int(found[2])
    return Scale(
        lambda text: int(Decimal(text).scaleb(places, EXACT)),
        lambda number: format(Decimal(number).scaleb(-places, EXACT), "f"),
        lambda key: (key * F.lit(Decimal(10**places)).cast(f"decimal({places + 1},0)")).cast("decimal(38,0)"),
    )


def range_of(key: Column, type_: str, least: str, greatest: str) -> Range | None:
    """The range of a key's values; None where they cannot be numbered, or so few are possible that slices are none."""
    known = scale(type_)
    try:
        ends = None if known is None else (known.number(least), known.number(greatest))
    except ValueError:  # a date after the year 9999
        return None
    return Range(key, known, *ends) if known and ends and ends[1] - ends[0] >= SLICES else None


def narrowed(frame: DataFrame, ranges: Sequence[Range]) -> list[tuple[Interval, ...]]:
    """Where the values of each key lie; one job over held rows."""
    row = frame.agg(*(each.slices.alias(f"slices_{i}") for i, each in enumerate(ranges))).first()
    assert row is not None
    return [each.intervals(row[f"slices_{i}"]) for i, each in enumerate(ranges)]


def runs(slices: Sequence[int]) -> list[tuple[int, int]]:
    """The first and last of each run of neighbours; where there are more than MOST, the nearest are taken together."""
    known = sorted(slices)
    gaps = [(before, after) for before, after in pairwise(known) if after > before + 1]
    widest = sorted(sorted(gaps, key=lambda gap: gap[0] - gap[1])[: MOST - 1])
    firsts, lasts = [known[0], *(after for _, after in widest)], [*(before for before, _ in widest), known[-1]]
    return list(zip(firsts, lasts, strict=True))
