"""Sources in memory, what is done to them, and the check after each refresh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from incremental.algebra.sources import SourceDeclaration
from tests.corpus.lakes import MemoryLake
from tests.corpus.memory import MemoryTable, MemoryView
from tests.properties.comparing import difference

Step = tuple[Any, ...]
"""(verb, source, what): insert rows, delete or copy where, update (values, where)."""


class World:
    """Sources in memory."""

    def __init__(
        self,
        spark: SparkSession,
        sources: Mapping[str, tuple[str, Sequence[Any]]],
        declared: Mapping[str, SourceDeclaration] | None = None,
    ) -> None:
        """sources: for each name its schema and its first rows; declared: what some of them are declared to fulfil."""
        self._declared = declared or {}
        self.spark, self._schemas = spark, {name: schema for name, (schema, _) in sources.items()}
        self.tables = {name: MemoryTable(spark, name) for name in sources}
        for name, (_, rows) in sources.items():
            self.do(("insert", name, rows))

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

    def view(self, query: Any, **options: Any) -> MemoryView:
        return MemoryView(self.spark, query, self.tables, declared=self._declared, **options)


def checked(view: MemoryView) -> None:
    """Refresh, then compare with Spark's answer."""
    view.refresh()
    found = difference(view.expected().collect(), view.answer().collect())
    assert not found, f"{view.sql}\n{found}"


def rows(view: MemoryView) -> list[tuple[Any, ...]]:
    """The answer as sorted plain tuples."""
    return sorted((tuple(row) for row in view.answer().collect()), key=repr)
