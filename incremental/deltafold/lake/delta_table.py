"""Read, write and maintain a Delta table: its versions, its files, its rows.

Every write carries `txnAppId` and `txnVersion`, so that Delta itself skips a second attempt at the same epoch, and the
epoch's pinned versions as commit metadata. A compaction is one commit that changes no row (`dataChange` is false, so
that the change feeds of other tools see nothing) and keeps the marks of epochs.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from delta import tables
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.local_path import is_uri
from deltafold.algebra.plain_options import PlainOptions
from deltafold.algebra.program import BUCKET
from deltafold.algebra.sqltext import literal, quoted
from deltafold.lake.files import Commit, File, Identity, needs_mapping, records_feed
from deltafold.lake.key_interval import KeyInterval
from deltafold.lake.log.actions import to_java
from deltafold.lake.log.commit_log import commit_id, commits_between, first_removal
from deltafold.lake.log.delta_log import latest_snapshot, open_log, refuse_hidden_log, snapshot_at
from deltafold.lake.log.direct_commit import ALL, write_directly
from deltafold.lake.log.direct_merge import merge_directly
from deltafold.lake.log.file_lists import (
    differing_files,
    files_of,
    find_missing,
    find_missing_of,
    has_vectors,
    known_files,
    partition_files,
    row_count,
    rows_of_files,
    without_vectors,
)
from deltafold.lake.log.vector_changes import VectorChanges
from deltafold.lake.physical_layout import arrange
from deltafold.lake.protocol import (
    HOUR,
    MARGIN_HOURS,
    Clause,
    Lake,
    Mark,
    Metadata,
    PartitionFiles,
    Table,
    VersionedTable,
    unreadable_version,
)
from deltafold.lake.remote.objects import usage
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError

WHOLE_BYTES = 64 << 20  # a smaller table is read whole: finding the files to skip takes Spark jobs, which cost more
NAME_MAPPING = ("delta.columnMapping.mode", "name")
CHECKPOINTS = {"delta.checkpointInterval": "50"}  # one takes longer than a small refresh, and commits have checksums
NEW_TABLE = {"delta.enableDeletionVectors": "true", **CHECKPOINTS}
PLAIN_TABLE = {"delta.enableDeletionVectors": "false"}
FORM = "deltafold.form"  # a digest of all that a plain table was created with
STATIC = {"partitionOverwriteMode": "static"}  # a session may ask that partitions that get no row keep theirs


class DeltaTable:
    """One Delta table at a path."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark, self.path = spark, path

    @property
    def label(self) -> str:
        """The name of the table in messages."""
        return self.path

    @property
    def place(self) -> str:
        """The location of the table, the same however its path is written."""
        path = str(self.log.dataPath())
        return os.path.realpath(path.removeprefix("file:")) if path.startswith("file:/") else path

    @property
    def log(self) -> J:
        """Delta's log of the table, cached by Delta; what it reads and builds belongs to the table's session."""
        return open_log(self.spark, self.path, self.label)

    def version(self) -> int | None:
        """Return the latest version, None if there is no table; raises StorageError if it may not be looked for."""
        version = int(self._latest().version())
        if version < 0:
            refuse_hidden_log(self.path)
        return None if version < 0 else version

    def metadata(self, version: int | None = None) -> Metadata:
        """Return the metadata of a version or of the latest, read from Delta's action in one call."""
        action = json.loads(str(self._snapshot(version).metadata().json()))["metaData"]
        properties = action.get("configuration", {})
        return Metadata(
            id=action["id"],
            partition_columns=tuple(action.get("partitionColumns", ())),
            is_mapped=properties.get(NAME_MAPPING[0], "none") != "none",
            records_feed=records_feed(properties),
        )

    def commit_id(self, version: int) -> str:
        """Return the id of the commit that made a version; empty if it has none, or the log was cleaned up."""
        return commit_id(self.spark, self.log, version)

    def schema(self, version: int | None = None) -> StructType:
        """Return the schema of a version or of the latest, with Delta's metadata of the columns."""
        return catalyst.python_schema(self._snapshot(version).schema())

    def epoch(self, application: str) -> int | None:
        """Return the last epoch that an application wrote, None if none; without a checksum, a Spark job finds it."""
        latest = self._latest()
        checksum = catalyst.option(latest.checksumOpt())
        transactions = None if checksum is None else catalyst.option(checksum.setTransactions())
        if transactions is None:  # or more applications wrote to the table than Delta keeps in a checksum
            epoch = catalyst.option(latest.transactions().get(application))
            return None if epoch is None else int(epoch)
        return next(
            (int(each.version()) for each in catalyst.sequence(transactions) if each.appId() == application), None
        )

    def size(self, version: int | None = None) -> tuple[int, int]:
        """Return the files and bytes of a version or of the latest; if it has no checksum, Spark jobs count them."""
        snapshot = self._snapshot(version)
        checksum = catalyst.option(snapshot.checksumOpt())
        if checksum is None:
            return int(snapshot.numOfFiles()), int(snapshot.sizeInBytes())
        return int(checksum.numFiles()), int(checksum.tableSizeBytes())

    def files(self, version: int) -> dict[Identity, File]:
        """Return the data files of a version by identity."""
        return {file.identity: file for file in files_of(self.spark, self._snapshot_at(version))}

    def compare(self, before: int, after: int) -> tuple[list[File], list[File]]:
        """Return the files that only version `before` has, and those that only `after` has (see file_lists.py)."""
        return differing_files(self.spark, self.log, self._snapshot_at(before), self._snapshot_at(after))

    def rows(self, version: int) -> int | None:
        """Return the number of rows of a version from the log; None if a writer did not record that of a file."""
        return row_count(self.spark, self._snapshot_at(version))

    def commits(self, before: int, after: int, most: int | None = None) -> list[Commit] | None:
        """Return the files added and removed by each commit after `before` up to `after`, without Spark jobs.

        None where they are more than `most`, or the log is not sufficient (see `commits_between`).
        """
        if most is not None and after - before > most:
            return None
        return commits_between(self.spark, self.log, before, after, lambda: [*self.metadata(before).partition_columns])

    def feed(self, before: int, after: int) -> DataFrame:
        """Return the changed rows that the commits after `before` up to `after` recorded, by Delta's own reader."""
        versions = {"readChangeFeed": "true", "startingVersion": before + 1, "endingVersion": after}
        return self.spark.read.format("delta").options(**self.reading_options, **versions).load(self.path)

    def present(self, files: Sequence[File]) -> bool:
        """Return whether files and their deletion vectors still exist: a vacuum may have removed what a compaction
        replaced.
        """
        return find_missing(self.spark, self.log, files) is None

    def find_missing(self, version: int) -> str | None:
        """Return the path of a file of a version that no longer exists; None if all do."""
        return find_missing_of(self.spark, self.log, self._snapshot_at(version))

    def rows_of(self, version: int, files: Sequence[File]) -> DataFrame:
        """Return the rows of some files of a version, deletion vectors applied."""
        actions = to_java(self.spark, [file.action for file in files])
        return self._frame(self._snapshot_at(version), actions, vectors=any(file.identity[1] for file in files))

    def rows_between(self, version: int, before: Sequence[File], after: Sequence[File]) -> DataFrame:
        """Return the rows by which deletion vectors of the same files differ; `_change_type` is delete or insert."""
        return VectorChanges(self.spark, self.log, self._snapshot_at(version), version).rows(before, after)

    def at(self, version: int) -> DataFrame:
        """Return the table as of a version; Delta skips files of a large one by the conditions applied to it."""
        snapshot = self._snapshot_at(version)
        files = known_files(snapshot)
        if files is not None and int(snapshot.checksumOpt().get().tableSizeBytes()) <= WHOLE_BYTES:
            return self._frame(snapshot, files, vectors=has_vectors(snapshot, files))
        return self._load(version)

    def scan(self, version: int) -> DataFrame:
        """Return the table as of a version as any other reader sees it: Delta itself finds the files."""
        self._snapshot_at(version)  # raises if it cannot be read
        return self._load(version)

    def _load(self, version: int) -> DataFrame:
        options = {**self.reading_options, "versionAsOf": version}
        return self.spark.read.format("delta").options(**options).load(self.path)

    @property
    def reading_options(self) -> dict[str, str]:
        """What its file system needs beside Spark's own settings, such as credentials."""
        return {}

    def append(self, frame: DataFrame, mark: Mark, partition: str | None, *, name_mapping: bool = False) -> bool:
        """Add rows, creating the table if there is none; returns whether by a direct commit."""
        return self._write(frame, mark, "append", partition, name_mapping=name_mapping)

    def overwrite(self, frame: DataFrame, mark: Mark, partition: str | None) -> bool:
        """Replace all rows in one commit; returns whether by a direct one."""
        return self._write(frame, mark, "overwrite", partition, name_mapping=False)

    def replace_where(
        self, frame: DataFrame, condition: str, metadata: str, partition: str | None, *, reshape: bool = False
    ) -> int:
        """Replace the rows that fulfil a condition with those of the frame; returns the rows written.

        Creates the table if there is none; the condition `true` replaces all rows, and with `reshape` the columns and
        how it is partitioned.
        """
        if self.version() is not None and not reshape:
            written = write_directly(self, frame, metadata, partition, condition)
            if written is not None:
                return written
        options = {"userMetadata": metadata, "overwriteSchema": str(reshape).lower(), **STATIC}
        writer = frame.write.format("delta").mode("overwrite").options(**options)
        if partition is not None:
            writer = writer.partitionBy(partition)
        if self.version() is None:
            writer = writer.options(**CHECKPOINTS | (dict([NAME_MAPPING]) if needs_mapping(frame.columns) else {}))
        elif condition != ALL:
            writer = writer.option("replaceWhere", condition)
        writer.save(self.path)
        metrics = tables.DeltaTable.forPath(self.spark, self.path).history(1).select("operationMetrics").first()
        return int(metrics[0].get("numOutputRows", 0)) if metrics is not None else 0

    def publish(self, rows: DataFrame, options: PlainOptions, metadata: str) -> None:
        """Make rows all that the table has, and their columns its schema; creates it if there is none."""
        # what once needed a mapping keeps it: Delta does not take its feature from a table
        mapped = needs_mapping(rows.columns) or (self.version() is not None and self.metadata().is_mapped)
        form = form_digest(rows.schema, options, mapped=mapped)
        if self.version() is not None and self._property(FORM) == form and self._is_as_published(rows.schema):
            self.replace_where(rows, ALL, metadata, None)
            return
        mapping = {NAME_MAPPING[0]: NAME_MAPPING[1] if mapped else "none"}
        properties = {**PLAIN_TABLE, **CHECKPOINTS, **mapping, **dict(options.properties), FORM: form}
        clauses = [f"spark_catalog.delta.{quoted(self.path)} USING delta"]  # whatever the current catalog is
        if options.cluster_by:
            clauses.append(f"CLUSTER BY ({', '.join(map(quoted, options.cluster_by))})")
        if options.comment:
            clauses.append(f"COMMENT {literal(options.comment)}")
        clauses.append(f"TBLPROPERTIES ({', '.join(f'{literal(k)} = {literal(v)}' for k, v in properties.items())})")
        text = " ".join(clauses).replace("{", "{{").replace("}", "}}")  # Spark formats it with the rows
        cast(Any, self.spark).sql(f"CREATE OR REPLACE TABLE {text} AS SELECT * FROM {{rows}}", rows=rows)

    def reader_features(self) -> tuple[str, ...]:
        """Return the features of Delta that a reader of the latest version has to support, in order."""
        protocol = self._latest().protocol()
        named = catalyst.option(protocol.readerFeatures())
        if named is None:
            return ("columnMapping",) if int(protocol.minReaderVersion()) > 1 else ()
        return tuple(sorted(map(str, catalyst.sequence(named.toSeq()))))

    def _is_as_published(self, schema: StructType) -> bool:
        """Return whether nobody else gave the table other columns, or deletion vectors."""
        ours, now = (
            [(field.name, field.dataType.simpleString()) for field in fields] for fields in (schema, self.schema())
        )
        return ours == now and self._property("delta.enableDeletionVectors") == "false"

    def _property(self, name: str) -> str | None:
        value = catalyst.option(self._latest().metadata().configuration().get(name))
        return None if value is None else str(value)

    def in_partitions(self, version: int, condition: str) -> DataFrame:
        """Return the rows of the partitions that fulfil a condition, by the files that the checksum lists if it can."""
        snapshot = self._snapshot_at(version)
        files = known_files(snapshot)
        rows = (
            self._load(version) if files is None else self._frame(snapshot, files, vectors=has_vectors(snapshot, files))
        )
        return rows.where(condition)

    def replace_partitions(self, frame: DataFrame, condition: str, mark: Mark, partition: str) -> bool:
        """Replace the rows of some partitions by a direct commit; False, with nothing written, if there can be none."""
        return write_directly(self, frame, mark, partition, condition) is not None

    def merge(
        self,
        source: DataFrame,
        condition: str,
        clauses: Sequence[Clause],
        mark: Mark,
        partitions: str | None = None,
        matched: int | None = None,
        interval: KeyInterval | None = None,
    ) -> bool:
        """Merge `source` (alias u) into the table (alias t); returns whether by a direct commit."""
        few = partitions is not None
        if few and merge_directly(self, source, condition, clauses, mark, partitions, matched, interval):
            return True
        if matched is not None:
            return False
        session = catalyst.isolate_session(self.spark)  # Delta takes the mark from its settings
        for name, value in mark.settings.items():
            session.conf.set(name, value)
        table = tables.DeltaTable.forPath(session, self.path).alias("t")
        builder = cast(Any, table.merge(source.alias("u"), condition))  # its types forbid a clause without a condition
        for clause in clauses:
            match clause:
                case Clause("delete", when, _):
                    builder = builder.whenMatchedDelete(when)
                case Clause("update", when, values):
                    builder = builder.whenMatchedUpdate(when, dict(values))
                case Clause("insert", when, values):
                    builder = builder.whenNotMatchedInsert(when, dict(values))
                case _:
                    raise ValueError(clause.action)
        builder.execute()
        return False

    def touch(self, mark: Mark) -> bool:
        """Make a commit without rows, which only carries the mark; returns whether by a direct one."""
        if write_directly(self, None, mark) is not None:
            return True
        return self._write(self.at(int(self._latest().version())).limit(0), mark, "append", None, name_mapping=False)

    def _write(self, frame: DataFrame, mark: Mark, mode: str, partition: str | None, *, name_mapping: bool) -> bool:
        replaced = ALL if mode == "overwrite" else None
        if self.version() is not None and write_directly(self, frame, mark, partition, replaced) is not None:
            return True
        options = {"txnAppId": mark.application, "txnVersion": str(mark.epoch), "userMetadata": mark.metadata, **STATIC}
        if self.version() is None:
            options |= NEW_TABLE | (dict([NAME_MAPPING]) if name_mapping else {})
        writer = frame.write.format("delta").mode(mode).options(**options)
        if partition is not None:
            writer = writer.partitionBy(partition)
        writer.save(self.path)
        return False

    def _frame(self, snapshot: J, files: J, *, vectors: bool) -> DataFrame:
        log = self.log
        described = snapshot if vectors else without_vectors(self.spark, log, snapshot)
        return rows_of_files(self.spark, log, described, files)

    def _latest(self) -> J:
        return latest_snapshot(self.spark, self.path, self.log)

    def _snapshot(self, version: int | None) -> J:
        return self._latest() if version is None else self._snapshot_at(version)

    def _snapshot_at(self, version: int) -> J:
        latest = self._latest()
        if int(latest.version()) == version:  # Delta would give the one it has, though the table was replaced since
            return latest
        try:
            return snapshot_at(self.path, self.log, latest, version)
        except JavaError as error:
            raise unreadable_version(self.label, version) from error

    def partitions(self, small_bytes: int) -> tuple[PartitionFiles, ...]:
        """Return the partitions of the latest version; one for an unpartitioned table. small_bytes: see Tuning."""
        return partition_files(self.spark, self._latest(), small_bytes)

    def sort(self, buckets: Sequence[str], keys: Sequence[str], files: int, metadata: str) -> None:
        """Rewrite some buckets of a state sorted by its lineage key: each as one file, or all as about `files`."""
        version = self.version()
        assert version is not None
        condition = f"{BUCKET} IN ({', '.join(buckets)})"
        rows = arrange(self.at(version).where(condition), len(buckets), keys, files)
        options = {"dataChange": "false", "replaceWhere": condition, "userMetadata": metadata}
        rows.write.format("delta").mode("overwrite").options(**options).save(self.path)

    def restore(self, version: int) -> None:
        """Make the rows of an earlier version the latest ones, by Delta's RESTORE."""
        tables.DeltaTable.forPath(self.spark, self.path).restoreToVersion(version)

    def compact(self, condition: str) -> None:
        """Run Delta's OPTIMIZE on the partitions that fulfil a condition; `true` for all."""
        # in SQL, since Delta's own builder does not quote a backtick in the path; it takes no WHERE without partitions
        where = "" if condition == "true" else f" WHERE {condition}"
        cast(Any, self.spark).sql(f"OPTIMIZE delta.{quoted(self.path)}{where}").collect()

    def remove_older(self, hours: float) -> None:
        """Vacuum: remove the files that no version of the last `hours` uses, rounded up to whole hours."""
        # in a session of its own, so that no other write gets these settings
        spark = catalyst.isolate_session(self.spark)
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        spark.conf.set("spark.databricks.delta.vacuum.logging.enabled", "false")  # its commits would look like changes
        tables.DeltaTable.forPath(spark, self.path).vacuum(math.ceil(hours))  # Delta rounds 0.4 hours to none

    def clone(self, origin: VersionedTable, version: int) -> None:
        """Make this table a shallow clone of a version of another: its files are read where they are."""
        cast(Any, self.spark).sql(
            f"CREATE TABLE delta.{quoted(self.path)} SHALLOW CLONE delta.{quoted(origin.path)} VERSION AS OF {version}"
        ).collect()

    def needed_hours(self, version: int) -> float | None:
        """Return how many hours a vacuum must retain to keep all files of a version; None if no vacuum may run.

        0 if no later version has removed any. A vacuum compares the time when a file was removed, which Delta forgets
        after a while (`deletedFileRetentionDuration`); then it would remove the file as one that no version uses.
        """
        latest = self.version()
        if latest is None or version >= latest:
            return 0.0
        try:
            removed = first_removal(self.spark, self.log, version + 1, latest)
        except JavaError:
            return None
        if removed is None:
            return 0.0
        hours = (time.time() - removed) / HOUR + MARGIN_HOURS
        return hours if hours < self._tombstone_hours else None

    def usage(self) -> tuple[int, int]:
        """Return the files and bytes that are stored, those of old versions included, Delta's log excluded."""
        if is_uri(self.path):
            (files, size), log = usage(self.path), usage(f"{self.path}/_delta_log")
            return files - log[0], size - log[1]
        sizes = [
            (Path(folder) / name).stat().st_size
            for folder, _, names in os.walk(self.path)
            for name in names
            if "_delta_log" not in Path(folder).parts and not name.endswith(".crc")
        ]
        return len(sizes), sum(sizes)

    @property
    def _tombstone_hours(self) -> float:
        """Return the hours for which Delta's log records when a file was removed."""
        delta = catalyst.sql(self.spark).delta
        millis = delta.DeltaLog.tombstoneRetentionMillis(self._latest().metadata())
        return float(millis) / 1000 / HOUR - MARGIN_HOURS


def form_digest(schema: StructType, options: PlainOptions, *, mapped: bool) -> str:
    """Return a digest of the columns and options of a plain table."""
    text = repr((schema.simpleString(), options.digest, mapped))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class DeltaLake:
    """The lake for production: Delta tables at paths."""

    def table(self, spark: SparkSession, path: str) -> Table:
        """Return the Delta table at a path, which may not exist yet."""
        return DeltaTable(spark, path)


DELTA: Lake = DeltaLake()
