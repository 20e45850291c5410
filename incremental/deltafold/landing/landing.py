"""Land input files in a Delta table: one commit replaces the changed partitions.

A partition is replaced as a whole (`replaceWhere`), so landing it again is an exact correction. The manifest, a small
JSON file beside the lock of the source, records the files of each landed partition, and partitions whose files are
unchanged are skipped; without a manifest, or after a change of the source's declaration, all partitions are reloaded.
Partitions that are about to be written are first recorded as pending: after a crash, the next landing writes them again
even if their old files are back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StringType, StructType

from deltafold.algebra.errors import SourceError
from deltafold.algebra.results.report import Landing
from deltafold.algebra.sources import Files
from deltafold.lake.protocol import Table
from deltafold.lake.records import records_at
from deltafold.lake.remote.remote_path import Place, place_of
from deltafold.landing.folder import Facts, Partition, explain_read_errors
from deltafold.landing.input_folder import InputFolder, open_input
from deltafold.landing.preflight.inspection import Inspection, in_batches
from deltafold.landing.quarantine import Quarantine
from deltafold.landing.reader import FileReader
from deltafold.landing.schema_checks import check_partition_keys, checked_schema, partition_values
from deltafold.landing.streams.position import list_readings
from deltafold.landing.writer import Replacement, Written
from deltafold.spark import catalyst
from deltafold.telemetry import log_work


@dataclass(frozen=True)
class LandedFiles:
    """The entry of a partition in the manifest: its files, and a digest of their content.

    version: the version of the table that changed the partition last; None: unknown, as earlier releases leave it.
    """

    files: Facts
    digest: str
    version: int | None = None


MANIFEST = "manifest.json"
PENDING = LandedFiles([], "")  # differs from every partition that has files


@dataclass(frozen=True)
class Manifest:
    """The manifest of a source, which is valid for one way to read its files.

    declared: the declaration of the source, as JSON; settings: those of the session. Earlier releases did not record
    the settings, which are then assumed not to have changed.
    """

    folder: Place
    declared: str
    settings: dict[str, str]

    def read(self) -> dict[str, LandedFiles] | None:
        """Return the landed partitions; None if there is no valid manifest."""
        try:
            content = json.loads(records_at(self.folder).get(MANIFEST))
            if content["declared"] != self.declared or content.get("settings", self.settings) != self.settings:
                return None
            versions = content.get("versions", {})
            return {
                key: LandedFiles(**entry, version=versions.get(key)) for key, entry in content["partitions"].items()
            }
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def begin(self, landed: Mapping[str, LandedFiles] | None, partitions: Iterable[str]) -> None:
        """Record that partitions are about to be written; landed: those before, None if unknown."""
        self.remember(None if landed is None else {**landed, **dict.fromkeys(partitions, PENDING)})

    def remember(self, partitions: Mapping[str, LandedFiles] | None) -> None:
        """Record the landed partitions, atomically; None: they are unknown."""
        entries = (partitions or {}).items()
        content = {
            "declared": self.declared,
            "settings": self.settings,
            "partitions": {key: {"files": entry.files, "digest": entry.digest} for key, entry in entries},
            "versions": {key: entry.version for key, entry in entries},  # apart, since earlier releases refuse it there
        }
        text = json.dumps({} if partitions is None else content, sort_keys=True)
        records_at(self.folder).put(MANIFEST, text)


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The partitions that a landing has to write.

    present: those with files; recorded: the entries of the manifest; examined: the new entries of the partitions that
    the landing is about; changed, removed: those of them to write; manifest_lost: there is no valid manifest;
    replaces_all: all rows are replaced, for this or another reason.
    """

    present: dict[str, Partition]
    recorded: dict[str, LandedFiles]
    examined: dict[str, LandedFiles]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    manifest_lost: bool
    replaces_all: bool


