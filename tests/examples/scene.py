"""A warehouse in a fresh folder, with Delta tables written by plain Spark, and the check after each refresh."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

from incremental.api import Delta, Report, View, Warehouse
from tests.properties.comparing import difference, types


class Scene:
    """Sources, views and what tests do to them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.warehouse = Warehouse(spark, folder / "warehouse")

    def tune(self, **numbers: Any) -> None:
        """Give the warehouse other sizes and limits from now on."""
        self.warehouse.tuning = replace(self.warehouse.tuning, **numbers)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def source(self, name: str, schema: str, rows: list[Any], invariant: bool = False) -> None:
        """Create a Delta table and declare it."""
        self.insert(name, schema, rows)
        self.declare(name, invariant)

    def declare(self, name: str, invariant: bool = False) -> None:
        """Declare a Delta table that is there."""
        self.warehouse.source(name, Delta(self.path(name), invariant=invariant))

    def insert(self, name: str, schema: str, rows: list[Any], mode: str = "append") -> None:
        frame = self.spark.createDataFrame(rows, schema).coalesce(1)
        frame.write.format("delta").mode(mode).option("delta.enableDeletionVectors", "true").save(self.path(name))

    def sql(self, text: str) -> None:
        """Run SQL in which {name} is the Delta table of that source."""
        known = {path.name: f"delta.`{path}`" for path in self.folder.iterdir()}
        self.spark.sql(text.format(**known)).collect()

    def vacuum(self, name: str) -> None:
        """Remove the files of older versions of a source at once, as Delta allows where its check is off."""
        check = "spark.databricks.delta.retentionDurationCheck.enabled"
        self.spark.conf.set(check, "false")
        self.sql(f"vacuum {{{name}}} retain 0 hours")
        self.spark.conf.unset(check)

    def view(self, query: Any, name: str = "v", **options: Any) -> View:
        return self.warehouse.view(name, query, **options)


def checked(view: View, **options: Any) -> Report:
    """Refresh, then compare with the batch query."""
    report = view.refresh(**options)
    confirm(view)
    return report


def confirm(view: View) -> None:
    """The answer has the batch query's rows and types; independent of the product's own verifier."""
    expected = view.batch()
    answer = view.answer()
    assert types(answer) == types(expected)
    found = difference(expected.collect(), answer.collect())
    assert not found, found


def rows(view: View) -> list[tuple[Any, ...]]:
    """The answer as sorted plain tuples."""
    return sorted((tuple(row) for row in view.answer().collect()), key=repr)


def row(view: View) -> Row:
    """The answer's only row."""
    (only,) = view.answer().collect()
    return only
