"""Two answers as bags, compared in Python and independently of the product's own verifier.

Everything but floats is compared exactly; floats by their bits, or to a relative 1e-9 where they are computed of
several rows (sums depend on their order, in Spark too).
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame

from deltafold.spark import catalyst

RELATIVE, ABSOLUTE = 1e-9, 1e-9


def types(frame: DataFrame) -> list[str]:
    """The columns' types; tables do not say at any depth that a value is never NULL."""
    return [field.dataType.simpleString() for field in frame.schema]


def identity(value: Any) -> Any:
    """What tells a value from every other one: floats by their bits, with one NaN; maps without their order."""
    return exact_key(value, bits=True)


def exact_key(value: Any, bits: bool = False) -> Any:
    """What of a value must be equal: all of it, or without `bits` of a float only that it is one."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("d", value) if bits else "float"
    if isinstance(value, dict):
        return tuple(sorted(((repr(key), exact_key(item, bits)) for key, item in value.items()), key=repr))
    if isinstance(value, (list, tuple)):
        return tuple(exact_key(item, bits) for item in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return (type(value).__name__, value)


def copies_values(frame: DataFrame) -> bool:
    """Whether no float of an answer depends on the order of rows: it has no groups, windows, limits and loops."""
    rows_together = "Aggregate|Window|Group|Deduplicate|Limit|Offset|LogicalRDD"
    return not re.search(rows_together, catalyst.analysed_plan(frame).toString())


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


def difference(expected: Iterable[Any], actual: Iterable[Any], bits: bool = False) -> str:
    """What tells two bags of rows apart; empty where nothing does. bits: floats are compared exactly, too."""
    sides: list[dict[Any, list[tuple[float, ...]]]] = []
    for rows in (expected, actual):
        grouped: dict[Any, list[tuple[float, ...]]] = defaultdict(list)
        for row in rows:
            grouped[exact_key(tuple(row), bits)].append(floats(tuple(row)))
        sides.append(grouped)
    wanted, given = sides
    counts = [Counter({key: len(rows) for key, rows in side.items()}) for side in sides]
    if missing := counts[0] - counts[1]:
        return f"missing {missing}; too many {counts[1] - counts[0]}"
    if extra := counts[1] - counts[0]:
        return f"too many {extra}"
    for key, rows in wanted.items() if not bits else ():
        left = list(given[key])
        for row in rows:
            found = next((other for other in left if all(map(close, row, other))), None)
            if found is None:
                return f"{key}: {row} is not among {left}"
            left.remove(found)
    return ""