@dataclass(frozen=True, kw_only=True)
class FileLander:
    """Lands the files of one source into its table; folder: that of its manifest and its lock."""

    spark: SparkSession
    name: str
    files: Files
    table: Table
    quarantine: Quarantine
    folder: Place
    lock_seconds: float

    def land(self, partitions: Sequence[str] | None) -> Landing:
        """Land the changed ones of the named partitions, which are compared by content, or of all.

        Raises SourceError for malformed files and rows, unless these are quarantined, with file, row and reason;
        nothing is landed then.
        """
        return self._land_and_log(partitions, replay=False)

    def replay(self, *, allow_loss: bool = False) -> Landing:
        """Land the partitions that have rows in quarantine again, by the schema that is declared now.

        If the landed table has another schema, it gets the declared one, and all partitions are landed again.
        allow_loss: for streams alone, since files are read completely.
        """
        return self._land_and_log(None, replay=True)

    def _land_and_log(self, partitions: Sequence[str] | None, *, replay: bool) -> Landing:
        with log_work("landing", {"source": self.name, "table": self.table.path}) as work:
            work.result = landing = self._replace_changed(partitions, replay=replay)
        return landing

    def _replace_changed(self, partitions: Sequence[str] | None, *, replay: bool) -> Landing:
        start = time.monotonic()
        source_lock = records_at(self.folder).lock(f"source {self.name}", "landed", self.lock_seconds, private=True)
        with source_lock, self._input.open(), explain_read_errors(self.name):
            if list_readings(self.folder):
                raise SourceError(
                    f"source {self.name}: declared as files, but its landed table was landed from a stream. "
                    "Declare the files under another name."
                )
            reshaped = self._is_reshaped(replay=replay)
            quarantined = self.quarantine.counts()
            changes = self._find_changes(partitions, quarantined, replay=replay, reshaped=reshaped)
            written = Written(0)
            if changes.changed or changes.removed or changes.replaces_all:
                check_partition_keys(self.spark, self.name, self._key_type, changes.present)
                written = self._write(changes, quarantined, reshaped=reshaped)
                quarantined = self.quarantine.counts()
            kept = {p: entry for p, entry in changes.recorded.items() if p not in changes.removed}
            version = self.table.version()
            entries = kept | changes.examined
            versions = {} if version is None else self._find_versions(entries, changes, version)
            self._manifest.remember({p: replace(entry, version=versions.get(p)) for p, entry in entries.items()})
        if version is None:
            raise SourceError(f"source {self.name}: no files yet in {self.files.path}. Put some there and land again.")
        return Landing(
            source=self.name,
            version=version,
            landed=changes.changed,
            unchanged=tuple(p for p in changes.examined if p not in changes.changed),
            removed=changes.removed,
            rows=written.rows,
            seconds=time.monotonic() - start,
            quarantined=quarantined,
            late=written.late,
            kept=written.kept,
            versions=versions,
        )

    @staticmethod
    def _find_versions(entries: Iterable[str], changes: Changes, version: int) -> dict[str, int]:
        """Return the version of the table that changed each partition last; version: the one now."""
        known = {p: entry.version for p, entry in changes.recorded.items() if p not in changes.changed}
        return {p: version if (before := known.get(p)) is None else before for p in entries}

    def _write(self, changes: Changes, quarantined: Mapping[str, int], *, reshaped: bool) -> Written:
        """Write the changed and removed partitions; quarantined: the rows in quarantine before, by partition."""
        changed = [changes.present[p] for p in changes.changed]
        replaces_all = changes.replaces_all or self.table.version() is None
        for table in (self.table, self.quarantine.table):
            records_at(place_of(table.path).parent).create()  # before Spark does
        with self._input.stage(changed) as staged:
            self._manifest.begin(
                None if changes.manifest_lost else changes.recorded, [*changes.changed, *changes.removed]
            )
            return Replacement(
                name=self.name,
                reader=self._reader(staged),
                table=self.table,
                quarantine=self.quarantine,
                changed=changed,
                removed=changes.removed,
                replaces_all=replaces_all,
                reshaped=reshaped,
                quarantined=quarantined,
            ).write()

    def _reader(self, staged: Path) -> FileReader:
        """Return the reader of the source's files; staged: the folder where they are safe to read."""
        return FileReader(spark=self.spark, files=self.files, schema=self._schema, root=self._input.root, staged=staged)

    def partitions(self) -> tuple[str, ...]:
        """Return every partition that has files or was landed, in order."""
        with explain_read_errors(self.name):
            return tuple(sorted({*self._input.present(), *(self._manifest.read() or {})}))

    @property
    def _manifest(self) -> Manifest:
        """The manifest for the way in which files are read now, on which the landed rows depend too."""
        declared = json.dumps([self.files.format, self.files.partition_by, sorted(self.files.options.items())])
        return Manifest(self.folder, declared, self._reader(self._input.root).settings)

    @cached_property
    def _input(self) -> InputFolder:
        return open_input(self.spark, self.name, self.files, self.folder)

    def _find_changes(
        self, partitions: Sequence[str] | None, quarantined: Mapping[str, int], *, replay: bool, reshaped: bool
    ) -> Changes:
        """Return the partitions to write: those that changed, those to land again by their rows in quarantine, or all.

        A table does not distinguish the spellings of a value (2024-5-1 and 2024-05-01 of a DATE), so a landing of one
        of them is a landing of all, and if one was removed, the others are written again.
        """
        present = self._input.present()
        manifest = {} if self.table.version() is None else self._manifest.read()
        recorded = manifest or {}
        replaces_all = manifest is None or reshaped
        if replay and recorded and not replaces_all:
            selected = [p for p in quarantined if p in present or p in recorded]
        else:
            selected = self._select_partitions(None if replaces_all else partitions, present, recorded)
        values = self._find_values(present, recorded)
        selected_values = {values[p] for p in selected}
        selected = dict.fromkeys([*selected, *(p for p in values if values[p] in selected_values)])
        removed = tuple(p for p in selected if p not in present)
        removed_values = {values[p] for p in removed}
        reread = {p for p in selected if values[p] in removed_values}
        if replay or self.files.malformed == "fail":
            reread |= set(quarantined)
        reads_all = replaces_all or partitions is not None
        examined = self._examine({p: present[p] for p in selected if p in present}, {} if reads_all else recorded)
        return Changes(
            present=present,
            recorded=recorded,
            examined=examined,
            changed=tuple(
                p
                for p, entry in examined.items()
                if replaces_all or p in reread or entry.digest != recorded.get(p, PENDING).digest
            ),
            removed=removed,
            manifest_lost=manifest is None,
            replaces_all=replaces_all,
        )

    def _find_values(self, present: Mapping[str, Partition], recorded: Mapping[str, LandedFiles]) -> dict[str, str]:
        """Return the value of each partition; its key if all landed ones exist, so that none was renamed."""
        keys = [*present, *(key for key in recorded if key not in present)]
        if not present or len(keys) == len(present):
            return {key: key for key in keys}
        return {key: value or key for key, value in partition_values(self.spark, self._key_type, keys).items()}

    @property
    def _key_type(self) -> DataType:
        column = self.files.partition_by
        return StringType() if column is None else self._schema[column].dataType

    @cached_property
    def _schema(self) -> StructType:
        """Return the declared schema, checked against the declaration."""
        return checked_schema(self.name, self.files)

    def _is_reshaped(self, *, replay: bool) -> bool:
        """Return whether the landed table has another schema or partitioning than the declared one.

        Raises SourceError for another schema, unless this is a replay.
        """
        declared = catalyst.types_of(self._schema)
        version = self.table.version()
        if version is None:
            return False
        landed = catalyst.types_of(self.table.schema(version))
        if landed != declared and not replay:
            raise SourceError(
                f"source {self.name}: another schema is declared than its landed table has ({landed}). "
                "Replay it, so that all its files are landed again, or declare it under another name."
            )
        columns = () if self.files.partition_by is None else (self.files.partition_by,)
        return landed != declared or self.table.metadata(version).partition_columns != columns

    def _select_partitions(
        self, partitions: Sequence[str] | None, present: Mapping[str, Partition], recorded: Mapping[str, LandedFiles]
    ) -> list[str]:
        if partitions is None:
            return sorted({*present, *recorded})
        if missing := [each for each in partitions if each not in present and each not in recorded]:
            raise self._no_partition(*missing)
        return list(dict.fromkeys(partitions))

    def _no_partition(self, partition: str, *others: str) -> SourceError:
        """Return the error for partitions without files, with the folder that they belong in if there can be one."""
        column = self.files.partition_by
        if column is None:
            return SourceError(
                f"source {self.name}: it declares no `partition_by`, so no {partition!r}. Land all of it."
            )
        if partition_values(self.spark, self._key_type, [partition])[partition] is None:
            kind = self._key_type.simpleString().upper()
            return SourceError(
                f"source {self.name}: {partition!r} is not a partition, since {column} is a {kind}. Name such a value."
            )
        folder = partition.replace("%", "%25").replace("/", "%2F")  # as Hive and Spark escape it
        where = f"{self.files.path}/{column}={folder}"
        if others:
            which = f"{partition!r} or {len(others)} others, until {others[-1]!r}"
            return SourceError(f"source {self.name}: no partition {which}. Put files at {where}, or for the others.")
        return SourceError(f"source {self.name}: no partition {partition!r}. Put its files at {where}.")

    def _examine(
        self, partitions: Mapping[str, Partition], recorded: Mapping[str, LandedFiles]
    ) -> dict[str, LandedFiles]:
        """Return the manifest's entries for partitions; those with files of the same name, size and time keep theirs.

        Raises SourceError for a file that Spark would read wrongly, or that would fill its memory.
        """
        columns = [field for field in self._schema if field.name != self.files.partition_by]
        inspection = Inspection(
            spark=self.spark, source=self.name, files=self.files, columns=columns, root=self._input.root
        )
        kept = {p: recorded[p] for p in partitions if p in recorded and recorded[p].files == partitions[p].files}
        digests = dict[str, str]()
        for batch in in_batches(partition for p, partition in partitions.items() if p not in kept):
            for partition in batch:
                self._input.fetch(partition)
            digests |= zip((partition.key for partition in batch), inspection.digests(batch), strict=True)
        return {p: kept.get(p) or LandedFiles(partitions[p].files, digests[p]) for p in partitions}
