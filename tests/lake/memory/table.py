"""Implement the lake in memory: tables as their readers and writers see them, and the layout of their files."""

from __future__ import annotations

import math
import os
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from deltafold.algebra.plain_options import PlainOptions
from deltafold.algebra.sqltext import quoted, unquote
from deltafold.lake.files import Commit, File, Identity, needs_mapping
from deltafold.lake.key_interval import KeyInterval
from deltafold.lake.physical_layout import arrange
from deltafold.lake.protocol import (
    HOUR,
    MARGIN_HOURS,
    Clause,
    Mark,
    Metadata,
    PartitionFiles,
    Table,
    VersionedTable,
    unreadable_version,
)
from deltafold.spark.catalyst import J
from tests.lake.memory.log import Form, MemoryLog, Rows, Version
from tests.lake.memory.rows import (
    ROW,
    compute_rows,
    conform,
    count,
    drop_positions,
    empty_relation,
    frame_of_rows,
    materialize,
    number_rows,
    subtract,
)

ROW_BYTES = 100


@dataclass(frozen=True, eq=False)
class MemoryLake:
    """Tables in memory; a file in each table's folder names its last commit."""

    log: MemoryLog = field(default_factory=MemoryLog)

    def copied(self) -> MemoryLake:
        """Return the lake of a copy of all folders: what is vacuumed in the one is not in the other."""
        return MemoryLake(MemoryLog(self.log.versions, {*self.log.vacuumed}))

    def table(self, spark: SparkSession, path: str) -> Table:
        """Return the table at a path, which may not exist yet."""
        return self.written_by_others(spark, path)

    def written_by_others(self, spark: SparkSession, path: str) -> MemoryTable:
        """Return the same table with the operations of other writers: write, delete, update, restore, add_column."""
        return MemoryTable(spark, path, self.log)


