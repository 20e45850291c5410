"""SQL for sums of doubles that depend neither on the order of rows nor on past deletions.

A double of ordinary size (below 2^95, a multiple of 2^-96: every value above 1e-13 is one) is cut into six signed
windows of 32 bits. Each window is summed as a BIGINT, which is exact up to 2^31 rows, so the sum is a group: adding and
deleting in any order gives the same state, and the value is rounded once, at the end. Values outside that range (NaN,
infinities, the very large and the very small) are summed as doubles beside it; deleting one recomputes its group.
"""

from __future__ import annotations

WINDOWS = 6
LOWEST_BIT = 96  # the lowest bit kept is 2^-96


def power_of_two(exponent: int) -> str:
    """Return a power of two as an exact double literal."""
    return f"{2.0**exponent!r}D".replace("e", "E")


OUT_OF_RANGE = (
    f"(NOT coalesce(abs({{x}}) < {power_of_two(95)} AND "
    f"rint({{x}} * {power_of_two(LOWEST_BIT)}) = {{x}} * {power_of_two(LOWEST_BIT)}, {{x}} IS NULL))"
)


def window_sql(i: int) -> str:
    """Return the signed content of window i (bits 32 i - 96 and up) of {x}; 0 if it is out of range or NULL."""
    here, above = power_of_two(LOWEST_BIT - 32 * i), power_of_two(LOWEST_BIT - 32 * (i + 1))
    bits = f"CAST(rint({{x}} * {here}) - rint({{x}} * {above}) * 4294967296D AS BIGINT)"
    return f"if({{x}} IS NULL OR {OUT_OF_RANGE}, 0L, {bits})"


def recombine_windows() -> str:
    """Return the double nearest the sum of the windows: carries upwards first, then added from the top down."""
    carry = "0L"
    digits: list[str] = []
    for i in range(WINDOWS):
        content = f"({{e{i}}} + {carry})"
        if i < WINDOWS - 1:
            carry = f"shiftright({content} + 2147483648L, 32)"
            content = f"({content} - shiftleft({carry}, 32))"
        digits.append(f"CAST({content} AS DOUBLE) * {power_of_two(32 * i - LOWEST_BIT)}")
    value = digits[-1]
    for digit in reversed(digits[:-1]):
        value = f"({value} + {digit})"
    return value


VALUE = recombine_windows()
