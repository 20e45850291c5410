"""Algebra room: sums of doubles that do not depend on the order and do not drift. In: nothing. Out: SQL text.

A double of ordinary size (below 2^95, a multiple of 2^-96: every value above 1e-13 is one) is cut into six signed
windows of 32 bits; each window is summed as a BIGINT, which is exact up to 2^31 rows. A sum so kept is a group: adding
and deleting in any order gives the same state, and its value is rounded once, at the end. Values that do not fit (NaN,
infinities, the very large and the very small) are summed as doubles beside it; deleting one recomputes its group.
"""

from __future__ import annotations

LIMBS = 6
LOW = 96  # the lowest bit kept is 2^-96


def power(exponent: int) -> str:
    """A power of two as an exact double literal."""
    return f"{2.0**exponent!r}D".replace("e", "E")


ODD = f"(NOT coalesce(abs({{x}}) < {power(95)} AND rint({{x}} * {power(LOW)}) = {{x}} * {power(LOW)}, {{x}} IS NULL))"


def limb(i: int) -> str:
    """The signed content of window i (bits 32 i - 96 and up) of {x}; 0 where the value does not fit or is NULL."""
    here, above = power(LOW - 32 * i), power(LOW - 32 * (i + 1))
    bits = f"CAST(rint({{x}} * {here}) - rint({{x}} * {above}) * 4294967296D AS BIGINT)"
    return f"if({{x}} IS NULL OR {ODD}, 0L, {bits})"


def recombined() -> str:
    """The double nearest the sum of the windows: carries upwards first, then added from the top down."""
    carry = "0L"
    digits: list[str] = []
    for i in range(LIMBS):
        content = f"({{e{i}}} + {carry})"
        if i < LIMBS - 1:
            carry = f"shiftright({content} + 2147483648L, 32)"
            content = f"({content} - shiftleft({carry}, 32))"
        digits.append(f"CAST({content} AS DOUBLE) * {power(32 * i - LOW)}")
    value = digits[-1]
    for digit in reversed(digits[:-1]):
        value = f"({value} + {digit})"
    return value


VALUE = recombined()
