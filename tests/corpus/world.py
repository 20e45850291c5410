"""Sources in memory, what is done to them, and the check after each refresh.

A World is to a test what the Scene of tests/examples is, less what only Delta has: versions that are gone, column
mapping, a journal, reports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Row, SparkSession

from incremental.algebra.sources import SourceDeclaration
from tests.corpus.lakes import MemoryLake
from tests.corpus.memory import MemoryTable, MemoryView
from tests.properties.comparing import difference, types

Step = tuple[Any, ...]
"""(verb, source, what): insert rows, delete or copy where, update (values, where)."""
INSERT = re.compile(r"insert into \{(\w+)\} (.+)", re.DOTALL)
DELETE = re.compile(r"delete from \{(\w+)\}(?: where (.+))?", re.DOTALL)
UPDATE = re.compile(r"update \{(\w+)\} set (.+?)(?: where (.+))?", re.DOTALL)
ASSIGNMENT = re.compile(r", (?=\w+ = )")


class World:
    """Sources in memory."""

    def __init__(
        self,
        spark: SparkSession,
        sources: Mapping[str, tuple[str, Sequence[Any]]] | None = None,
        declared: Mapping[str, SourceDeclaration] | None = None,
    ) -> None:
        """sources: for each name its schema and its first rows; declared: what some of them are declared to fulfil."""
        self.spark, self._declared = spark, declared or {}
        self._schemas, self.tables, self.invariant = dict[str, str](), dict[str, MemoryTable](), set[str]()
        for name, (schema, rows) in (sources or {}).items():
            self.source(name, schema, rows)

    def source(self, name: str, schema: str, rows: Sequence[Any], invariant: bool = False) -> None:
        """Create a table and declare it."""
        self._schemas[name], self.tables[name] = schema, MemoryTable(self.spark, name)
        self.do(("insert", name, rows))
        if invariant:
            self.invariant.add(name)

    def do(self, *steps: Step) -> None:
        """Do some steps, one after the other."""
        for verb, name, what, *more in steps:
            lake = MemoryLake(self.tables[name])
            match verb:
                case "insert":
                    lake.write(self.spark.createDataFrame(what, self._schemas[name]), "append")
                case "delete":
                    lake.delete(what)
                case "copy":
                    lake.copy(what)
                case "update":
                    lake.update(what, *more)
                case _:
                    raise ValueError(verb)

    def sql(self, text: str) -> None:
        """An INSERT, a DELETE or an UPDATE in which {name} is that source."""
        if found := INSERT.fullmatch(text):
            name, query = found.groups()
            lakes = {source: MemoryLake(self.tables[source]) for source in {name, *re.findall(r"\{(\w+)\}", query)}}
            frames: dict[str, Any] = {source: lake.rows() for source, lake in lakes.items()}
            lakes[name].write(self.spark.sql(query, **frames).toDF(*frames[name].columns), "append")
        elif found := DELETE.fullmatch(text):
            name, where = found.groups("true")
            self.do(("delete", name, where))
        elif found := UPDATE.fullmatch(text):
            name, values, where = found.groups("true")
            self.do(("update", name, dict(value.split(" = ", 1) for value in ASSIGNMENT.split(values)), where))
        else:
            raise ValueError(text)

    def view(self, query: Any, **options: Any) -> MemoryView:
        invariant = frozenset(self.invariant)
        return MemoryView(self.spark, query, self.tables, invariant, declared=self._declared, **options)


def checked(view: MemoryView) -> None:
    """Refresh, then compare with Spark's answer, types included."""
    view.refresh()
    expected, answer = view.expected(), view.answer()
    assert types(answer) == types(expected), view.sql
    found = difference(expected.collect(), answer.collect())
    assert not found, f"{view.sql}\n{found}"


def rows(view: MemoryView) -> list[tuple[Any, ...]]:
    """The answer as sorted plain tuples."""
    return sorted((tuple(row) for row in view.answer().collect()), key=repr)


def row(view: MemoryView) -> Row:
    """The answer's only row."""
    (only,) = view.answer().collect()
    return only
