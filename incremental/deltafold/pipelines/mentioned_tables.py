"""Find the tables that a SQL query reads from its text, without Spark, for the graphs that orchestrators show.

A name is a table where SQL has one: after FROM, JOIN and TABLE, and after a comma in FROM. Names of functions are left
out, and those of common table expressions where these are visible: after their queries, in the parentheses of their
WITH. A refresh does not use this: it analyses the query (`graph`).
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

_BEGIN_OF_QUERY = {"SELECT", "FROM", "WITH", "VALUES", "TABLE", "("}

Name = tuple[str, ...]


@dataclass
class _Level:
    """What is known within a pair of parentheses.

    selects: there is a SELECT, so that FROM is not that of `extract(year FROM day)`; in_from: a comma separates tables;
    expects_table: the next name is one; expects_cte: it names a common table expression; recursive: these may read
    themselves; cte: the name of the one whose query comes next; after_cte: a comma begins another; defines: the one
    whose query is in these parentheses; ctes: those that are visible, in lower case.
    """

    selects: bool = False
    in_from: bool = False
    expects_table: bool = False
    expects_cte: bool = False
    recursive: bool = False
    cte: str = ""
    after_cte: bool = False
    defines: str = ""
    ctes: set[str] = field(default_factory=set[str])


def find_tables(text: str) -> tuple[Name, ...]:
    """Return the parts of the names of the tables that a query reads, in order, each once, without backquotes."""
    tokens = [(match["name"], match["mark"]) for match in _TOKEN.finditer(text) if match["skipped"] is None]
    tokens.append((None, ""))
    tables = dict[Name, None]()
    levels, previous, number = [_Level()], "", 0
    while number < len(tokens) - 1:
        name, mark = tokens[number]
        level, word = levels[-1], (name or mark).upper()
        number += 1
        following = (tokens[number][0] or tokens[number][1]).upper()
        if name is None:
            _read_mark(mark, levels, previous, following)
        elif level.expects_cte and word == "RECURSIVE" and following not in ("AS", "("):
            level.recursive = True
        elif level.expects_cte:
            level.expects_cte, level.cte = False, unquote(name).lower()
        elif level.expects_table and word not in _NO_TABLE | _STILL_BEFORE_TABLE:
            parts = [unquote(name)]
            while tokens[number][1] == "." and (part := tokens[number + 1][0]) is not None:
                parts.append(unquote(part))
                number += 2
            level.expects_table = False
            is_cte = len(parts) == 1 and any(parts[0].lower() in each.ctes for each in levels)
            if tokens[number][1] != "(" and not is_cte:
                tables[tuple(parts)] = None
        else:
            _read_word(word, level, previous)
        previous = word
    return tuple(tables)


def _read_mark(mark: str, levels: list[_Level], previous: str, following: str) -> None:
    level = levels[-1]
    if mark == "(":
        inside = _Level(in_from=level.expects_table, expects_table=level.expects_table)
        level.expects_table = False
        if level.cte and (previous == "AS" or following in _BEGIN_OF_QUERY):
            inside.defines, level.cte, level.after_cte = level.cte, "", True
            if level.recursive:
                level.ctes.add(inside.defines)
        levels.append(inside)
    elif mark == ")" and len(levels) > 1:
        defined = levels.pop().defines
        levels[-1].ctes |= {defined} - {""}
    elif mark == ",":
        level.expects_table, level.expects_cte = level.in_from, level.after_cte


def _read_word(word: str, level: _Level, previous: str) -> None:
    is_first = previous in ("", "(") or level.after_cte
    level.after_cte = False
    if word == "WITH" and previous in ("", "(", "AS"):
        level.expects_cte, level.in_from = True, False
    level.selects |= word == "SELECT"
    is_clause = word != "FROM" or is_first or (level.selects and previous != "DISTINCT")
    if word in _BEFORE_TABLE and is_clause:
        level.expects_table = True
        level.in_from |= word != "TABLE"
    elif word not in _STILL_BEFORE_TABLE:
        level.expects_table = False
        level.in_from &= word not in _END_OF_FROM
