"""Define counts, sums and averages: exact for integers and decimals, independent of row order for doubles (D-005).

Doubles: a double of ordinary size (below 2^95, a multiple of 2^-96: every value above 1e-13 is one) is cut into six
signed windows of 32 bits. Each window is summed as a BIGINT, which is exact up to 2^31 rows, so the sum is a group:
adding and deleting in any order gives the same state, and the value is rounded once, at the end. Values outside that
range (NaN, infinities, the very large and the very small) are summed as doubles beside it; deleting one recomputes its
group.

Decimals of up to 38 digits are summed exactly, also where the sum has more digits, in two columns of a state. A state
keeps 37 digits, since Spark adds two of these without losing scale. The column `s` has a sum as long as it has 37
digits; beyond that, the upper bits of the column `n`, which counts the values, have a carry of multiples of 10^36 units
(a unit is 1 in the last digit): sum = s + carry · 10^36 units. Both columns are merged by addition, so rows that are
deleted bring a sum back, and a state without carries is as it was before there were any.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from deltafold.algebra.monoids.kinds import Component, Group, Mergeable, Monoid

SMALL_INTEGERS = ("tinyint", "smallint", "int")


def additive(name: str, type_: str, value: str) -> Component:
    """Return a component that sums `value` over rows, each counted with its weight."""
    return Component(
        name=name, type=type_, lift=f"coalesce(sum({value}), 0)", merge=f"{{t[{name}]}} + {{u[{name}]}}", zero="0"
    )


def count_deleted(condition: str) -> Component:
    """Return a watched component that counts the deleted rows for which a condition is true."""
    lift = f"coalesce(sum(if({{w}} < 0 AND {condition}, 1L, 0L)), 0L)"
    return Component(name="gone", type="bigint", lift=lift, zero="0")


COUNT_X = additive("n", "bigint", "if({x} IS NULL, 0L, {w})")
DELETED_X = count_deleted("{x} IS NOT NULL")


@dataclass(frozen=True, kw_only=True)
class Sum:
    """How values of one type are summed.

    components: the stored columns; value: the sum as SQL over them and the number of values; unit_weights: see Group;
    unsummed: the number of deleted values that cannot be subtracted, None if all can; number: the column with the
    number of values; count: that number as SQL.
    """

    components: tuple[Component, ...]
    value: str
    unit_weights: bool = False
    unsummed: Component | None = None
    number: Component = COUNT_X
    count: str = "{n}"

    def accumulate(self, name: str, buffers: tuple[str, ...]) -> Mergeable:
        """Return the accumulator of an aggregate over this sum and the number of values."""
        components = (*self.components, self.number)
        if self.unsummed is None:
            return Group(name, components, buffers, self.unit_weights)
        return Monoid(
            name=name,
            components=components,
            buffers=buffers,
            watched=(self.unsummed,),
            unit_weights=self.unit_weights,
            deletions="deletions subtract, but that of NaN, an infinity or an out-of-range value recomputes the group",
        )


def count_monoid(types: tuple[str, ...]) -> Group | None:
    """Return count(*) or count of one or two columns."""
    if len(types) > 2:
        return None
    is_null = " OR ".join(f"{{{chr(ord('x') + i)}}} IS NULL" for i in range(len(types)))
    return Group("count", (additive("n", "bigint", f"if({is_null}, 0L, {{w}})"),), ("{n}",))


def sum_monoid(type_: str, mode: str, buffers: int) -> Mergeable | None:
    """Return sum: integers overflow at the end only, decimals and doubles are exact."""
    total = _sum_of(type_, mode)
    if total is None:
        return None
    is_empty = f"{total.count} = 0"
    with_null = f"if({is_empty}, NULL, {total.value})"
    return total.accumulate("sum", (total.value, is_empty) if buffers == 2 else (with_null,))


def average_monoid(type_: str) -> Mergeable | None:
    """Return avg: the sum and the count, which Spark's own expression divides."""
    total = _sum_of(type_, "exact")
    return None if total is None else total.accumulate("avg", (total.value, total.count))


