"""Define what pipeline.yaml may contain, as checked, frozen values.

    description: Sales per shop and day            optional
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
    policy: incremental                            or auto (recompute where needed or quicker), or definition
    publish: auto                                  or table
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

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictBool, model_validator

from deltafold.pipelines.declaration import cron, sizes
from deltafold.pipelines.declaration.constraints import check_references
from deltafold.pipelines.declaration.monoids import MonoidName, MonoidPart
from deltafold.pipelines.declaration.places import CONTROL, FolderOrStore, SqlName
from deltafold.pipelines.declaration.program import ProgramPart, check_paths
from deltafold.pipelines.declaration.sources import Source
from deltafold.pipelines.declaration.values import Amount, Day, Master, Part, SourceName, SparkSettings, day_of


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

    sample: Annotated[str, AfterValidator(sizes.check_share)] = "100%"
    schedule: Annotated[str, AfterValidator(cron.check_cron)] | None = None


class SparkPart(Part):
    """Spark for this pipeline: heap of the driver, master URL, further settings, use of a warm host."""

    memory: Amount | None = None
    master: Master | None = None
    settings: SparkSettings = Field(default={})
    warm: Literal["auto", "off", "required"] = "auto"


class Declaration(ProgramPart):
    """The content of one pipeline.yaml, checked, with absolute paths."""

    description: str = ""
    sources: dict[SourceName, Source]
    partitions: Partitions | None = None
    policy: Literal["incremental", "auto", "definition"] = "incremental"
    publish: Literal["auto", "table"] = "auto"
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
    def cut(self) -> Partitions:
        """Return the partitions of the sources with partition_by: as declared, or dynamic."""
        return self.partitions or Partitions(kind="dynamic")

    @model_validator(mode="after")
    def _foreign_keys_refer_to_keys(self) -> Declaration:
        sources = self.sources.items()
        check_references({n: s.primary_key for n, s in sources}, {n: s.foreign_keys for n, s in sources})
        return self

    @model_validator(mode="after")
    def _paths_are_of_sources(self) -> Declaration:
        check_paths(self.paths, self.sources)
        return self

    @model_validator(mode="after")
    def _partitions_cut_something(self) -> Declaration:
        if self.partitions and not any(source.files and source.files.partition_by for source in self.sources.values()):
            raise ValueError(
                "`partitions` is declared, but no source has `partition_by`. Add it to the source that is partitioned"
            )
        return self
