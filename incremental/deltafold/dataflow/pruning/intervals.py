"""Find intervals that contain all values of a key, and few others.

A change is rarely spread evenly: today's rows, and a correction of last spring. One range from the lowest to the
highest key would also contain the keys in between, so it is divided into slices, and slices without rows are left out.
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

from deltafold.spark.checkpoint import compute_measures

INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
EPOCH = date(1970, 1, 1).toordinal()
EXACT_DECIMAL = Context(prec=100)

Interval = tuple[str, str]
"""The least and the greatest value, as text."""


@dataclass(frozen=True)
class Scale:
    """The values of a type as consecutive numbers; column: the same in Spark, as decimal(38,0).

    ends: the least and the greatest value.
    """

    number: Callable[[str], int]
    text: Callable[[int], str]
    column: Callable[[Column], Column]
    ends: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Range:
    """A range of one key as two numbers of its scale; count: the number of slices that it is divided into."""

    key: Column
    scale: Scale
    least: int
    greatest: int
    count: int

    @property
    def width(self) -> int:
        """The width of a slice."""
        return -(-(self.greatest - self.least + 1) // self.count)

    @property
    def slices(self) -> Column:
        """An aggregate: the numbers of the slices that contain a value."""
        above = self.scale.column(self.key) - F.lit(Decimal(self.least)).cast("decimal(38,0)")
        return F.collect_set(F.call_function("div", above, F.lit(Decimal(self.width)).cast("decimal(38,0)")))

    def intervals(self, slices: Sequence[int], most: int) -> tuple[Interval, ...]:
        """Cover these slices with at most `most` intervals."""
        covering: list[Interval] = []
        for first, last in runs(slices, most):
            low, high = self.least + first * self.width, self.least + (last + 1) * self.width - 1
            covering.append((self.scale.text(low), self.scale.text(min(high, self.greatest))))
        return tuple(covering)


def scale(type_: str) -> Scale | None:
    """Return the scale of a type; None for one whose values cannot be numbered exactly."""
    if half := 1 << INTEGER_BITS.get(type_, 0) >> 1:
        return Scale(int, str, lambda key: key.cast("decimal(38,0)"), (-half, half - 1))
    if type_ == "date":
        return Scale(
            lambda text: date.fromisoformat(text).toordinal() - EPOCH,
            lambda number: date.fromordinal(number + EPOCH).isoformat(),
            lambda key: F.unix_date(key).cast("decimal(38,0)"),
            (date.min.toordinal() - EPOCH, date.max.toordinal() - EPOCH),
        )
    digits = re.fullmatch(r"decimal\((\d+),(\d+)\)", type_)
    if digits is None or int(digits[1]) + int(digits[2]) + 2 > 38:
        return None
    places, most = int(digits[2]), 10 ** int(digits[1]) - 1
    return Scale(
        lambda text: int(Decimal(text).scaleb(places, EXACT_DECIMAL)),
        lambda number: format(Decimal(number).scaleb(-places, EXACT_DECIMAL), "f"),
        lambda key: (key * F.lit(Decimal(10**places)).cast(f"decimal({places + 1},0)")).cast("decimal(38,0)"),
        (-most, most),
    )


def range_of(key: Column, type_: str, least: str, greatest: str, slices: int) -> Range | None:
    """Return the range of a key's values; None if they cannot be numbered, or are fewer than the slices."""
    numbered = scale(type_)
    if numbered is None:
        return None
    try:
        first, last = numbered.number(least), numbered.number(greatest)
    except ValueError:  # a date after the year 9999
        return None
    if last - first < slices:
        return None
    return Range(key=key, scale=numbered, least=first, greatest=last, count=slices)


def find_intervals(frame: DataFrame, ranges: Sequence[Range], most: int) -> list[tuple[Interval, ...]]:
    """Find the intervals of each key, at most `most`, in one Spark job over computed rows."""
    row = compute_measures(frame, [each.slices.alias(f"slices_{i}") for i, each in enumerate(ranges)])
    return [each.intervals(row[f"slices_{i}"], most) for i, each in enumerate(ranges)]


def are_dense(intervals: Sequence[Interval], type_: str) -> bool:
    """Return whether intervals contain at least half of the values between their ends."""
    numbered = scale(type_)
    if numbered is None or len(intervals) == 1:
        return True
    try:
        ends = [(numbered.number(low), numbered.number(high)) for low, high in intervals]
    except ValueError:  # a date after the year 9999
        return True
    within = sum(high - low + 1 for low, high in ends)
    return 2 * within >= max(high for _, high in ends) - min(low for low, _ in ends) + 1


def align(interval: Interval, type_: str) -> Interval:
    """Widen an interval to multiples of a power of two, by at most an eighth of its width at each end.

    The lowest and highest of many keys differ from change to change, but little. Spark compiles a condition anew when a
    number in it differs, and Java runs what is compiled anew several times slower for the first million rows.
    """
    numbered = scale(type_)
    if numbered is None:
        return interval
    try:
        low, high = map(numbered.number, interval)
    except ValueError:  # a date after the year 9999
        return interval
    step = 1 << max(0, ((high - low + 1) // 8).bit_length() - 1)
    least, greatest = numbered.ends
    return numbered.text(max(least, low // step * step)), numbered.text(min(greatest, (high // step + 1) * step - 1))


def runs(slices: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Return the first and last of each run of neighbours; of more than `most` runs, the nearest are joined."""
    ordered = sorted(slices)
    gaps = [(before, after) for before, after in pairwise(ordered) if after > before + 1]
    widest = sorted(sorted(gaps, key=lambda gap: gap[0] - gap[1])[: most - 1])
    firsts, lasts = [ordered[0], *(after for _, after in widest)], [*(before for before, _ in widest), ordered[-1]]
    return list(zip(firsts, lasts, strict=True))
