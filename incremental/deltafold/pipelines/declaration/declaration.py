"""Define what pipeline.yaml may contain, as checked, frozen values.

The text below a field is what the JSON Schema (json_schema.py) and the reference show of its key. The reference page,
docs/reference/pipeline-yaml.md, begins with an example that has every key.

Relative paths start at the pipeline's own folder. A path, or the name of a table, may contain `${VARIABLE}` or
`${VARIABLE:-default}`. The path of a Delta table and the warehouse may be URIs (`s3a://...`). The warehouse has one
folder per pipeline; by default it is `.warehouse` beside the pipelines' folder.
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
OF_DATASETS = {
    "description", "group", "owners", "sources", "datasets", "partitions", "policy", "check", "show_rows_in_errors",
    "warehouse", "spark",
}  # fmt: skip
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


SqlText = Annotated[str, BeforeValidator(_as_sql, json_schema_input_type=str | float | bool)]
MonoidName = Annotated[str, AfterValidator(_as_name)]


class MonoidPart(Part):
    """A merge of values in SQL, as in `Warehouse.monoid`; Spark checks it when the pipeline is opened."""

    type: str
    """Spark's type of the merged values."""
    zero: SqlText
    """SQL: the value of no values, such as `array()`."""
    plus: SqlText
    """SQL: the merge of `a` and `b`, associative and commutative."""
    unit: SqlText | None = None
    """SQL: the value of one collected `x`; by default `x` itself."""
    inverse: SqlText | None = None
    """SQL: the value that cancels `a`; without one, deletions recompute their groups."""
    of: str | None = None
    """The type of collected values; by default `type`."""

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
    """The columns that identify a row of the loop."""
    residual: PositiveFloat | None = None
    """The loop ends when one more step changes it by no more than this."""
    error: PositiveFloat | None = None
    """The loop ends when it is within this of its fixpoint; needs `contraction`."""
    contraction: PositiveFloat | None = None
    """The factor, below 1, to which each step shrinks every difference."""
    norm: Literal["sum", "mean", "max"] = "max"
    """How the differences of a step are summed up."""

    @model_validator(mode="after")
    def _one_end(self) -> LoopPart:
        if (self.residual is None) == (self.error is None) or (self.error is None) != (self.contraction is None):
            raise ValueError(
                "the loop has no end, or several: it is `residual`, or `error` with `contraction`. Write one of them"
            )
        return self


class ProgramPart(Part):
    """The keys of pipeline.yaml that are for query.mrql alone: arguments, sources of its paths, ends of its loops."""

    args: tuple[Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | float)], ...] = ()
    """Of query.mrql: the values of `args[0]`, `args[1]` and so on."""
    paths: dict[str, str] = Field(default={})
    """Of query.mrql: the source of each path that the program names."""
    loops: dict[str, LoopPart] = Field(default={})
    """Of query.mrql: when each `repeat` ends."""

    @property
    def ends(self) -> dict[str, dict[str, Any]]:
        """Return how each loop ends, as arguments of `iterate`."""
        return {name: part.model_dump(exclude_none=True) for name, part in self.loops.items()}


class Partitions(Part):
    """Partitions of input files: one per day between start and end (both included), or any folder names (dynamic)."""

    kind: Literal["daily", "dynamic"]
    """`daily`, or `dynamic` for any folder names."""
    start: Day | None = None
    """The first day that there can be."""
    end: Day | None = None
    """The last day; by default there is none."""

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
    """The share of keys that Dagster compares with the batch query after each refresh."""
    schedule: Annotated[str, AfterValidator(cron.check_cron)] | None = None
    """A cron expression for comparing all keys."""


class SparkPart(Part):
    """Spark for this pipeline: heap of the driver, master URL, further settings, use of a warm host."""

    memory: Amount | None = None
    """The heap of Spark's driver, such as `2g`."""
    master: Master | None = None
    """The master URL, such as `local[2]` or `spark://host:7077`."""
    settings: SparkSettings = Field(default={})
    """Further settings of Spark; secrets are rejected."""
    warm: Literal["auto", "off", "required"] = "auto"
    """Whether to use a Spark that `deltafold host` keeps: if there is one, never, or always."""


