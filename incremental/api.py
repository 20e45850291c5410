"""The public interface: a Warehouse of sources and views.

wh = Warehouse(spark, root)
wh.source("orders", Delta(path))          # or Delta(table="catalog.schema.orders")
view = wh.view("totals", "select customer, sum(price) total from orders group by customer")
view.refresh()
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from incremental.algebra.errors import DeltafoldError, QueryError, SourceError
from incremental.algebra.local_path import local_path
from incremental.algebra.results.address import Address, is_same_name, sql_name_fault
from incremental.algebra.results.report import Description, Landing, Report, Verification
from incremental.algebra.results.upkeep import Status, Upkeep
from incremental.algebra.secrets import mask_secrets
from incremental.algebra.sources import Delta, Files, ForeignKey, SourceDeclaration, is_name
from incremental.algebra.tuning import Tuning
from incremental.compilation import OnChange, Policy, check_options
from incremental.compiler.draft import Publish
from incremental.lake.delta import DELTA
from incremental.lake.protocol import Lake, Table
from incremental.language.loops.functions import fixpoint, iterate, nearest
from incremental.language.mrql.program.query import Mrql
from incremental.language.query import QueryText
from incremental.operations.declared_views import remember
from incremental.refresh.source_catalog import Declared
from incremental.resolution import SourceCatalog
from incremental.spark import catalyst
from incremental.spark.session import start
from incremental.view import View


class Warehouse:
    """A folder of landed sources, states and views.

    spark: a session with Delta; root: a local folder, made when needed; tuning: sizes and limits of its refreshes;
    lake: where tables are, Delta unless a test says otherwise. Raises SourceError for a root that is a URI other
    than `file:`.
    """

    def __init__(
        self, spark: SparkSession, root: str | Path, tuning: Tuning | None = None, lake: Lake | None = None
    ) -> None:
        self.spark, self.root = spark, local_path("warehouse", root)
        self.tuning, self.lake = tuning or Tuning(), lake or DELTA
        if self.lake is DELTA:
            check_default_file_system(spark, self.root)
        self._catalog = SourceCatalog(Declared(spark, self.root, self.lake), {})
        self._published: dict[str, str] = {}  # SQL views by the view whose answer they show
        self._made: dict[str, View] = {}  # kept for those that they read: see remember

    def source(self, name: str, declaration: SourceDeclaration | View) -> None:
        """Declare a source under the name queries use; a name can be declared once. Raises SourceError.

        A view, of this or another warehouse, is a source by its answer, for the views that are made after this.
        """
        if not is_name(name):
            raise SourceError(f"invalid source name {name!r}. Use letters, digits and underscores.")
        if name.lower() in {known.lower() for known in self._catalog.names}:
            raise SourceError(f"source {name} is declared twice (names differ by more than case). Choose another name.")
        if isinstance(declaration, View):
            self._catalog.views[name] = declaration
        else:
            self._catalog.declared.add(name, declaration)

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
        publish_as: str | None = None,
    ) -> View:
        """A view of a query: SQL text, `Mrql(text)`, or a function of the sources' DataFrames that returns one.

        on_change: what a refresh does when the query, the schema of what it reads, or Spark's settings are others than
        the state was built with: `refuse`, or `rebuild` the view beside the old one, which readers keep meanwhile.
        publish_as: a SQL view, `database.view`, that always shows the current answer; refreshes keep it so.
        Raises QueryError for a name or an option that cannot be. The query is read when the view is first used: what
        Spark cannot analyse is a QueryError then, a source without data a SourceError.
        """
        check_options(name, policy, publish, on_change)
        self._check_published(name, publish_as)
        made = View(self, name, query, policy, publish, self._catalog.of_now(), on_change, publish_as)
        self._made[name] = made
        remember(made)
        return made

    def forget(self, name: str) -> None:
        """Let another view be published as the one of this name was."""
        self._published.pop(name, None)

    def _check_published(self, name: str, publish_as: str | None) -> None:
        """Refuse what cannot name a SQL view, or names that of another view of this warehouse."""
        self.forget(name)
        if publish_as is None:
            return
        if fault := sql_name_fault(publish_as):
            raise QueryError(f"publish_as of view {name}: {fault}.")
        if other := next((view for view, sql in self._published.items() if is_same_name(sql, publish_as)), None):
            raise QueryError(
                f"views {other} and {name} are both published as {publish_as}. Choose another name for one."
            )
        self._published[name] = publish_as

    def tables(self) -> dict[str, Table]:
        """The Delta table of every declared source that is no view."""
        return self._catalog.declared.tables()

    def quarantined(self) -> dict[str, int]:
        """How many rows of each landed source are in quarantine, where there are any; runs no query."""
        return self._catalog.declared.quarantined()

    def _source(self, name: str) -> Declared:
        """The declared sources, if this is no view."""
        if view := self._catalog.views.get(name):
            raise SourceError(f"source {name} is the view {view.name}. Refresh that, or what reads it.")
        return self._catalog.declared


def check_default_file_system(spark: SparkSession, root: Path) -> None:
    """Raise SourceError where Spark would look for a path without a scheme elsewhere than on this machine."""
    default = catalyst.default_file_system(spark)
    if not default.startswith("file:"):
        raise SourceError(
            f"warehouse {root}: Spark would put its tables on {mask_secrets(default)}, the default file system. "
            "Set spark.hadoop.fs.defaultFS to file:///, and name tables on other file systems by their whole URI."
        )


__all__ = [
    "Address", "Delta", "DeltafoldError", "Description", "Files", "ForeignKey", "Landing", "Mrql", "Policy", "Report",
    "Status", "Tuning", "Upkeep", "Verification", "View", "Warehouse", "fixpoint", "iterate", "nearest", "start",
]  # fmt: skip
