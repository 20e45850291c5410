"""Define what pipeline.yaml may contain, as checked, frozen values.

    description: Sales per shop and day            optional
    group: marts                                   optional: of the dataset, in Dagster; so are
    owners: ["team:finance"]                       addresses or team:NAME
    tags: [nightly]                                which selections may name (tag:nightly)
    sources:                                       the tables of the query, by name; {} for a query of constants
      sales:
        files:                                     input files, landed per partition
          path: data/sales                         a folder; partition_by: day means data/sales/day=2013-01-01/*.csv
          format: csv                              csv, json, xml, text, parquet, orc or binary
          schema: id INT, amount DOUBLE, day DATE  Spark DDL, or a mapping from column to type
          partition_by: day                        optional
          options: {delimiter: ";"}                optional, Spark's reader options
          malformed: quarantine                    or fail, the default: a row that does not fit stops the landing
          quarantine_limit: 1000                   optional: more rows in quarantine stop the landing, too
          expire: {column: day, after: 30 days}    optional: close event time older than the newest by this much
      clicks:
        stream:                                    a stream of Spark's; each landing takes what has arrived
          format: json                             json, csv, text, parquet, orc, kafka, or another that Spark streams
          path: data/clicks                        of files: a folder to which files are moved, or a URI
          schema: id INT, page STRING              as of files; so are malformed and quarantine_limit
          options: {maxFilesPerTrigger: 100}       optional, Spark's options of the stream; a value may be ${VARIABLE}
          key: id                                  of a compacted Kafka topic: the column that is the messages' key
      shops:
        delta: s3a://lake/shops                    a Delta table, whoever writes it, by its path
        invariant: true                            never changes: no change of it is computed
        primary_key: shop                          one column or a list: never NULL, and no two rows share it
        foreign_keys: [{columns: area, source: areas}]   refer to the primary key of another source
        append_only: false                         true: rows are only added; checked, like keys, in each refresh
      rates:
        table: finance.rates                       a Delta table by its name in Spark's catalog, which has to outlive
                                                   the process: Hive, Unity or another, in `spark: {settings: …}`
      totals:
        view: other_pipeline                       the answer of another pipeline in this folder, refreshed first
    partitions: {kind: daily, start: 2013-01-01}   or {kind: dynamic}, the default where a source has partition_by
    datasets: datasets/*.sql                       optional, instead of query.sql: each file is a dataset, which may
                                                   read the others; see docs/how-to/pipelines.md for their options
    policy: incremental                            or auto (recompute where needed or quicker), or definition
    publish: auto                                  or plain, fast, table: see docs/how-to/readers.md
    table_properties: {team: sales}                optional, as is `cluster_by: [day]`: of the plain table
    publish_as: sales.totals                       optional: a SQL view in Spark's catalog that always shows the answer
    on_change: refuse                              or rebuild, if the query or a column it reads changed
    on_lost: refuse                                or rebuild, if a source lost what the last epoch read
    monoids:                                       optional: merges of values, called as top3(collect_list(amount))
      top3: {type: ARRAY<INT>, of: INT, zero: array(), unit: array(x),
             plus: "slice(sort_array(concat(a, b), false), 1, 3)"}
    args: ["100"]                                  optional, of query.mrql: what args[0], … stand for
    paths: {tmp/points.bin: points}                optional, of query.mrql: the source of each path that it names
    loops: {ranks: {key: id, residual: 1e-4}}      optional, of query.mrql: when a repeat ends
    chunk: 2g                                      optional: a larger change is split into chunks, each an epoch
    schedule: "0 6 * * *"                          optional, cron
    check: {sample: 1%, schedule: "0 4 * * 0"}     optional: in Dagster, compare this share with the batch query after
                                                   each refresh (100% by default), and all of it on a schedule
    maintain: "0 3 * * 0"                          optional, cron: compaction, and removal of old files
    show_rows_in_errors: false                     true: failures and checks in Dagster may show values of rows
    warehouse: ../.warehouse                       where state and answer are kept; also a URI
    spark:                                         optional, as are its keys
      memory: 2g
      master: "local[2]"
      settings: {spark.sql.shuffle.partitions: 4}
      warm: auto                                   use a Spark that `deltafold host` keeps, if any; or off, or required

Relative paths start at the pipeline's own folder. A path, or the name of a table, may contain `${VARIABLE}` or
`${VARIABLE:-default}`. The path of a Delta table and the warehouse may be URIs (`s3a://...`); input files are in local
folders. The warehouse has one folder per pipeline; by default it is `.warehouse` beside the pipelines' folder.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveFloat,
    StrictBool,
    model_validator,
)

from deltafold.algebra.plain_options import Publish
from deltafold.pipelines.declaration import cron
from deltafold.pipelines.declaration.sources import Columns, Source, check_references
from deltafold.pipelines.declaration.values import (
    CONTROL,
    Amount,
    Day,
    FolderOrStore,
    Master,
    Part,
    SourceName,
    SparkSettings,
    SqlName,
    check_share,
    day_of,
)

ViewPolicy = Literal["incremental", "auto", "definition"]
OF_DATASETS = {"description", "sources", "datasets", "partitions", "policy", "warehouse", "spark"}
# Dagster's rules for the assets of pipelines: an owner or a group that it rejects would stop the whole code location.
GROUP = re.compile(r"[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*\Z")
OWNER = re.compile(r"(team:[A-Za-z0-9_-]+|[A-Za-z0-9_][A-Za-z0-9._%+-]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,7})\Z")
TAG = re.compile(r"[A-Za-z0-9_.-]{1,63}\Z")
MONOID_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")


def _as_sql(value: object) -> object:
    """Convert numbers and truth values to SQL."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _as_name(name: str) -> str:
    if not MONOID_NAME.match(name):
        raise ValueError("invalid monoid name. Use a letter followed by letters, digits and _, at most 63 in all")
    return name