def _sum_of(type_: str, mode: str) -> Sum | None:
    """Return the sum of values of a type; mode: Spark's overflow mode, or exact for no cast at the end."""
    if type_ in SMALL_INTEGERS:
        return Sum(components=(additive("s", "bigint", "CAST({x} AS BIGINT) * {w}"),), value="{s}")
    if type_ == "bigint":
        return _sum_of_longs(mode)
    if decimal := re.fullmatch(r"decimal\((\d+),(\d+)\)", type_):
        return _sum_of_decimals(int(decimal[1]), int(decimal[2]), mode)
    return _sum_of_doubles() if type_ in ("double", "float") else None


def _sum_of_longs(mode: str) -> Sum:
    """Sum in two halves: neither can overflow before 2^31 rows, so only the total decides whether Spark's sum does."""
    halves = (
        additive("hi", "bigint", "shiftright({x}, 32) * {w}"),
        additive("lo", "bigint", "({x} & 4294967295L) * {w}"),
    )
    whole = "(CAST({hi} AS DECIMAL(19,0)) * 4294967296BD + CAST({lo} AS DECIMAL(19,0)))"
    by_mode = {"ansi": f"CAST({whole} AS BIGINT)", "try": f"try_cast({whole} AS BIGINT)", "exact": whole}
    return Sum(components=halves, value=by_mode.get(mode, "(shiftleft({hi}, 32) + {lo})"))


def _sum_of_doubles() -> Sum:
    """Sum windows of bits exactly, and the values that do not fit into them apart."""
    windows = tuple(additive(f"e{i}", "bigint", f"{_window_sql(i)} * {{w}}") for i in range(WINDOWS))
    lift = f"coalesce(sum(if({{w}} > 0 AND {OUT_OF_RANGE}, {{x}} * {{w}}, 0D)), 0D)"
    rest = Component(name="rest", type="double", lift=lift, merge="{t[rest]} + {u[rest]}", zero="0")
    value = f"({SUM_OF_WINDOWS} + {{rest}})"
    return Sum(components=(*windows, rest), value=value, unsummed=count_deleted(OUT_OF_RANGE))


def _sum_of_decimals(precision: int, scale: int, mode: str) -> Sum | None:
    """Sum with 37 digits, since Spark adds two of these without losing scale; None if all digits are fractional.

    Sums that may outgrow them have a carry, with which no deletion is lost: as NULL such a sum would stay NULL.
    """
    if scale > 37:
        return None
    if precision > 26:  # x * w must be exact: precision + 11 digits within 38
        return _sum_of_wide_decimals(min(38, precision + 10), WideSum(scale))
    wide = f"DECIMAL(38,{scale})"
    stored = f"DECIMAL(37,{scale})"
    # a zero of the same type: beside the INT 0 Spark reserves ten digits before the point, and loses scale for them
    zero = f"CAST(0 AS {stored})"
    overflow = _raise_overflow(stored)
    value = "{x} * CAST({w} AS DECIMAL(10,0))"
    summed = f"if(count({value}) = 0, {zero}, coalesce(CAST(sum(CAST({value} AS {wide})) AS {stored}), {overflow}))"
    merged = f"coalesce(CAST({{t[s]}} + {{u[s]}} AS {stored}), {overflow})"
    cast = "try_cast" if mode == "try" else "CAST"
    result = f"{cast}({{s}} AS DECIMAL({precision + 10},{scale}))"
    total = Component(name="s", type=stored.lower(), lift=summed, merge=merged, zero="0")
    return Sum(components=(total,), value=result)


def _sum_of_wide_decimals(digits: int, wide: WideSum) -> Sum:
    """Sum with a carry beside the number of values; digits: those of Spark's sum, NULL beyond them."""
    kept, number = (
        Component(name=name, type=type_.lower(), lift=lift, merge=merge, zero="0")
        for name, type_, lift, merge in zip("sn", (wide.stored, "bigint"), wide.lifts, wide.merges, strict=True)
    )
    return Sum(components=(kept,), value=wide.value(digits), unit_weights=True, number=number, count=COUNT)


