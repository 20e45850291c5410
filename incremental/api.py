"""The whole public surface: Warehouse and View. In: sources and batch queries. Out: maintained views and their reports.

wh = Warehouse(spark, root)
wh.source("orders", Delta(path))
view = wh.view("totals", "select customer, sum(price) total from orders group by customer")
view.refresh()
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from incremental.algebra.constraints import Constraint
from incremental.algebra.errors import DeltafoldError, SourceError
from incremental.algebra.report import Description, Landing, Report, Verification
from incremental.algebra.sources import Delta, Files, ForeignKey, SourceDeclaration, declared, is_name
from incremental.algebra.upkeep import Status, Upkeep
from incremental.compilation import OnChange, Policy, check_options
from incremental.compiler.strategy import Publish
from incremental.lake.table import Table
from incremental.language.query import QueryText
from incremental.refresh.source_catalog import Declared
from incremental.spark.session import start
from incremental.view import View


class Warehouse:
    """A folder of landed sources, states and views.

    spark: a session with Delta; root: a local folder, made when needed.
    """

    def __init__(self, spark: SparkSession, root: str | Path) -> None:
        self.spark, self.root = spark, Path(root).absolute()
        self._declared = Declared(spark, self.root)
        self._views: dict[str, View] = {}

    def source(self, name: str, declaration: SourceDeclaration | View) -> None:
        """Declare a source under the name queries use; a name can be declared once. Raises SourceError.

        A view, of this or another warehouse, is a source by its answer, for the views that are made after this.
        """
        if not is_name(name):
            raise SourceError(f"{name!r} is no name for a source: use letters, digits and underscores")
        if name.lower() in {known.lower() for known in (*self._declared.sources, *self._views)}:
            raise SourceError(f"source {name} is declared twice (Spark does not tell a from A in names)")
        if isinstance(declaration, View):
            self._views[name] = declaration
        else:
            self._declared.sources[name] = declared(name, declaration)

    def land(self, name: str, partitions: Sequence[str] | None = None) -> Landing:
        """Bring dropped files into the source's table: the named partitions, or all that changed.

        Raises SourceError for an unknown source or partition, and for malformed rows that are not quarantined.
        """
        return self._source(name).landings(name).land(partitions)

    def replay(self, name: str) -> Landing:
        """Land the partitions of a source that have rows in quarantine again, by the schema that is declared now.

        Where the landed table has another schema, it takes this one and is landed anew. Raises SourceError as `land`.
        """
        return self._source(name).landings(name).replay()

    def quarantine(self, name: str) -> DataFrame:
        """The rows of dropped files that did not fit: partition, file, line, row, reason, quarantined_at."""
        return self._source(name).landings(name).quarantine.rows()

    def partitions(self, name: str) -> tuple[str, ...]:
        """The partitions of a source that have been dropped or landed, in order; raises SourceError."""
        return self._source(name).landings(name).partitions()

    def version(self, name: str) -> int | None:
        """The latest Delta version of a source that is no view, None while it has no data."""
        return self._source(name).table(name).version()

    def view(
        self,
        name: str,
        query: QueryText,
        policy: Policy = "incremental",
        publish: Publish = "auto",
        on_change: OnChange = "refuse",
    ) -> View:
        """A view of a query: SQL text, or a function of the sources' DataFrames that returns one.

        on_change: what a refresh does when the query, the schema of what it reads, or Spark's settings are others than
        the state was built with: `refuse`, or `rebuild` the view beside the old one, which readers keep meanwhile.
        Raises QueryError for a name or an option that cannot be. The query is read when the view is first used: what
        Spark cannot analyse is a QueryError then, a source without data a SourceError.
        """
        check_options(name, policy, publish, on_change)
        return View(self, name, query, policy, publish, dict(self._views), on_change)

    def tables(self) -> dict[str, Table]:
        """The Delta table of every declared source that is no view."""
        return self._declared.tables()

    def schemas(self) -> dict[str, StructType]:
        """The schema of every declared source that is no view and has one by now."""
        return self._declared.schemas()

    def partitioned_by(self) -> dict[str, tuple[str, ...]]:
        """The partition columns of every declared source that is no view and has some by now."""
        return self._declared.partitioned_by()

    def invariant(self) -> frozenset[str]:
        """The sources declared not to change."""
        return frozenset(name for name, declaration in self._declared.sources.items() if declaration.invariant)

    def constraints(self, read: Collection[str]) -> tuple[Constraint, ...]:
        """What is declared of the sources that a query reads; raises SourceError where it does not fit them."""
        return self._declared.constraints(read)

    def quarantined(self) -> dict[str, int]:
        """How many rows of each landed source are in quarantine, where there are any; runs no query."""
        return self._declared.quarantined()

    def _source(self, name: str) -> Declared:
        """The declared sources, if this is no view."""
        if name in self._views:
            raise SourceError(f"source {name} is the view {self._views[name].name}: refresh that, or what reads it")
        return self._declared


__all__ = [
    "Delta", "DeltafoldError", "Description", "Files", "ForeignKey", "Landing", "Policy", "Report", "Status",
    "Upkeep", "Verification", "View", "Warehouse", "start",
]  # fmt: skip