def _as_group(group: str) -> str:
    if not GROUP.match(group):
        raise ValueError(f"{group!r} is not a group. Use letters, digits and `_`, with `/` between parts")
    return group


def _as_owner(owner: str) -> str:
    if not OWNER.match(owner):
        raise ValueError(
            f"{owner!r} is not an owner. Write an address such as ada@example.org, whose last part has 2 to 7 letters "
            "as Dagster requires, or team:NAME"
        )
    return owner


def _as_tag(tag: str) -> str:
    if not TAG.match(tag):
        raise ValueError(f"{tag!r} is not a tag. Use letters, digits, `_`, `-` and `.`, at most 63 in all")
    return tag


SqlText = Annotated[str, BeforeValidator(_as_sql)]
MonoidName = Annotated[str, AfterValidator(_as_name)]


class MonoidPart(Part):
    """A merge of values in SQL, as in `Warehouse.monoid`; Spark checks it when the pipeline is opened."""

    type: str
    zero: SqlText
    plus: SqlText
    unit: SqlText | None = None
    inverse: SqlText | None = None
    of: str | None = None

    @model_validator(mode="after")
    def _is_not_empty(self) -> MonoidPart:
        if empty := next((name for name, text in self if isinstance(text, str) and not text.strip()), None):
            raise ValueError(f"`{empty}` is empty. Write SQL there, or remove it")
        return self


def _as_text(value: object) -> object:
    """Convert numbers to text: arguments of a program are strings."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class LoopPart(Part):
    """When a `repeat` ends: a residual, or an error with a contraction, by the numbers of rows with equal key."""

    key: Columns
    residual: PositiveFloat | None = None
    error: PositiveFloat | None = None
    contraction: PositiveFloat | None = None
    norm: Literal["sum", "mean", "max"] = "max"

    @model_validator(mode="after")
    def _one_end(self) -> LoopPart:
        if (self.residual is None) == (self.error is None) or (self.error is None) != (self.contraction is None):
            raise ValueError(
                "the loop has no end, or several: it is `residual`, or `error` with `contraction`. Write one of them"
            )
        return self


class ProgramPart(Part):
    """The keys of pipeline.yaml that are for query.mrql alone: arguments, sources of its paths, ends of its loops."""

    args: tuple[Annotated[str, BeforeValidator(_as_text)], ...] = ()
    paths: dict[str, str] = Field(default={})
    loops: dict[str, LoopPart] = Field(default={})

    @property
    def ends(self) -> dict[str, dict[str, Any]]:
        """Return how each loop ends, as arguments of `iterate`."""
        return {name: part.model_dump(exclude_none=True) for name, part in self.loops.items()}


class Partitions(Part):
    """Partitions of input files: one per day between start and end (both included), or any folder names (dynamic)."""

    kind: Literal["daily", "dynamic"]
    start: Day | None = None
    end: Day | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Partitions:
        if self.kind == "dynamic" and (self.start or self.end):
            raise ValueError("dynamic partitions have no start and no end. Remove them, or use kind: daily")
        if self.kind == "daily" and self.start is None:
            raise ValueError("daily partitions need a start. Add `start: 2013-01-01`, the first day there can be")
        if self.start and self.end and self.end < self.start:
            raise ValueError("the end lies before the start. Exchange them")
        return self

    def check(self, value: str) -> str:
        """Return the partition's value; raises ValueError, with a fix, if no partition can have it."""
        if not value or value in (".", "..") or CONTROL.search(value) or "/" in value or "\\" in value:
            raise ValueError(f"{value!r} is not a partition: it names no single folder. Give one name, without slashes")
        if self.kind == "dynamic" or self.start is None:
            return value
        day = day_of(value)
        if day is None:
            raise ValueError(
                f"{value!r} is not a day: the partitions are daily. Write one such as {self.start.isoformat()}"
            )
        if day < self.start or (self.end and day > self.end):
            until = f"to {self.end.isoformat()}" if self.end else "on"
            raise ValueError(
                f"{value} is outside the pipeline's partitions. Choose a day from {self.start.isoformat()} {until}, or "
                "change `partitions`"
            )
        return value


