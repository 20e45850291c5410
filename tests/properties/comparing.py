"""Two answers as bags, compared in Python and independently of the product's own verifier.

Everything but floats is compared exactly; floats to a relative 1e-9 (sums depend on their order, in Spark too).
"""

from __future__ import annotations

import math
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame

RELATIVE, ABSOLUTE = 1e-9, 1e-9


def types(frame: DataFrame) -> list[str]:
    """The columns' types; tables do not say at any depth that a value is never NULL."""
    return [field.dataType.simpleString() for field in frame.schema]


def identity(value: Any) -> Any:
    """What tells a value from every other one: floats by their bits, with one NaN, and entries of maps in order."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("d", value)
    if isinstance(value, dict):
        return ("map", *((identity(key), identity(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(identity, value))
    return (type(value).__name__, value)


def exact_key(value: Any) -> Any:
    """What of a value must be equal: all of it, or of a float only that it is one."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else "float"
    if isinstance(value, dict):
        return tuple(sorted((repr(key), exact_key(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return tuple(exact_key(item) for item in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return (type(value).__name__, value)


def floats(value: Any) -> tuple[float, ...]:
    """The ordinary floats of a value, in order."""
    if isinstance(value, float):
        return () if math.isnan(value) else (value,)
    if isinstance(value, dict):
        value = [item for _, item in sorted(value.items(), key=repr)]
    if isinstance(value, (list, tuple)):
        return tuple(number for item in value for number in floats(item))
    return ()


def close(one: float, other: float) -> bool:
    return one == other or math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def difference(expected: Iterable[Any], actual: Iterable[Any]) -> str:
    """What tells two bags of rows apart; empty where nothing does."""
    sides: list[dict[Any, list[tuple[float, ...]]]] = []
    for rows in (expected, actual):
        grouped: dict[Any, list[tuple[float, ...]]] = defaultdict(list)
        for row in rows:
            grouped[exact_key(tuple(row))].append(floats(tuple(row)))
        sides.append(grouped)
    wanted, given = sides
    counts = [Counter({key: len(rows) for key, rows in side.items()}) for side in sides]
    if missing := counts[0] - counts[1]:
        return f"missing {missing}; too many {counts[1] - counts[0]}"
    if extra := counts[1] - counts[0]:
        return f"too many {extra}"
    for key, rows in wanted.items():
        left = list(given[key])
        for row in rows:
            found = next((other for other in left if all(map(close, row, other))), None)
            if found is None:
                return f"{key}: {row} is not among {left}"
            left.remove(found)
    return ""