class DatasetPart(Part):
    """The options of one of several datasets: how it is refreshed, its SQL view, and its tags."""

    policy: ViewPolicy | None = None
    """How it is refreshed; by default as the pipeline."""
    publish_as: SqlName | None = None
    """A SQL view, `database.view`, that shows its answer."""
    tags: tuple[str, ...] = ()
    """What selections may name, `tag:nightly`."""


class DatasetsPart(Part):
    """The files of SQL, each a dataset, and the options of some; files: a pattern, from the pipeline's folder."""

    files: str
    """The files of SQL, as a pattern from the pipeline's folder."""
    options: dict[SourceName, DatasetPart] = Field(default={})
    """The options of single datasets, by name."""


def _as_files(value: object) -> object:
    return {"files": value} if isinstance(value, str) else value


class Declaration(ProgramPart):
    """The content of one pipeline.yaml, checked, with absolute paths."""

    description: str = ""
    """What the answer is; the comment of its table."""
    group: Annotated[str, AfterValidator(_as_group)] | None = None
    """The group of the asset in Dagster: letters, digits, `_` and `/`."""
    owners: tuple[Annotated[str, AfterValidator(_as_owner)], ...] = ()
    """Addresses or `team:NAME`, shown in Dagster."""
    tags: tuple[Annotated[str, AfterValidator(_as_tag)], ...] = ()
    """What selections may name, `tag:nightly`."""
    sources: dict[SourceName, Source]
    """The tables of the query, by name; `{}` for a query of constants."""
    partitions: Partitions | None = None
    """The partitions of input files; by default `{kind: dynamic}`."""
    datasets: Annotated[DatasetsPart, BeforeValidator(_as_files, json_schema_input_type=str | DatasetsPart)] | None = (
        None
    )
    """Instead of query.sql: a pattern of SQL files, each a dataset that may read the others."""
    policy: ViewPolicy = "incremental"
    """`incremental`; `auto` recomputes where that is needed or quicker; `definition` always runs the whole query."""
    publish: Publish = "auto"
    """Who can read the answer: any engine (`plain`, `auto` while it is small, `table`), or `fast`: only some."""
    table_properties: dict[str, str] = Field(default={})
    """Properties of the plain table."""
    cluster_by: list[str] = Field(default=[])
    """Columns by which the plain table is sorted and clustered."""
    publish_as: SqlName | None = None
    """A SQL view, `database.view`, that always shows the current answer."""
    on_change: Literal["refuse", "rebuild"] = "refuse"
    """What a run does if the query, or a column that it reads, changed."""
    on_lost: Literal["refuse", "rebuild"] = "refuse"
    """What a run does if a source lost what the last refresh read."""
    monoids: dict[MonoidName, MonoidPart] = Field(default={})
    """Merges of values, which the query calls as `name(collect_list(value))`."""
    chunk: Amount | None = None
    """A larger change is split into chunks of this size, such as `2g`."""
    schedule: Annotated[str, AfterValidator(cron.check_cron)] | None = None
    """A cron expression for landing and refreshing, in Dagster."""
    maintain: Annotated[str, AfterValidator(cron.check_cron)] | None = None
    """A cron expression for compaction and removal of old files, in Dagster."""
    check: Check = Check()
    """What Dagster compares with the batch query."""
    show_rows_in_errors: StrictBool = False
    """Whether failures and checks in Dagster may show values of rows."""
    warehouse: FolderOrStore | None = None
    """Where state and answer are kept: a folder or a URI; by default `.warehouse` beside the pipelines' folder."""
    spark: SparkPart = SparkPart()
    """The Spark of this pipeline."""

    @property
    def partitioning(self) -> Partitions:
        """Return the partitions of the sources with partition_by: as declared, or dynamic."""
        return self.partitions or Partitions(kind="dynamic")

    @model_validator(mode="after")
    def _fits_datasets(self) -> Declaration:
        others = sorted(self.model_fields_set - OF_DATASETS)
        if self.datasets is not None and self.check.schedule:
            others = ["check.schedule"]
        if self.datasets is not None and others:
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