class MemoryTable:
    """One table in memory, for Deltafold and for other writers. A method makes at most one commit."""

    def __init__(self, spark: SparkSession, path: str, log: MemoryLog) -> None:
        self.spark, self.path, self.log = spark, path, log

    @property
    def folder(self) -> Path:
        """The folder of the table."""
        return Path(self.path.removeprefix("file:"))

    @property
    def label(self) -> str:
        """The name of the table in messages."""
        return self.path

    @property
    def place(self) -> str:
        """The location of the table, the same however its path is written."""
        return os.path.realpath(self.folder)

    @property
    def latest(self) -> Version:
        """The last version; raises SourceError where there is no table."""
        head = self.log.head(self.folder)
        if head is None:
            raise unreadable_version(self.path, -1)
        return head

    def version(self) -> int | None:
        """Return the latest version, None if there is no table."""
        head = self.log.head(self.folder)
        return None if head is None else head.number

    def metadata(self, version: int | None = None) -> Metadata:
        """Return the metadata of a version; the files have the names of the schema, and there is no feed."""
        recorded = self._version(version)
        columns = () if recorded.form.partition is None else (recorded.form.partition,)
        return Metadata(id=recorded.table, partition_columns=columns, is_mapped=recorded.form.mapped)

    def commit_id(self, version: int) -> str:
        """Return the id of the commit that made a version; empty if there is no such version."""
        return next((each.commit for each in self.latest.back() if each.number == version), "")

    def schema(self, version: int | None = None) -> StructType:
        """Return the schema of a version or of the latest."""
        return self._version(version).form.schema

    def epoch(self, application: str) -> int | None:
        """Return the last epoch that an application wrote, None if it wrote none."""
        return self.latest.epochs.get(application)

    def size(self, version: int | None = None) -> tuple[int, int]:
        """Return the files and bytes of a version, or of the latest."""
        files = self._version(version).files.values()
        return len(files), sum(file.bytes for file in files)

    def files(self, version: int) -> dict[Identity, File]:
        """Return the data files of a version by identity."""
        return dict(self._recorded_version(version).files)

    def compare(self, before: int, after: int) -> tuple[list[File], list[File]]:
        """Return the files that only version `before` has, and those that only version `after` has."""
        old, new = self.files(before), self.files(after)
        return [old[each] for each in old if each not in new], [new[each] for each in new if each not in old]

    def rows(self, version: int) -> int | None:
        """Return the number of rows of a version."""
        return sum(file.rows or 0 for file in self.files(version).values())

    def commits(self, before: int, after: int, most: int | None = None) -> list[Commit] | None:
        """Return the files added and removed by each commit; None if the partition column changed in between.

        most: ignored, since all of them are known.
        """
        versions = [version for version in self.latest.back() if before <= version.number <= after]
        if len({version.form.partition for version in versions}) > 1 or len(versions) != after - before + 1:
            return None
        return [version.done for version in reversed(versions) if version.number > before]

    def feed(self, before: int, after: int) -> DataFrame:
        """Raise NotImplementedError: there is none to read."""
        raise NotImplementedError

    def present(self, files: Sequence[File]) -> bool:
        """Return whether none of the files was vacuumed."""
        return self._find_vacuumed(files) is None

    def find_missing(self, version: int) -> str | None:
        """Return the path of a file of a version that no longer exists; None if all do."""
        return self._find_vacuumed(list(self.files(version).values()))

    def rows_of(self, version: int, files: Sequence[File]) -> DataFrame:
        """Return the rows of some files, by the schema of a version."""
        self._check(files)
        return frame_of_rows(self.spark, self._recorded_version(version).rows_of(files))

    def rows_between(self, version: int, before: Sequence[File], after: Sequence[File]) -> DataFrame:
        """Return the rows by which the deletion vectors of the same files differ, with a column `_change_type`."""
        self._check([*before, *after])
        old, new = (self._recorded_version(version).rows_of(files) for files in (before, after))
        sides = ((subtract(old, new), "delete"), (subtract(new, old), "insert"))
        deleted, inserted = (
            frame_of_rows(self.spark, rows).selectExpr("*", f"'{change}' AS _change_type") for rows, change in sides
        )
        return deleted.unionAll(inserted)

    def at(self, version: int) -> DataFrame:
        """Return the table as of a version."""
        recorded = self._recorded_version(version)
        self._check(list(recorded.files.values()))
        return frame_of_rows(self.spark, recorded.relation)

    def scan(self, version: int) -> DataFrame:
        """Return the same rows, checkpointed: Spark folds expressions over a LocalRelation while it optimises."""
        return self.at(version).coalesce(1).localCheckpoint(eager=False)

    def _version(self, version: int | None) -> Version:
        return self.latest if version is None else self._recorded_version(version)

    def _recorded_version(self, version: int) -> Version:
        latest = self.log.head(self.folder)
        recorded = next((each for each in latest.back() if each.number == version), None) if latest else None
        if recorded is None:
            raise unreadable_version(self.path, version)
        return recorded

    def _check(self, files: Sequence[File]) -> None:
        if (path := self._find_vacuumed(files)) is not None:
            raise AnalysisException(f"[FAILED_READ_FILE.FILE_NOT_EXIST] {path} is gone")

    def _find_vacuumed(self, files: Sequence[File]) -> str | None:
        """Return the path of one of some files that was vacuumed; None if none was."""
        vacuumed = (file.identity[0] for file in files if file.identity[0] in self.log.vacuumed)
        return next((f"{self.path}/{name}" for name in vacuumed), None)

    def append(self, frame: DataFrame, mark: Mark, partition: str | None, *, name_mapping: bool = False) -> bool:
        """Add rows, creating the table if there is none."""
        self.write(frame, "append", partition, mark=mark, mapped=name_mapping)
        return True

    def overwrite(self, frame: DataFrame, mark: Mark, partition: str | None) -> bool:
        """Replace all rows."""
        self.write(frame, "overwrite", partition, mark=mark)
        return True

    def touch(self, mark: Mark) -> bool:
        """Make a commit without rows, which only carries the mark."""
        self._commit([], [], mark=mark)
        return True

    def replace_where(
        self, frame: DataFrame, condition: str, metadata: str, partition: str | None, *, reshape: bool = False
    ) -> int:
        """Replace the rows that fulfil a condition with those of the frame; returns the rows written."""
        if self.version() is None or condition == "true":
            mapped = self.version() is None and needs_mapping(frame.columns)
            return self.write(frame, "overwrite", partition, reshape=reshape, mapped=mapped, vectors=False)
        form = self.latest.form
        enforce(form, frame, partition)
        added = self._files(frame, form)
        self._check_replaced(added, condition)
        added, removed = self._replace_rows(self._positions(condition), added)
        self._commit(added, removed)
        return rows_in_files([file for file in added if not file.identity[1]])  # rewritten ones too, as Delta counts

    def publish(self, rows: DataFrame, options: PlainOptions, metadata: str) -> None:
        """Make rows all that the table has, and their columns its schema; the options are not kept."""
        self.write(rows, "overwrite", None, reshape=True, mapped=needs_mapping(rows.columns), vectors=False)

    def reader_features(self) -> tuple[str, ...]:
        """Return the features that a reader of the latest version has to support."""
        form = self.latest.form
        features = {"columnMapping": form.mapped, "deletionVectors": form.vectors}
        return tuple(name for name, needed in features.items() if needed)

    def in_partitions(self, version: int, condition: str) -> DataFrame:
        """Return the rows of the partitions that fulfil a condition."""
        return self.at(version).where(condition)

    def replace_partitions(self, frame: DataFrame, condition: str, mark: Mark, partition: str) -> bool:
        """Replace the rows of the partitions that fulfil a condition."""
        if not self._is_done(mark):
            form = self.latest.form
            enforce(form, frame, partition)
            added = self._files(frame, form)
            self._check_replaced(added, condition)
            self._commit(*self._replace_rows(self._positions(condition), added), mark=mark)
        return True

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
        """Merge `source` (alias u) into the table (alias t)."""
        if self._is_done(mark):
            return True
        positions, rows = plan_merge(number_rows(self.spark, self.latest.relation), source, condition, clauses)
        if matched is not None and matched != len(positions):
            return False
        added = self._files(rows, self.latest.form)
        self._commit(*self._replace_rows(positions, added), mark=mark)
        return partitions is not None

    def write(
        self,
        frame: DataFrame,
        mode: str = "append",
        partition: str | None = None,
        *,
        mark: Mark | None = None,
        reshape: bool = False,
        mapped: bool = False,
        vectors: bool = True,
    ) -> int:
        """Append rows, or replace all (`overwrite`); returns the rows written.

        reshape: the table takes the columns of the frame, and this partition column; mapped, vectors: see Form, for a
        new table.
        """
        if self._is_done(mark):
            return 0
        head = self.log.head(self.folder)
        if head is None:
            form = self._form(
                frame, Form(schema=StructType(), like=None, partition=partition, vectors=vectors, mapped=mapped)
            )
        elif reshape:
            mapped = mapped or head.form.mapped
            form = self._form(frame, replace(head.form, partition=partition, mapped=mapped))
        else:
            form = head.form
            enforce(form, frame, partition)
        added = self._files(frame, form)
        removed = [] if head is None or mode == "append" else list(head.files.values())
        self._commit(added, removed, mark=mark, form=form)
        return rows_in_files(added)

    def delete(self, condition: str) -> None:
        """Delete the rows that fulfil a condition."""
        if positions := self._positions(condition):
            self._commit(*self._replace_rows(positions, []))

    def update(self, values: Mapping[str, str], condition: str) -> None:
        """Update columns of the rows that fulfil a condition."""
        form = self.latest.form
        rows = number_rows(self.spark, self.latest.relation).where(condition)
        new = {unquote(name): F.expr(value) for name, value in values.items()}
        changed = rows.select(*(new.get(f.name, F.col(quoted(f.name))).alias(f.name) for f in form.schema))
        if positions := self._positions(condition):
            self._commit(*self._replace_rows(positions, self._files(changed, form)))

    def replace_files(self, identities: Collection[Identity], rows: DataFrame) -> None:
        """Remove some files and add rows, in one commit."""
        removed = [file for identity, file in self.latest.files.items() if identity in identities]
        self._commit(self._files(rows, self.latest.form), removed)

    def restore(self, version: int) -> None:
        """Restore an earlier version: add the files removed since, remove those added since."""
        files, then = self.latest.files, self._recorded_version(version)
        added = [file for identity, file in then.files.items() if identity not in files]
        removed = [file for identity, file in files.items() if identity not in then.files]
        self._commit(added, removed, form=then.form)

    def add_column(self, name: str, data_type: DataType) -> None:
        """Add a column, NULL in the existing rows."""
        form = self.latest.form
        schema = StructType([*form.schema.fields, StructField(name, data_type)])
        self._commit([], [], form=replace(form, schema=schema, like=empty_relation(self.spark, schema)))

    def _form(self, rows: DataFrame, form: Form) -> Form:
        """Return a form with the columns of a frame."""
        if needs_mapping(rows.columns) and not form.mapped:
            raise AnalysisException(f"[DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES] {', '.join(rows.columns)}")
        schema = StructType([StructField(field.name, field.dataType) for field in rows.schema])
        return replace(form, schema=schema, like=empty_relation(self.spark, schema))

    def _files(self, rows: DataFrame, form: Form) -> list[File]:
        """Return the rows of a frame as files, one per partition."""
        whole = compute_rows(conform(rows, form.schema), form.like)
        if form.partition is None:
            return [self._file(whole, form, None)] if count(whole) else []
        value = F.col(quoted(form.partition)).cast("string")
        values = dict.fromkeys(row[0] for row in frame_of_rows(self.spark, whole).select(value).collect())
        if len(values) == 1:
            return [self._file(whole, form, next(iter(values)))]
        parts = {each: frame_of_rows(self.spark, whole).where(value.eqNullSafe(F.lit(each))) for each in values}
        return [self._file(compute_rows(part, form.like), form, each) for each, part in parts.items()]

    @staticmethod
    def _file(rows: J, form: Form, partition: str | None) -> File:
        number = count(rows)
        return File((f"{uuid.uuid4()}.memory", ""), number, ROW_BYTES * number, Rows(rows, form.schema, partition))

    def _positions(self, condition: str) -> list[int]:
        """Return the positions of the rows that fulfil a condition."""
        rows = number_rows(self.spark, self.latest.relation).where(condition).select(ROW)
        return [int(row[0]) for row in rows.collect()]

    def _replace_rows(self, positions: Sequence[int], added: Sequence[File]) -> tuple[list[File], list[File]]:
        """Return the files that a commit adds and removes to replace the rows at some positions by new files."""
        all_added, removed = [*added], list[File]()
        for file, within in self._by_file(positions):
            removed.append(file)
            if len(within) < (file.rows or 0):
                all_added.append(self._remove_rows(file, within))
        return all_added, removed

    def _by_file(self, positions: Sequence[int]) -> Iterator[tuple[File, list[int]]]:
        start = 0
        for file in self.latest.files.values():
            end = start + (file.rows or 0)
            if within := [position - start for position in positions if start <= position < end]:
                yield file, within
            start = end

    def _remove_rows(self, file: File, positions: Sequence[int]) -> File:
        """Remove rows from a file, by another deletion vector or by writing another file."""
        form, stored = self.latest.form, file.action
        rows = drop_positions(self.spark, stored.relation, positions)
        if not form.vectors:
            return replace(self._file(rows, form, stored.partition), action=replace(stored, relation=rows))
        identity = file.identity[0], str(uuid.uuid4())
        action = replace(stored, relation=rows, deleted=stored.deleted + len(positions))
        return replace(file, identity=identity, rows=count(rows), action=action)

    def _check_replaced(self, files: Sequence[File], condition: str) -> None:
        """Raise AnalysisException for rows that do not fulfil the condition whose rows they replace."""
        for file in files:
            fulfilled = F.coalesce(F.expr(condition), F.lit(False))
            if not frame_of_rows(self.spark, file.action.relation).where(~fulfilled).isEmpty():
                raise AnalysisException(f"[DELTA_REPLACE_WHERE_MISMATCH] rows do not fulfil {condition}")

    def _is_done(self, mark: Mark | None) -> bool:
        """Return whether the mark's epoch, or a later one, has been written."""
        head = self.log.head(self.folder)
        return mark is not None and head is not None and head.epochs.get(mark.application, -1) >= mark.epoch

    def _commit(
        self,
        added: Sequence[File],
        removed: Sequence[File],
        *,
        mark: Mark | None = None,
        form: Form | None = None,
        compacts: bool = False,
    ) -> None:
        head = self.log.head(self.folder)
        if self._is_done(mark):
            return
        files = {} if head is None else dict(head.files)
        for file in removed:
            del files[file.identity]
        files |= {file.identity: file for file in added}
        epochs = ({} if head is None else dict(head.epochs)) | ({} if mark is None else {mark.application: mark.epoch})
        number, table = (0, str(uuid.uuid4())) if head is None else (head.number + 1, head.table)
        shape = form or (head and head.form)
        assert shape is not None
        done = Commit(added=[*added], removed=[*removed], compacts=compacts or not (added or removed))
        self.log.advance(
            self.folder,
            Version(number=number, table=table, form=shape, files=files, epochs=epochs, done=done, previous=head),
        )

    def partitions(self, small_bytes: int) -> tuple[PartitionFiles, ...]:
        """Return the partitions of the latest version; one for an unpartitioned table. small_bytes: see Tuning."""
        by_value: dict[str | None, PartitionFiles] = {}
        for file in self.latest.files.values():
            value, deleted = file.action.partition, file.action.deleted
            part, rows = by_value.get(value, PartitionFiles(value=value)), (file.rows or 0) + deleted
            small = part.small + (file.bytes < small_bytes)
            by_value[value] = PartitionFiles(
                value=value, files=part.files + 1, small=small, rows=part.rows + rows, deleted=part.deleted + deleted
            )
        return tuple(by_value.values())

    def sort(self, buckets: Sequence[str], keys: Sequence[str], files: int, metadata: str) -> None:
        """Rewrite some buckets of a state sorted by its lineage key: each as one file, or all as about `files`."""
        removed = [file for file in self.latest.files.values() if file.action.partition in buckets]
        rows = frame_of_rows(self.spark, self.latest.rows_of(removed))
        self._commit(self._files(arrange(rows, len(buckets), keys, files), self.latest.form), removed, compacts=True)

    def compact(self, condition: str) -> None:
        """Rewrite the files of each partition that fulfils a condition as one; no commit if each has one already."""
        chosen = {file.identity for file, _ in self._by_file(self._positions(condition))}
        by_partition: dict[str | None, list[File]] = {}
        for identity, file in self.latest.files.items():
            if identity in chosen:
                by_partition.setdefault(file.action.partition, []).append(file)
        fragmented = [files for files in by_partition.values() if len(files) > 1 or files[0].action.deleted]
        form = self.latest.form
        added = [self._file(self.latest.rows_of(files), form, files[0].action.partition) for files in fragmented]
        if added:
            self._commit(added, [file for files in fragmented for file in files], compacts=True)

    def clone(self, origin: VersionedTable, version: int) -> None:
        """Make this table a shallow clone of a version of another of this lake."""
        assert isinstance(origin, MemoryTable) and origin.log is self.log
        then = origin._recorded_version(version)
        self._commit(list(then.files.values()), [], form=then.form)

    def needed_hours(self, version: int) -> float | None:
        """Return how many hours a vacuum must retain to keep all files of a version."""
        head = self.log.head(self.folder)
        later = [] if head is None else [v for v in head.back() if v.number > version and v.done.removed]
        return (time.time() - later[-1].ended) / HOUR + MARGIN_HOURS if later else 0.0

    def remove_older(self, hours: float) -> None:
        """Remove the files that no version of the last `hours` uses, rounded up to whole hours."""
        latest, before = self.latest, time.time() - math.ceil(hours) * HOUR
        removed = {file.identity[0] for v in latest.back() if v.ended <= before for file in v.done.removed}
        self.log.discard(removed - {path for path, _ in latest.files})

    def usage(self) -> tuple[int, int]:
        """Return the stored files and bytes, old versions included; the original owns the first files of a clone."""
        owners = dict[str, str]()
        for version in self.log.versions.values():
            for file in version.done.added:
                owners.setdefault(file.identity[0], version.table)
        sizes = {file.identity[0]: file.bytes for v in self.latest.back() for file in v.done.added}
        ours = {path: size for path, size in sizes.items() if owners.get(path) == self.latest.table}
        stored = {path: size for path, size in ours.items() if path not in self.log.vacuumed}
        return len(stored), sum(stored.values())


