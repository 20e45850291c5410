"""The values of MRQL in plain Python: their order, equality and arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from deltafold.language.mrql.syntax import tree as T

Env = dict[str, Any]


class Bag(list[Any]):
    """A collection without order."""


class Xml(str):
    """An element, as its text."""


class Row(dict[str, Any]):
    """A row of a source, which tuple patterns take too."""


@dataclass(frozen=True)
class Tagged:
    tag: str
    value: Any


@dataclass(frozen=True)
class Closure:
    parameters: tuple[T.Parameter, ...]
    body: T.Node
    env: Env


class EvaluationError(Exception):
    """What is an error at run time."""


def ordered(value: Any) -> Any:
    """A key that sorts values as Spark does: NULL first, NaN last, tuples part by part."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    if isinstance(value, dict):
        return (1, [ordered(part) for part in value.values()])
    if isinstance(value, Bag):
        return (1, sorted(map(ordered, value)))
    if isinstance(value, list | tuple):
        return (1, [ordered(part) for part in value])
    if isinstance(value, Tagged):
        return (1, [(1, value.tag), ordered(value.value)])
    return (1, value + 0.0 if isinstance(value, float) else value)


def same(a: Any, b: Any) -> bool | None:
    """Equality: of products part by part, with NULL unknown."""
    if a is None or b is None:
        return None
    if isinstance(a, dict | tuple) and isinstance(b, dict | tuple):
        left = list(a.values()) if isinstance(a, dict) else list(a)
        right = list(b.values()) if isinstance(b, dict) else list(b)
        parts = [same(x, y) for x, y in zip(left, right, strict=True)]
        return False if False in parts else None if None in parts else True
    return bool(ordered(a) == ordered(b))


def truncated(a: Any, b: Any) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def divide(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise EvaluationError("division by zero")
        return truncated(a, b)
    a, b = float(a), float(b)
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def modulo(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            raise EvaluationError("division by zero")
        return a - b * truncated(a, b)
    return math.nan if b == 0 else math.fmod(a, b)


def aggregate(name: str, values: Iterable[Any]) -> Any:
    """An aggregate of elements; NULLs are counted, and otherwise left out."""
    every = list(values)
    present = [value for value in every if value is not None]
    match name:
        case "count":
            return len(every)
        case "sum":
            return sum(present)
        case "avg":
            return math.fsum(present) / len(present) if present else math.nan
        case "min":
            return min(present, key=ordered, default=None)
        case "max":
            return max(present, key=ordered, default=None)
        case "some":
            return any(value is True for value in every)
        case _:
            return all(value is True for value in every)


AGGREGATES = ("count", "sum", "avg", "min", "max", "some", "all")


def inserted(value: Any) -> str:
    if isinstance(value, list):
        return "".join(map(inserted, sorted(value, key=ordered) if isinstance(value, Bag) else value))
    return value if isinstance(value, Xml) else "" if value is None else escape(str(value), {'"': "&quot;"})


def pair(value: Any) -> tuple[Any, Any]:
    first, second = value.values() if isinstance(value, Row) else value
    return first, second


def joined(left: Any, right: Any) -> Any:
    both = [*left, *right]
    return Bag(both) if isinstance(left, Bag) or isinstance(right, Bag) else both


def member(value: Any, name: str) -> Any:
    if value is None:
        return None
    if isinstance(value, dict):
        return value[name] if isinstance(value, Row) else value.get(name)
    parts = [member(each, name) for each in value]
    kind = Bag if isinstance(value, Bag) else list
    if parts and isinstance(parts[0], list):
        return kind(inner for part in parts for inner in part)
    return kind(parts)


def part(value: Any, position: int) -> Any:
    """A part of a tuple, or of each element of a collection."""
    if isinstance(value, list):
        return (Bag if isinstance(value, Bag) else list)(part(each, position) for each in value)
    return [*(value.values() if isinstance(value, Row) else value)][position]