class Check(Part):
    """The share of a view that Dagster compares with the batch query after a refresh, and a schedule for all."""

    sample: Annotated[str, AfterValidator(check_share)] = "100%"
    schedule: Annotated[str, AfterValidator(cron.check_cron)] | None = None


class SparkPart(Part):
    """Spark for this pipeline: heap of the driver, master URL, further settings, use of a warm host."""

    memory: Amount | None = None
    master: Master | None = None
    settings: SparkSettings = Field(default={})
    warm: Literal["auto", "off", "required"] = "auto"


class DatasetPart(Part):
    """The options of one of several datasets: how it is refreshed, its SQL view, and its tags."""

    policy: ViewPolicy | None = None
    publish_as: SqlName | None = None
    tags: tuple[str, ...] = ()


class DatasetsPart(Part):
    """The files of SQL, each a dataset, and the options of some; files: a pattern, from the pipeline's folder."""

    files: str
    options: dict[SourceName, DatasetPart] = Field(default={})


def _as_files(value: object) -> object:
    return {"files": value} if isinstance(value, str) else value


class Declaration(ProgramPart):
    """The content of one pipeline.yaml, checked, with absolute paths."""

    description: str = ""
    group: Annotated[str, AfterValidator(_as_group)] | None = None
    owners: tuple[Annotated[str, AfterValidator(_as_owner)], ...] = ()
    tags: tuple[Annotated[str, AfterValidator(_as_tag)], ...] = ()
    sources: dict[SourceName, Source]
    partitions: Partitions | None = None
    datasets: Annotated[DatasetsPart, BeforeValidator(_as_files)] | None = None
    policy: ViewPolicy = "incremental"
    publish: Publish = "auto"
    table_properties: dict[str, str] = Field(default={})
    cluster_by: list[str] = Field(default=[])
    publish_as: SqlName | None = None
    on_change: Literal["refuse", "rebuild"] = "refuse"
    on_lost: Literal["refuse", "rebuild"] = "refuse"
    monoids: dict[MonoidName, MonoidPart] = Field(default={})
    chunk: Amount | None = None
    schedule: Annotated[str, AfterValidator(cron.check_cron)] | None = None
    maintain: Annotated[str, AfterValidator(cron.check_cron)] | None = None
    check: Check = Check()
    show_rows_in_errors: StrictBool = False
    warehouse: FolderOrStore | None = None
    spark: SparkPart = SparkPart()

    @property
    def partitioning(self) -> Partitions:
        """Return the partitions of the sources with partition_by: as declared, or dynamic."""
        return self.partitions or Partitions(kind="dynamic")

    @model_validator(mode="after")
    def _fits_datasets(self) -> Declaration:
        if self.datasets is not None and (others := sorted(self.model_fields_set - OF_DATASETS)):
            raise ValueError(f"`{others[0]}` is for a pipeline of one query, and this one has `datasets`. Remove it")
        return self

    @model_validator(mode="after")
    def _foreign_keys_refer_to_keys(self) -> Declaration:
        check_references(self.sources)
        return self

    @model_validator(mode="after")
    def _paths_are_of_sources(self) -> Declaration:
        if missing := next((source for source in self.paths.values() if source not in self.sources), None):
            raise ValueError(f"`paths` names `{missing}`, which is not a declared source. Declare it")
        return self

    @model_validator(mode="after")
    def _partitions_have_a_source(self) -> Declaration:
        if self.partitions and not any(source.files and source.files.partition_by for source in self.sources.values()):
            raise ValueError(
                "`partitions` is declared, but no source has `partition_by`. Add it to the source that is partitioned"
            )
        return self