def rows_in_files(files: Sequence[File]) -> int:
    """Return the number of rows of some files."""
    return sum(file.rows or 0 for file in files)


def enforce(form: Form, rows: DataFrame, partition: str | None) -> None:
    """Raise AnalysisException for a column or type that the table does not have, and for another partition column."""
    types = {column.name: column.dataType for column in form.schema}
    for column in rows.schema:
        if types.get(column.name) != column.dataType:
            raise AnalysisException(f"[DELTA_METADATA_MISMATCH] {column.name} {column.dataType.simpleString()}")
    if partition is not None and partition != form.partition:
        raise AnalysisException(f"[DELTA_PARTITION_COLUMN_MISMATCH] {partition}")


CHOSEN, SOURCE = "__chosen", "__source"


def plan_merge(
    target: DataFrame, source: DataFrame, condition: str, clauses: Sequence[Clause]
) -> tuple[list[int], DataFrame]:
    """Return the positions of the target's rows that are updated or deleted, and the rows that are written.

    target: with the positions of its rows in column ROW. Raises AnalysisException where several rows of the source
    match the same row, whether or not a clause applies to them, as Delta does.
    """
    pairs = target.alias("t").join(source.withColumn(SOURCE, F.lit(True)).alias("u"), F.expr(condition), "full")
    chosen, matched = F.lit(None).cast("int"), F.col(ROW).isNotNull() & F.col(SOURCE).isNotNull()
    for number, clause in reversed(list(enumerate(clauses))):
        side = F.col(ROW).isNull() if clause.action == "insert" else matched
        chosen = F.when(side & F.expr(clause.when or "true"), F.lit(number)).otherwise(chosen)
    names = [name for name in target.columns if name != ROW]
    matches = Counter(row[0] for row in pairs.where(matched).select(ROW).collect())
    if max(matches.values(), default=1) > 1 and not deletes_all_matches(clauses):
        raise AnalysisException("[DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE] several rows match one")
    numbered = pairs.withColumn(CHOSEN, chosen).where(f"{CHOSEN} IS NOT NULL")
    changed = materialize(numbered.select(*(choose_value(name, clauses).alias(name) for name in names), ROW, CHOSEN))
    positions = [int(row[0]) for row in changed.select(ROW).collect() if row[0] is not None]
    written = [number for number, clause in enumerate(clauses) if clause.action != "delete"]
    return sorted({*positions}), changed.where(F.col(CHOSEN).isin(written)).select(*map(quoted, names))


def deletes_all_matches(clauses: Sequence[Clause]) -> bool:
    """Return whether every matched row is deleted; then Delta allows several matches for one row."""
    return [(c.action, c.when) for c in clauses if c.action != "insert"] == [("delete", None)]


def choose_value(name: str, clauses: Sequence[Clause]) -> Column:
    """Return a column of the written rows: the value of the chosen clause, else the value in the target."""
    value = F.col(f"t.{quoted(name)}")
    for number, clause in enumerate(clauses):
        assigned = {unquote(key): each for key, each in clause.values.items()}.get(name)
        if assigned is not None or clause.action == "insert":
            new = assigned if isinstance(assigned, Column) else F.expr("NULL" if assigned is None else assigned)
            value = F.when(F.col(CHOSEN) == number, new).otherwise(value)
    return value
