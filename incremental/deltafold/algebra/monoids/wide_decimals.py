"""Sum decimals of up to 38 digits exactly, also where the sum has more digits, in two columns of a state.

A state keeps 37 digits, since Spark adds two of these without losing scale. The column `s` has a sum as long as it has
37 digits; beyond that, the upper bits of the column `n`, which counts the values, have a carry of multiples of 10^36
units (a unit is 1 in the last digit): sum = s + carry · 10^36 units. Both columns are merged by addition, so rows that
are deleted bring a sum back, and a state without carries is as it was before there were any.
"""

from __future__ import annotations

from dataclasses import dataclass

DECIMAL_OVERFLOW = "a sum of decimals outgrew 37 digits"  # part of digests; spark/java_errors.py has what users read
KEPT_DIGITS, CARRIED_DIGITS, LOW_DIGITS = 37, 36, 26  # of LOW_DIGITS 10^11 values can be summed
COUNT_BITS = 36
HIGHER = 10 ** (CARRIED_DIGITS - LOW_DIGITS)
CARRY = f"shiftright({{n}} + {1 << (COUNT_BITS - 1)}L, {COUNT_BITS})"
COUNT = f"({{n}} - shiftleft({CARRY}, {COUNT_BITS}))"
MOST_CARRIED, MOST_MERGED = 1 << 24, 1 << 61


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
        low, high = f"if({is_low}, {{x}}, {{x}} % {step})", f"if({is_low}, NULL, {{x}} div {step})"
        highs = f"coalesce(sum(CAST(if({{w}} > 0, {high}, -{high}) AS DECIMAL(13,0))), 0BD)"
        rest = f"CAST(CAST({highs} % {HIGHER}BD AS DECIMAL(11,0)) * {step} AS {self.stored})"
        added, removed = (self._sum(f"if({{w}} {sign} 0, {low}, NULL)") for sign in "><")  # Spark's -x has 34 digits
        lows = f"CAST({added} - {removed} AS {self.stored})"
        sum_, carry = self.split(f"({lows} + {rest})")
        carried = f"({highs} div {HIGHER}BD)"
        carried = f"if(abs({carried}) > {MOST_CARRIED}, {raise_overflow('BIGINT')}, {carried})"
        count = "coalesce(sum(if({x} IS NULL, 0L, {w})), 0)"
        return sum_, f"{count} + shiftleft({carried} + {carry}, {COUNT_BITS})"

    @property
    def merges(self) -> tuple[str, str]:
        """The two columns of two sets of values."""
        sum_, carry = self.split("({t[s]} + {u[s]})")
        number = "({t[n]} + {u[n]})"
        number = f"if(abs({number}) > {MOST_MERGED}L, {raise_overflow('BIGINT')}, {number})"
        return sum_, f"{number} + shiftleft({carry}, {COUNT_BITS})"

    def value(self, digits: int) -> str:
        """Return the sum if it has no more digits than these, else NULL.

        Spark adds no decimals to 38 digits of a large scale, so such a sum is put together as text.
        """
        step, zero = self.units(CARRIED_DIGITS), f"CAST(0 AS {self.stored})"
        high, low = f"({CARRY} + {{s}} div {step})", f"CAST({{s}} % {step} AS {self.stored})"
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
        step, bound = self.units(CARRIED_DIGITS), self.units(KEPT_DIGITS)
        fits = f"({sum_} > -{bound} AND {sum_} < {bound})"
        return f"CAST(if({fits}, {sum_}, {sum_} % {step}) AS {self.stored})", f"if({fits}, 0L, {sum_} div {step})"

    def units(self, exponent: int, digit: int = 1) -> str:
        """Return a digit · 10^exponent units as a decimal of as few digits as possible."""
        zeros = exponent - self.scale
        return f"{digit}{'0' * zeros}BD" if zeros >= 0 else f"0.{'0' * (-zeros - 1)}{digit}BD"

    def _sum(self, value: str) -> str:
        # a zero of the same type: beside the INT 0 Spark reserves ten digits before the point, and loses scale for them
        summed = f"coalesce(CAST(sum(CAST({value} AS {self.wide})) AS {self.stored}), {raise_overflow(self.stored)})"
        return f"if(count({value}) = 0, CAST(0 AS {self.stored}), {summed})"


def raise_overflow(type_: str) -> str:
    """Return SQL that raises the overflow, of a type."""
    return f"CAST(raise_error('{DECIMAL_OVERFLOW}') AS {type_})"
