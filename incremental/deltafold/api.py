"""Define the public interface: a Warehouse of sources and views.

wh = Warehouse(spark, root)
wh.source("orders", Delta(path))          # or Delta(table="catalog.schema.orders")
view = wh.view("totals", "select customer, sum(price) total from orders group by customer")
view.refresh()
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.errors import (
    BusyError,
    CatalogError,
    ChangedQueryError,
    DeltafoldError,
    DeltafoldWarning,
    LostSparkError,
    NotConvergedError,
    QueryError,
    RefusedError,
    SourceError,
    StateError,
    StorageError,
    UsageError,
)
from deltafold.algebra.local_path import is_remote, is_uri, locate_folder
from deltafold.algebra.monoids.declared import DeclaredMonoid
from deltafold.algebra.plain_options import PlainOptions, Publish
from deltafold.algebra.results import html
from deltafold.algebra.results.address import Address
from deltafold.algebra.results.pipeline_report import DatasetResult, PipelineReport
from deltafold.algebra.results.report import Description, Landing, Report, Verification
from deltafold.algebra.results.upkeep import Status, Upkeep
from deltafold.algebra.secrets import INSTEAD, has_password, mask_secrets
from deltafold.algebra.sources import Delta, Expire, External, Files, ForeignKey, SourceDeclaration, Stream, is_name
from deltafold.algebra.tuning import Tuning
from deltafold.compilation import Policy, Remedy, check_options
from deltafold.display import show_progress
from deltafold.lake.delta_table import DELTA
from deltafold.lake.iceberg import Iceberg
from deltafold.lake.protocol import Lake, VersionedTable
from deltafold.lake.records import records_at
from deltafold.lake.remote.remote_path import Place, place_of
from deltafold.language.loops.functions import fixpoint, iterate, nearest
from deltafold.language.monoids import analyse_monoid, register_monoids
from deltafold.language.mrql.program.query import Mrql
from deltafold.language.query import QueryText
from deltafold.operations.branch import remember
from deltafold.operations.openlineage import Job, name_pipeline, open_run
from deltafold.refresh.pipeline_run import refresh_datasets
from deltafold.refresh.sources.source_catalog import Declared
from deltafold.refresh.sources.upstream import Progress
from deltafold.resolution import Resolver, SourceCatalog
from deltafold.spark import catalyst
from deltafold.spark.connect import check_session
from deltafold.spark.lost import explain_lost_spark
from deltafold.spark.session import start
from deltafold.spark.threads import choose_threads
from deltafold.view import View


class Warehouse:
    """A folder of landed sources, states and views.

    spark: a session with Delta; root: a folder on this machine, or at a URI (`s3a://bucket/folder`) of a file system
    that Spark knows, created when needed; tuning: sizes and limits of its refreshes; lake: Delta, except in tests.
    Raises SourceError for a root that cannot be one, and StorageError for a store that does not answer.
    """

    def __init__(
        self, spark: SparkSession, root: str | Place, tuning: Tuning | None = None, lake: Lake | None = None
    ) -> None:
        self.spark = spark
        self.root = locate_root(root)
        check_arguments(spark, self.root)
        if tuning is not None and not isinstance(cast(object, tuning), Tuning):
            raise UsageError(f"tuning: {tuning!r} is not valid. Give a Tuning, such as Tuning(buckets=16).")
        self.tuning = tuning or Tuning()
        self.lake = lake or DELTA
        if self.lake is DELTA:
            check_default_file_system(spark, self.root)
        self._catalog = SourceCatalog(
            Declared(spark=spark, root=self.root, lake=self.lake, lock_seconds=self.tuning.landing_lock_seconds), {}
        )

    def __repr__(self) -> str:
        return f"<Warehouse: {self.root}>"

    def _repr_html_(self) -> str:
        return html.warehouse(str(self.root), [_summary(view) for view in self.views.values()])

    def source(self, name: str, declaration: SourceDeclaration | View) -> None:
        """Declare a source under the name queries use; a name can be declared once. Raises SourceError.

        A view, of this or another warehouse, is a source with its answer, for the views that are created after this.
        """
        if not is_name(name):
            raise SourceError(f"source {name!r}: invalid name. Use at most 128 letters, digits and underscores.")
        if name.lower() in {source.lower() for source in self._catalog.names}:
            raise SourceError(
                f"source {name}: declared twice (names that differ only in case are the same). Choose another name."
            )
        if isinstance(declaration, View):
            self._catalog.views[name] = declaration
        else:
            self._catalog.declared.add(name, declaration)

    def monoid(
        self,
        name: str,
        type: str,
        zero: str,
        plus: str,
        unit: str | None = None,
        inverse: str | None = None,
        of: str | None = None,
    ) -> None:
        """Declare a merge of values, which queries of later views call as `name(collect_list(value))`.

        type: Spark's type of merged values; zero: SQL of the value for no values; plus: SQL of the merge of `a` and
        `b`, associative and commutative; unit: SQL of the value of one collected value `x`, by default `x` itself;
        inverse: SQL of the value that cancels `a`, without which deletions recompute their groups; of: the type of
        collected values, by default `type`. The SQL function `name` is created in the session, so Spark runs such a
        query as it is. The laws are sampled on real values in every refresh of a view. Raises QueryError.
        """
        if name.lower() in self._catalog.monoids:
            raise QueryError(
                f"monoid {name}: declared twice (names that differ only in case are the same). Choose another name."
            )
        declared = analyse_monoid(
            self.spark, DeclaredMonoid(name=name, type=type, zero=zero, plus=plus, unit=unit, inverse=inverse, of=of)
        )
        register_monoids(self.spark, [declared])
        self._catalog.monoids[name.lower()] = declared

    def land(self, name: str, partitions: Sequence[str] | None = None) -> Landing:
        """Land input files in the source's table: the named partitions, or all that changed; or what has arrived.

        Raises SourceError for an unknown source or partition, and for malformed rows that are not quarantined.
        """
        with explain_lost_spark():
            return self._declared_for(name).lander(name).land(partitions)

    def replay(self, name: str, *, allow_loss: bool = False) -> Landing:
        """Land the partitions of a source that have rows in quarantine again, by the current schema.

        If the landed table has another schema, it is replaced and landed completely. A stream is landed again from its
        beginning: what it still has replaces all landed rows; allow_loss: even if it has fewer records than were
        landed. Raises SourceError as `land`.
        """
        with explain_lost_spark():
            return self._declared_for(name).lander(name).replay(allow_loss=allow_loss)

    def quarantine(self, name: str) -> DataFrame:
        """Return the rows of input files that did not fit: partition, file, line, row, reason, quarantined_at."""
        return self._declared_for(name).lander(name).quarantine.rows()

    def partitions(self, name: str) -> tuple[str, ...]:
        """Return the partitions of a source that have files or are landed, in order; raises SourceError."""
        return self._declared_for(name).lander(name).partitions()

    def version(self, name: str) -> int | None:
        """Return the latest Delta version of a source, None while it has no data; raises SourceError for a view."""
        return self._declared_for(name).table(name).version()

    def schema(self, name: str) -> StructType | None:
        """Return the schema of a source: declared for input files, None without a table; SourceError for a view."""
        return self._declared_for(name).schema(name)

    def view(
        self,
        name: str,
        query: QueryText,
        policy: Policy = "incremental",
        publish: Publish = "auto",
        on_change: Remedy = "refuse",
        publish_as: str | None = None,
        on_lost: Remedy = "refuse",
        *,
        comment: str = "",
        table_properties: Mapping[str, str] | None = None,
        cluster_by: Sequence[str] = (),
        origin: str = "",
    ) -> View:
        """Return a view of a query: SQL text, `Mrql(text)`, or a function of the sources' DataFrames that returns one.

        on_change: the reaction of a refresh if the query, the schema of a source, or Spark's settings differ from those
        of the state: `refuse`, or `rebuild` the view beside the old one, which readers keep meanwhile.
        publish_as: a SQL view, `database.view`, that always selects the current answer; refreshes update it.
        on_lost: likewise, if a source no longer has what the last epoch read: a vacuumed version, a table that was
        dropped and created again, or restored from a copy.
        publish: `plain`, as a plain Delta table too, which any engine reads and each refresh rewrites; `auto` while it
        is small; `fast`, never; `table`, as `auto`, and no column of a state is beside the answer.
        comment, table_properties, cluster_by: of the plain table.
        origin: where the query is from, such as a file, with which errors about the query begin.

        Raises UsageError for an invalid name, query or option, and QueryError for a `publish_as` that is invalid or
        taken. The query is analysed when the view is first used: then a query that Spark cannot analyse raises
        QueryError, and a source without data SourceError.
        """
        properties = tuple(sorted((table_properties or {}).items()))
        clustering = (cluster_by,) if isinstance(cluster_by, str) else tuple(cluster_by)
        plain_options = PlainOptions(comment=comment, properties=properties, cluster_by=clustering)
        check_options(name, query, policy, publish, on_change, on_lost)
        if fault := plain_options.fault(publish):
            raise UsageError(f"view {name}: {fault}.")
        self._check_case(name)
        self._catalog.sql_names.claim(name, publish_as)
        made = View(
            warehouse=self,
            name=name,
            query=query,
            policy=policy,
            publish=publish,
            catalog=self._catalog.of_now(),
            on_change=on_change,
            publish_as=publish_as,
            on_lost=on_lost,
            plain_options=plain_options,
            origin=origin,
        )
        self._catalog.made[name] = made  # referenced as long as this warehouse exists: see `remember`
        remember(made)
        return made

    def refresh(
        self,
        *names: str,
        full: Collection[str] = (),
        progress: Progress | None = None,
        threads: int | None = None,
        only: bool = False,
    ) -> PipelineReport:
        """Refresh all views of this warehouse, or these and all that they read, as one pipeline.

        The version of each source is looked up once, and all are refreshed to it, each after those that it reads. A
        view that fails, for whatever reason, is in the report, and those that read it are skipped; the next run begins
        with these. full: the names of views to rebuild; threads: the number of views that are refreshed at the same
        time, by default one per core, at most four; only: all other views are not refreshed, but read as their last
        epoch left them. Raises UsageError for an unknown name, and LostSparkError.
        """
        views = self.views
        if unknown := sorted({*names, *full} - views.keys()):
            raise UsageError(
                f"view {unknown[0]}: it is not declared in this warehouse. Choose one of: {', '.join(views) or 'none'}."
            )
        number = choose_threads(threads)
        job = Job(name=name_pipeline(self.root))
        with explain_lost_spark(), show_progress(progress) as step, open_run(lambda: job) as run:
            chosen = dict.fromkeys((*names, *full)) if names else views
            datasets = Resolver(run).datasets(self, chosen, full, only=only)
            run.report = report = refresh_datasets(datasets, step, self.spark, number)
            return report

    @property
    def views(self) -> Mapping[str, View]:
        """The declared views by name, in the order of their declaration."""
        return MappingProxyType(self._catalog.made)

    def tables(self) -> dict[str, VersionedTable]:
        """Return the table of every declared source, views excluded."""
        return self._catalog.declared.tables()

    def quarantined(self) -> dict[str, int]:
        """Return the number of rows in quarantine by source, zeros left out; runs no query."""
        return self._catalog.declared.quarantined()

    def _check_case(self, name: str) -> None:
        """Raise UsageError for a view whose name differs only in case: some file systems have one folder for both."""
        views = {*self._catalog.made, *records_at(self.root / "views").folders()}
        if other := next((view for view in views if view != name and view.lower() == name.lower()), None):
            raise UsageError(
                f"view {name}: there is a view {other} (names that differ only in case are the same). "
                "Choose another name, or write it in the same way."
            )

    def _declared_for(self, name: str) -> Declared:
        """Return the declared sources, for one of these names; raises SourceError if the name is a view's."""
        if view := self._catalog.views.get(name):
            raise SourceError(
                f"source {name}: it is the view {view.name}, which is not landed. Refresh that, or what reads it."
            )
        return self._catalog.declared