WINDOWS = 6
LOWEST_BIT = 96  # the lowest bit kept is 2^-96


def _power_of_two(exponent: int) -> str:
    """Return a power of two as an exact double literal."""
    return f"{2.0**exponent!r}D".replace("e", "E")


OUT_OF_RANGE = (
    f"(NOT coalesce(abs({{x}}) < {_power_of_two(95)} AND "
    f"rint({{x}} * {_power_of_two(LOWEST_BIT)}) = {{x}} * {_power_of_two(LOWEST_BIT)}, {{x}} IS NULL))"
)


def _window_sql(i: int) -> str:
    """Return the signed content of window i (bits 32 i - 96 and up) of {x}; 0 if it is out of range or NULL."""
    here = _power_of_two(LOWEST_BIT - 32 * i)
    above = _power_of_two(LOWEST_BIT - 32 * (i + 1))
    bits = f"CAST(rint({{x}} * {here}) - rint({{x}} * {above}) * 4294967296D AS BIGINT)"
    return f"if({{x}} IS NULL OR {OUT_OF_RANGE}, 0L, {bits})"


def _recombine_windows() -> str:
    """Return the double nearest the sum of the windows: carries upwards first, then added from the top down."""
    carry = "0L"
    digits: list[str] = []
    for i in range(WINDOWS):
        content = f"({{e{i}}} + {carry})"
        if i < WINDOWS - 1:
            carry = f"shiftright({content} + 2147483648L, 32)"
            content = f"({content} - shiftleft({carry}, 32))"
        digits.append(f"CAST({content} AS DOUBLE) * {_power_of_two(32 * i - LOWEST_BIT)}")
    value = digits[-1]
    for digit in reversed(digits[:-1]):
        value = f"({value} + {digit})"
    return value


SUM_OF_WINDOWS = _recombine_windows()


DECIMAL_OVERFLOW = "a sum of decimals outgrew 37 digits"  # part of digests; spark/java_errors.py has what users read
KEPT_DIGITS = 37
CARRIED_DIGITS = 36
LOW_DIGITS = 26  # of LOW_DIGITS 10^11 values can be summed
COUNT_BITS = 36
HIGHER = 10 ** (CARRIED_DIGITS - LOW_DIGITS)
CARRY = f"shiftright({{n}} + {1 << (COUNT_BITS - 1)}L, {COUNT_BITS})"
COUNT = f"({{n}} - shiftleft({CARRY}, {COUNT_BITS}))"
MOST_CARRIED = 1 << 24
MOST_MERGED = 1 << 61


