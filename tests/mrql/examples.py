"""Programs of MRQL that are run three ways: reference, batch, view. They are in examples.mrql, their tables here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

TABLES: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "S": ("x int, y double", [(1, 2.0), (1, 3.5), (2, -1.25), (3, 0.0), (None, 4.0), (2, None)]),
    "P": ("X int, Y int", [(1, 10), (2, 10), (3, 20), (3, 20), (4, 30)]),
    "Q": ("Y int, Z int", [(10, 1), (20, 2), (20, 3), (40, 4), (None, 5)]),
    "E": (
        "name string, dno int, salary double",
        [("ann", 1, 10.0), ("bob", 1, 20.0), ("cid", 2, 15.0), ("dee", 3, 15.0), ("eve", 2, None), ("fay", None, 5.0)],
    ),
    "D": ("dno int, city string", [(1, "Oslo"), (2, "Rome"), (4, "Bern")]),
    "N": (
        "id int, tags array<string>, parts array<struct<n: int, v: double>>",
        [(1, ["a", "b"], [(1, 1.5), (2, 2.5)]), (2, [], []), (3, ["b", "b"], [(2, 4.0), (2, 0.5), (3, None)])],
    ),
    "M": ("i int, j int, v double", [(0, 0, 1.0), (0, 1, 2.0), (1, 0, 3.0), (1, 1, -1.0)]),
    "W": ("i int, j int, v double", [(0, 0, 0.5), (1, 0, 2.0), (1, 1, 1.0)]),
    "J": ("id int, doc string", [(1, '{"a": {"b": 2}, "c": [1, 2, 3]}'), (2, '{"a": {}, "c": []}'), (3, '{"c": [5]}')]),
    "T": ("line string", [("1, tea , 3.5",), ("2,coffee,2.25",), ("3,tea,1.0",)]),
}

FILE = Path(__file__).with_name("examples.mrql")
ALL: dict[str, str] = dict(re.findall(r"^//// (.+)\n((?:(?!////).*\n?)*)", FILE.read_text(), re.MULTILINE))
ARGUMENTS = ("1", "2")

# the programs of the papers that compile to one state each, without a collected bag
ONE_STATE = (
    "papers: averages by key",
    "papers: join and average",
    "papers: join and average, without a pattern",
    "papers: matrix product",
)