def _summary(view: View) -> str:
    """Return the status of a view in one sentence, or why it has none."""
    try:
        return view.status().sentence
    except DeltafoldError as error:
        return f"{view.name}: {error}"


def locate_root(root: str | Place) -> Place:
    """Return the folder of a warehouse; raises SourceError for an address that cannot be one."""
    address = locate_folder("warehouse", str(root) if isinstance(root, Place) else root)
    if is_remote(address) and has_password(address):
        raise SourceError(f"warehouse {mask_secrets(address)}: the address contains a password. {INSTEAD}.")
    return place_of(address)


def check_arguments(spark: object, root: Place) -> None:
    """Raise UsageError for anything but a classic Spark session, SourceError for a root that cannot be a folder."""
    check_session(f"warehouse {root}", spark)
    if not isinstance(spark, SparkSession):
        raise UsageError(
            f"warehouse {root}: {type(spark).__name__} is not a Spark session. Pass one with Delta, such as start()."
        )
    records_at(root).check_root()


def check_default_file_system(spark: SparkSession, root: Place) -> None:
    """Raise SourceError if Spark's default file system, for a root without a scheme, is not this machine's."""
    if is_uri(str(root)):
        return
    default = catalyst.default_file_system(spark)
    if not default.startswith("file:"):
        raise SourceError(
            f"warehouse {root}: Spark would put its tables on {mask_secrets(default)}, the default file system. "
            "Set spark.hadoop.fs.defaultFS to file:///, and name tables on other file systems by their whole URI."
        )


__all__ = [
    "Address", "BusyError", "CatalogError", "ChangedQueryError", "DatasetResult", "Delta", "DeltafoldError",
    "DeltafoldWarning", "Description", "Expire", "External", "Files", "ForeignKey", "Iceberg", "Landing",
    "LostSparkError", "Mrql", "NotConvergedError", "PipelineReport", "Policy", "QueryError", "RefusedError", "Report",
    "SourceError", "StateError", "Status", "StorageError", "Stream", "Tuning", "Upkeep", "UsageError", "Verification",
    "View", "Warehouse", "fixpoint", "iterate", "nearest", "start",
]  # fmt: skip
