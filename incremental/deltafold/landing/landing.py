"""Land input files in a Delta table: one commit replaces the changed partitions.

A partition is replaced as a whole (`replaceWhere`), so landing it again is an exact correction. Partitions that
manifest.py records as unchanged are skipped; without a record, or after a change of the source's declaration, all
partitions are reloaded.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    DataType,
    StringType,
    StructType,
)

from deltafold.algebra.errors import SourceError
from deltafold.algebra.results.report import Landing
from deltafold.algebra.sources import Files
from deltafold.lake.durable import lock, make_private
from deltafold.lake.protocol import Table
from deltafold.lake.remote.remote_path import Place, place_of
from deltafold.landing.folder import UNPARTITIONED, Partition, data_files, explain_read_errors
from deltafold.landing.input_folder import InputFolder, open_input
from deltafold.landing.malformed.quarantine import Quarantine
from deltafold.landing.manifest import PENDING, Known, Manifest
from deltafold.landing.partition_values import values
from deltafold.landing.preflight.inspection import Inspection, in_batches
from deltafold.landing.reader import FileReader
from deltafold.landing.schema_checks import check_partition_keys, checked_schema, types
from deltafold.landing.streams.position import list_readings
from deltafold.landing.writer import Replacement, Written
from deltafold.telemetry.events import log_work


@dataclass(frozen=True)
class Found:
    """The findings of a landing by partition: present, remembered and examined files; changed and removed partitions.

    manifest_lost: there is none; replaces_all: all rows are to be replaced, for this or another reason.
    """

    present: dict[str, Partition]
    known: dict[str, Known]
    seen: dict[str, Known]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    manifest_lost: bool
    replaces_all: bool


@dataclass(frozen=True)
class FileLander:
    """Lands the files of one source into its table."""

    spark: SparkSession
    name: str
    files: Files
    table: Table
    quarantine: Quarantine
    folder: Place
    lock_seconds: float

    def land(self, partitions: Sequence[str] | None) -> Landing:
        """Land what changed of the named partitions (they are compared by content), or of all.

        Raises SourceError for malformed rows and files, with file, row and reason; nothing is landed then. Rows that
        are quarantined instead raise nothing.
        """
        return self._land_and_log(partitions, replay=False)

    def replay(self, allow_loss: bool = False) -> Landing:
        """Land the partitions that have rows in quarantine again, by the schema that is declared now.

        Where the landed table has another schema, it takes the declared one, and all partitions are landed again.
        allow_loss: for streams; files lose nothing.
        """
        return self._land_and_log(None, replay=True)

    def _land_and_log(self, partitions: Sequence[str] | None, replay: bool) -> Landing:
        with log_work("landing", {"source": self.name, "table": self.table.path}) as work:
            work.result = landing = self._replace_changed(partitions, replay)
        return landing

    def _replace_changed(self, partitions: Sequence[str] | None, replay: bool) -> Landing:
        start = time.monotonic()
        held = lock(self.folder, f"source {self.name}", "landed", self.lock_seconds)
        with held, self._input.open(), explain_read_errors(self.name):
            if isinstance(self.folder, Path) and list_readings(self.folder):
                raise SourceError(
                    f"source {self.name}: declared as files, but its landed table was landed from a stream. "
                    "Declare the files under another name."
                )
            reshaped, quarantined = self._is_reshaped(replay), self.quarantine.counts()
            found = self._find_changes(partitions, quarantined, replay, reshaped)
            written = Written(0)
            if found.changed or found.removed or found.replaces_all:
                check_partition_keys(self.spark, self.name, self._key_type, found.present)
                written = self._write(found, reshaped, quarantined)
                quarantined = self.quarantine.counts()
            self._manifest.remember({p: kept for p, kept in found.known.items() if p not in found.removed} | found.seen)
            version = self.table.version()
        if version is None:
            raise SourceError(f"source {self.name}: no files yet in {self.files.path}. Put some there and land again.")
        unchanged = tuple(p for p in found.seen if p not in found.changed)
        return Landing(
            source=self.name,
            version=version,
            landed=found.changed,
            unchanged=unchanged,
            removed=found.removed,
            rows=written.rows,
            seconds=time.monotonic() - start,
            quarantined=quarantined,
            late=written.late,
            kept=written.kept,
        )

    def _write(self, found: Found, reshaped: bool, quarantined: Mapping[str, int]) -> Written:
        """Write what was found to have changed."""
        changed = [found.present[p] for p in found.changed]
        replaces_all = found.replaces_all or self.table.version() is None
        for table in (self.table, self.quarantine.table):
            make_private(place_of(table.path).parent)  # before Spark does
        with self._input.stage(changed) as place:
            self._manifest.begin(None if found.manifest_lost else found.known, [*found.changed, *found.removed])
            records = FileReader(self.spark, self.files, self._schema, self._input.root, place)
            return Replacement(
                self.name,
                records,
                self.table,
                self.quarantine,
                changed,
                found.removed,
                replaces_all,
                reshaped,
                quarantined,
            ).write()

    def partitions(self) -> tuple[str, ...]:
        """Return every partition that has been dropped or landed, in order."""
        with explain_read_errors(self.name):
            return tuple(sorted({*self._input.present(), *(self._manifest.read() or {})}))

    @property
    def _manifest(self) -> Manifest:
        """Return the manifest; the content of the table depends on how files are read, not on the files alone."""
        declared = json.dumps([self.files.format, self.files.partition_by, sorted(self.files.options.items())])
        root = self._input.root
        reader = FileReader(self.spark, self.files, self._schema, root, root)
        return Manifest(self.folder, declared, reader.settings)

    @cached_property
    def _input(self) -> InputFolder:
        return open_input(self.spark, self.name, self.files, self.folder)

    def _find_changes(
        self, partitions: Sequence[str] | None, quarantined: Mapping[str, int], replay: bool, reshaped: bool
    ) -> Found:
        """Return the partitions to write: those that changed, those that were left out wrongly, or all.

        A value is landed in all its spellings: who names one of them means its rows, and removing one takes them all.
        """
        present = self._input.present()
        manifest = {} if self.table.version() is None else self._manifest.read()
        known, manifest_lost = manifest or {}, manifest is None
        replaces_all = manifest_lost or reshaped
        again = set(quarantined) if replay or self.files.malformed == "fail" else set[str]()
        if replay and known and not replaces_all:
            wanted = [p for p in quarantined if p in present or p in known]
        else:
            wanted = self._select_partitions(None if replaces_all else partitions, present, known)
        meant = self._find_values(present, known)
        named = {meant[p] for p in wanted}
        wanted = dict.fromkeys([*wanted, *(p for p in meant if meant[p] in named)])
        removed = tuple(p for p in wanted if p not in present)
        cleared = {meant[p] for p in removed}
        again |= {p for p in wanted if meant[p] in cleared}
        anyway = replaces_all or partitions is not None
        seen = self._examine({p: present[p] for p in wanted if p in present}, {} if anyway else known)
        changed = tuple(p for p in seen if replaces_all or p in again or seen[p].digest != known.get(p, PENDING).digest)
        return Found(present, known, seen, changed, removed, manifest_lost, replaces_all)

    def _find_values(self, present: Mapping[str, Partition], known: Mapping[str, Known]) -> dict[str, str]:
        """Return the value of each partition; its key if all landed ones exist, so that none can be respelt."""
        keys = [*present, *(key for key in known if key not in present)]
        if not present or len(keys) == len(present):
            return {key: key for key in keys}
        return {key: value or key for key, value in values(self.spark, self._key_type, keys).items()}

    @property
    def _key_type(self) -> DataType:
        column = self.files.partition_by
        return StringType() if column is None else self._schema[column].dataType

    @cached_property
    def _schema(self) -> StructType:
        """Return the declared schema, checked against the declaration."""
        return checked_schema(self.name, self.files)

    def _is_reshaped(self, replay: bool) -> bool:
        """Return whether the landed table has another schema or partitioning; raises SourceError where that is not
        allowed.
        """
        declared, version = types(self._schema), self.table.version()
        if version is None:
            return False
        landed = types(self.table.schema(version))
        if landed != declared and not replay:
            raise SourceError(
                f"source {self.name}: another schema is declared than its landed table has ({landed}). "
                "Replay it, so that all its files are landed again, or declare it under another name."
            )
        columns = [] if self.files.partition_by is None else [self.files.partition_by]
        return landed != declared or self.table.partitioned_by(version) != columns

    def _select_partitions(
        self, partitions: Sequence[str] | None, present: Mapping[str, Partition], known: Mapping[str, Known]
    ) -> list[str]:
        if partitions is None:
            return sorted({*present, *known})
        for partition in partitions:
            if partition not in present and partition not in known:
                raise self._no_partition(partition)
        return list(dict.fromkeys(partitions))

    def _no_partition(self, partition: str) -> SourceError:
        """Return the error for a partition without files, with the folder that they belong in if there can be one."""
        column = self.files.partition_by
        if column is None:
            return SourceError(
                f"source {self.name}: it declares no `partition_by`, so no {partition!r}. Land all of it."
            )
        if values(self.spark, self._key_type, [partition])[partition] is None:
            kind = self._key_type.simpleString().upper()
            return SourceError(
                f"source {self.name}: {partition!r} is not a partition, since {column} is a {kind}. Name such a value."
            )
        folder = partition.replace("%", "%25").replace("/", "%2F")  # as Hive and Spark escape it
        where = f"{self.files.path}/{column}={folder}"
        return SourceError(f"source {self.name}: no partition {partition!r}. Put its files at {where}.")

    def _examine(self, partitions: Mapping[str, Partition], known: Mapping[str, Known]) -> dict[str, Known]:
        """Return the manifest's entries; known: the old ones, kept if name, size and time of a partition's files are
        the same.

        Raises SourceError for files that Spark would read wrongly, or for ever: before they are read to their end.
        """
        columns = [field for field in self._schema if field.name != self.files.partition_by]
        inspection = Inspection(self.spark, self.name, self.files, columns, self._input.root)
        kept = {p: known[p] for p, each in partitions.items() if p in known and known[p].files == each.files}
        digests = dict[str, str]()
        for batch in in_batches(each for p, each in partitions.items() if p not in kept):
            for partition in batch:
                self._input.fetch(partition)
            digests |= zip((each.key for each in batch), inspection.digests(batch), strict=True)
        return {p: kept.get(p) or Known(each.files, digests[p]) for p, each in partitions.items()}


__all__ = ["UNPARTITIONED", "FileLander", "data_files"]