@dataclass(frozen=True)
class WideSum:
    """The SQL of a sum of decimals of a scale, whose rows arrive with weight 1 or -1."""

    scale: int

    @property
    def stored(self) -> str:
        """The type of the column `s`."""
        return f"DECIMAL({KEPT_DIGITS},{self.scale})"

    @property
    def wide(self) -> str:
        """The type of Spark's sum."""
        return f"DECIMAL(38,{self.scale})"

    @property
    def lifts(self) -> tuple[str, str]:
        """The sum of values, and their number with the carry.

        Digits above LOW_DIGITS are summed apart. Most values have none, and for these nothing is divided.
        """
        step = self.units(LOW_DIGITS)
        is_low = f"({{x}} > -{step} AND {{x}} < {step})"
        low = f"if({is_low}, {{x}}, {{x}} % {step})"
        high = f"if({is_low}, NULL, {{x}} div {step})"
        highs = f"coalesce(sum(CAST(if({{w}} > 0, {high}, -{high}) AS DECIMAL(13,0))), 0BD)"
        rest = f"CAST(CAST({highs} % {HIGHER}BD AS DECIMAL(11,0)) * {step} AS {self.stored})"
        added, removed = (self._sum(f"if({{w}} {sign} 0, {low}, NULL)") for sign in "><")  # Spark's -x has 34 digits
        lows = f"CAST({added} - {removed} AS {self.stored})"
        sum_, carry = self.split(f"({lows} + {rest})")
        carried = f"({highs} div {HIGHER}BD)"
        carried = f"if(abs({carried}) > {MOST_CARRIED}, {_raise_overflow('BIGINT')}, {carried})"
        count = "coalesce(sum(if({x} IS NULL, 0L, {w})), 0)"
        return sum_, f"{count} + shiftleft({carried} + {carry}, {COUNT_BITS})"

    @property
    def merges(self) -> tuple[str, str]:
        """The two columns of two sets of values."""
        sum_, carry = self.split("({t[s]} + {u[s]})")
        number = "({t[n]} + {u[n]})"
        number = f"if(abs({number}) > {MOST_MERGED}L, {_raise_overflow('BIGINT')}, {number})"
        return sum_, f"{number} + shiftleft({carry}, {COUNT_BITS})"

    def value(self, digits: int) -> str:
        """Return the sum if it has no more digits than these, else NULL.

        Spark adds no decimals to 38 digits of a large scale, so such a sum is put together as text.
        """
        step = self.units(CARRIED_DIGITS)
        zero = f"CAST(0 AS {self.stored})"
        high = f"({CARRY} + {{s}} div {step})"
        low = f"CAST({{s}} % {step} AS {self.stored})"
        few = f"CAST(CAST({high} AS DECIMAL(2,0)) * {step} AS {self.stored}) + {low}"
        # 37 digits whose first one is a 9, or an 8 if the lower ones are to be subtracted from the higher ones
        nines = f"CAST({self.units(CARRIED_DIGITS, 9)} AS {self.stored})"
        below = f"CAST({nines} + if({high} < 0, CAST({zero} - {low} AS {self.stored}), {low}) AS {self.stored})"
        text = f"right(replace(CAST({below} AS STRING), '.', ''), {KEPT_DIGITS})"
        above = f"abs({high}) - 9 + CAST(left({text}, 1) AS INT)"
        parts = f"if({high} < 0, '-', ''), {above}, right({text}, {CARRIED_DIGITS}), 'E-{self.scale}'"
        many = f"try_cast(concat({parts}) AS {self.wide})"
        whole = f"CASE WHEN {CARRY} = 0 THEN {{s}} WHEN abs({high}) < 10 THEN {few} ELSE {many} END"
        return f"try_cast({whole} AS DECIMAL({digits},{self.scale}))"

    def split(self, sum_: str) -> tuple[str, str]:
        """Return what the column `s` keeps of a sum of 38 digits, and the carry."""
        step = self.units(CARRIED_DIGITS)
        bound = self.units(KEPT_DIGITS)
        fits = f"({sum_} > -{bound} AND {sum_} < {bound})"
        return f"CAST(if({fits}, {sum_}, {sum_} % {step}) AS {self.stored})", f"if({fits}, 0L, {sum_} div {step})"

    def units(self, exponent: int, digit: int = 1) -> str:
        """Return a digit · 10^exponent units as a decimal of as few digits as possible."""
        zeros = exponent - self.scale
        return f"{digit}{'0' * zeros}BD" if zeros >= 0 else f"0.{'0' * (-zeros - 1)}{digit}BD"

    def _sum(self, value: str) -> str:
        # a zero of the same type: beside the INT 0 Spark reserves ten digits before the point, and loses scale for them
        summed = f"coalesce(CAST(sum(CAST({value} AS {self.wide})) AS {self.stored}), {_raise_overflow(self.stored)})"
        return f"if(count({value}) = 0, CAST(0 AS {self.stored}), {summed})"


def _raise_overflow(type_: str) -> str:
    """Return SQL that raises the overflow, of a type."""
    return f"CAST(raise_error('{DECIMAL_OVERFLOW}') AS {type_})"
