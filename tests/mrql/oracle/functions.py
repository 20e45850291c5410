"""The operators and scalar functions of MRQL in plain Python."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from tests.mrql.oracle.values import (
    divide,
    modulo,
)

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": divide, "mod": modulo,
}  # fmt: skip


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


SCALARS: dict[str, Callable[..., Any]] = {
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "pow": lambda x, y: float(x) ** y,
    "abs": abs,
    "floor": lambda x: float(math.floor(x)),
    "ceil": lambda x: float(math.ceil(x)),
    "round": lambda x: int(math.copysign(math.floor(abs(x) + 0.5), x)),
    "exp": math.exp,
    "log": lambda x: math.log(x) if x > 0 else -math.inf if x == 0 else math.nan,
    "contains": lambda s, p: p in s,
    "startsWith": lambda s, p: s.startswith(p),
    "length": len,
    "replace": lambda s, a, b: s.replace(a, b),
    "replaceAll": lambda s, a, b: re.sub(a, b, s),
    "toLowerCase": str.lower,
    "toUpperCase": str.upper,
    "trim": lambda s: s.strip(" "),
    "substring": lambda s, b, e: s[b:e],
    "split": lambda s, p: re.split(p, s),
    "string": lambda x: str(x).lower() if isinstance(x, bool) else str(x),
    "parse_json": json.loads,
    "text": lambda x: "".join(ElementTree.fromstring(x).itertext()),
    "tag": lambda x: ElementTree.fromstring(x).tag,
    "toInt": int,
    "toLong": int,
    "toDouble": float,
}
