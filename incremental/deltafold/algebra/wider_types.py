"""Decide whether a type has all values of another one, by their names in Spark's DDL."""

from __future__ import annotations

import re

WHOLE_NUMBERS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""Types of integers, the narrowest first, with the decimal digits of their values."""
OTHER_WIDER = {
    ("float", "double"), ("date", "timestamp_ntz"), *((each, "double") for each in ("tinyint", "smallint", "int")),
}  # fmt: skip
DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def is_wider(then: str, now: str) -> bool:
    """Return whether a type has all values of another one, and more."""
    order = list(WHOLE_NUMBERS)
    if then in order and now in order:
        return order.index(then) < order.index(now)
    old, new = decimal_digits(then), decimal_digits(now)
    if old and new:
        return old != new and new[0] >= old[0] and new[1] >= old[1]
    if new and then in WHOLE_NUMBERS:
        return new[0] >= WHOLE_NUMBERS[then]
    return (then, now) in OTHER_WIDER


def decimal_digits(type_: str) -> tuple[int, int] | None:
    """Return the digits of a decimal type before and after its point; None for another type."""
    match = DECIMAL.fullmatch(type_)
    return None if match is None else (int(match[1]) - int(match[2]), int(match[2]))
