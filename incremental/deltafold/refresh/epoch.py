"""Describe one epoch for its computation: its marks, its leaves and their versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import SparkSession

from deltafold.algebra.tuning import Tuning
from deltafold.lake.protocol import Mark, Table
from deltafold.lake.version_diff import Difference, SourceVersions
from deltafold.refresh.shared_changes import SharedChange
from deltafold.refresh.state_reuse import Reused
from deltafold.spark.job_stats import Measure
from deltafold.store.history import Intent
from deltafold.store.journal import intent_json


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """The inputs and outputs of one epoch.

    sources: the versions that are read, by source; tables: the view's own tables by name, the last one final;
    resumed: whether an earlier attempt may have written some of them; reused: states that another generation has;
    shared: by source, the changes that other datasets of a run read, too.
    """

    spark: SparkSession
    intent: Intent
    sources: Mapping[str, SourceVersions]
    tables: Mapping[str, Table]
    measure: Measure
    resumed: bool = False
    reused: Mapping[str, Reused] = field(default_factory=dict[str, Reused])
    tuning: Tuning = field(default_factory=Tuning)
    shared: Mapping[str, SharedChange] = field(default_factory=dict[str, SharedChange])

    @property
    def initial(self) -> bool:
        """Whether this is the first epoch of its generation."""
        return self.intent.epoch == 1

    @cached_property
    def differences(self) -> Mapping[str, Difference]:
        """The difference of each source, by its files."""
        return {name: source.difference for name, source in self.sources.items()}

    @property
    def places(self) -> dict[str, str]:
        """A description of each input, by its path."""
        descriptions: dict[str, str] = {}
        for name, pin in self.intent.sources.items():
            versions = f"version {pin.after}" if pin.before is None else f"versions {pin.before} to {pin.after}"
            descriptions[self.sources[name].after.table.path] = f"source {name} ({versions})"
        return descriptions

    def application(self, table: str) -> str:
        """Delta's transaction application of a table in this generation."""
        return application(self.intent, table)

    def mark(self, table: str) -> Mark:
        """Return the mark of this epoch's write to a table."""
        return Mark(self.application(table), self.intent.epoch, f'{{"deltafold": {intent_json(self.intent)}}}')

    def is_written(self, table: str) -> bool:
        """Return whether an earlier attempt at this epoch wrote the table."""
        return self.resumed and self.is_marked(table)

    def is_marked(self, table: str) -> bool:
        """Return whether the table has the mark of this epoch, or of a later one: Delta skips further writes."""
        return is_marked(self.tables[table], self.intent, table)

    def has_reached(self, table: str) -> bool:
        """Return whether the table was written in this epoch; on a first attempt from its version, without a job."""
        return self.is_marked(table) if self.resumed else self.tables[table].version() != self.before(table)

    def before(self, table: str) -> int | None:
        """Return a table's version when the epoch began."""
        return self.intent.tables.get(table)


RoundsByLoop = Mapping[str, dict[str, list[int]]]
"""How many rows each round of a loop changed, by loop, and by what the rounds did (Report.rounds)."""


@dataclass(frozen=True, kw_only=True)
class EpochResult:
    """The result of an epoch: touched groups, rows of the change, the path taken for each table it wrote.

    partitions: those of the answer that it touched; None if unknown; rounds, residuals: of each loop (Report); feeds:
    the sources of which it read the change data feed.
    """

    groups: int = 0
    change_rows: int = 0
    paths: Mapping[str, str] = field(default_factory=dict[str, str])
    partitions: tuple[str, ...] | None = None
    rounds: RoundsByLoop = field(default_factory=dict[str, dict[str, list[int]]])
    residuals: Mapping[str, list[float]] = field(default_factory=dict[str, list[float]])
    feeds: tuple[str, ...] = ()

    @property
    def commits(self) -> int:
        """One for each table that was written."""
        return len(self.paths)


def application(intent: Intent, table: str) -> str:
    """Delta's transaction application of a table in the generation of an intent."""
    return f"deltafold/{intent.view}/{table}/{intent.generation}"


def is_marked(table: Table, intent: Intent, name: str) -> bool:
    """Return whether a table has the mark of an epoch, or of a later one; name: the table's name in the epoch."""
    done = None if table.version() is None else table.epoch(application(intent, name))
    return done is not None and done >= intent.epoch
