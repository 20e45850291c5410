"""Compare what the reference gives with rows of Spark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tests.mrql.oracle.values import Bag, Tagged, Xml, ordered


def plain(value: Any) -> Any:
    """A value of the reference as nested tuples and lists; bags are sorted, so that equal ones are alike."""
    if isinstance(value, dict):
        return tuple(map(plain, value.values()))
    if isinstance(value, tuple):
        return tuple(map(plain, value)) or (0,)
    if isinstance(value, Bag):
        return sorted(map(plain, value), key=ordered)
    if isinstance(value, list):
        return list(map(plain, value))
    if isinstance(value, Xml):
        return str(value)
    return (value.tag, plain(value.value)) if isinstance(value, Tagged) else value


def spark_plain(value: Any) -> Any:
    """A value of Spark in the same form."""
    if isinstance(value, tuple):
        return tuple(map(spark_plain, value))
    if isinstance(value, list):
        return list(map(spark_plain, value))
    return value


def answer_rows(value: Any) -> list[Any]:
    """The rows that a view of a value has."""
    rows = value if isinstance(value, list) else [value]
    made = [plain(row) for row in rows]
    record = isinstance(value, list) and bool(value) and isinstance(value[0], dict | tuple) and len(value[0]) > 0
    return made if record else [(row,) for row in made]


def alike(a: Any, b: Any) -> bool:
    """Equality up to the rounding of sums of doubles."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    numbers = not isinstance(a, bool) and not isinstance(b, bool)
    if numbers and isinstance(a, int | float) and isinstance(b, int | float):  # the reference has no types
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return type(a) is type(b) and bool(a == b)


def rounded(value: Any) -> Any:
    """A value for sorting: doubles that are alike are equal."""
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.6g}")
    return value


def difference(expected: Any, found: Sequence[Any]) -> str:
    """What is different between an answer and the rows of Spark; nothing if they are alike as bags."""
    left = sorted(answer_rows(expected), key=lambda row: ordered(rounded(row)))
    right = sorted((spark_plain(tuple(row)) for row in found), key=lambda row: ordered(rounded(row)))
    wrong = [(a, b) for a, b in zip(left, right, strict=False) if not alike(a, b)]
    if len(left) == len(right) and not wrong:
        return ""
    return (
        f"{len(left)} rows expected, {len(right)} found; the first that differ: {wrong[:2] or (left[-1:], right[-1:])}"
    )
