"""Find the tables that a SQL query reads from its text, without Spark, for the graphs that orchestrators show.

A name is a table where SQL has one: after FROM, JOIN and TABLE, and after a comma in FROM. Names of common table
expressions and of functions are left out. A refresh does not use this: it analyses the query (`graph`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from deltafold.algebra.sqltext import unquote

_TOKEN = re.compile(
    r"""(?P<skipped>--[^\n]*|/\*.*?\*/|\s+|[rR]?'(?:[^'\\]|\\.)*'|[rR]?"(?:[^"\\]|\\.)*")"""
    r"|(?P<name>`(?:[^`]|``)*`|\w+)|(?P<mark>.)",
    re.DOTALL,
)
_BEFORE_TABLE = {"FROM", "JOIN", "TABLE"}
_STILL_BEFORE_TABLE = {"LATERAL", "STREAM"}
_NO_TABLE = {"SELECT", "VALUES", "WITH", "MAP", "REDUCE"} | _BEFORE_TABLE
_END_OF_FROM = {
    "CLUSTER", "DISTRIBUTE", "EXCEPT", "GROUP", "HAVING", "INTERSECT", "LIMIT", "MINUS", "ORDER", "QUALIFY", "SELECT",
    "SORT", "UNION", "VALUES", "VIEW", "WHERE", "WINDOW",
}  # fmt: skip

Name = tuple[str, ...]


@dataclass
class _Level:
    """What is known within a pair of parentheses.

    selects: there is a SELECT, so that FROM is not that of `extract(year FROM day)`; in_from: a comma separates tables;
    expects_table: the next name is one; expects_cte: it names a common table expression; recursive: these may read
    themselves; cte: the name of the one whose query comes next; after_cte: a comma begins another; defining: those
    whose queries are around, and that do not read themselves.
    """

    selects: bool = False
    in_from: bool = False
    expects_table: bool = False
    expects_cte: bool = False
    recursive: bool = False
    cte: str = ""
    after_cte: bool = False
    defining: frozenset[str] = field(default_factory=frozenset[str])


def find_tables(text: str) -> tuple[Name, ...]:
    """Return the parts of the names of the tables that a query reads, in order, each once, without backquotes."""
    tokens = [(match["name"], match["mark"]) for match in _TOKEN.finditer(text) if match["skipped"] is None]
    tables, ctes = list[tuple[Name, frozenset[str]]](), set[str]()
    levels, previous, number = [_Level()], "", 0
    while number < len(tokens):
        name, mark = tokens[number]
        level, word = levels[-1], (name or mark).upper()
        number += 1
        if name is None:
            _read_mark(mark, levels, previous)
        elif level.expects_cte and word == "RECURSIVE":
            level.recursive = True
        elif level.expects_cte:
            level.expects_cte, level.cte = False, unquote(name).lower()
            ctes.add(level.cte)
        elif level.expects_table and word not in _NO_TABLE | _STILL_BEFORE_TABLE:
            parts = [unquote(name)]
            while number + 1 < len(tokens) and tokens[number][1] == "." and (part := tokens[number + 1][0]) is not None:
                parts.append(unquote(part))
                number += 2
            level.expects_table = False
            if number == len(tokens) or tokens[number][1] != "(":
                tables.append((tuple(parts), level.defining))
        else:
            _read_word(word, level, previous)
        previous = word
    found = [parts for parts, inside in tables if parts[1:] or parts[0].lower() not in ctes - inside]
    return tuple(dict.fromkeys(found))


def _read_mark(mark: str, levels: list[_Level], previous: str) -> None:
    level = levels[-1]
    if mark == "(":
        is_query = bool(level.cte) and previous == "AS"
        own = {level.cte} if is_query and not level.recursive else set[str]()
        inside = _Level(in_from=level.expects_table, expects_table=level.expects_table, defining=level.defining | own)
        levels.append(inside)
        level.expects_table = False
        if is_query:
            level.cte, level.after_cte = "", True
    elif mark == ")" and len(levels) > 1:
        levels.pop()
    elif mark == ",":
        level.expects_table, level.expects_cte = level.in_from, level.after_cte


def _read_word(word: str, level: _Level, previous: str) -> None:
    level.after_cte = False
    if word == "WITH":
        level.expects_cte = previous in ("", "(", "AS")
    level.selects |= word == "SELECT"
    is_clause = word != "FROM" or previous == "(" or not previous or (level.selects and previous != "DISTINCT")
    if word in _BEFORE_TABLE and is_clause:
        level.in_from = level.expects_table = True
    elif word not in _STILL_BEFORE_TABLE:
        level.expects_table = False
        level.in_from &= word not in _END_OF_FROM
