"""Write to a table in memory, as Deltafold and as other writers do."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from deltafold.algebra.sqltext import quoted, unquote
from deltafold.lake.commit_tag import Mark
from deltafold.lake.files import Commit, File, Identity, needs_mapping
from deltafold.lake.memory.log import Form, Rows, Version
from deltafold.lake.memory.merge import plan_merge
from deltafold.lake.memory.reads import MemoryReads
from deltafold.lake.memory.rows import (
    ROW,
    compute_rows,
    conform,
    count,
    drop_positions,
    empty_relation,
    frame_of_rows,
    number_rows,
)
from deltafold.lake.protocol import Clause
from deltafold.spark.catalyst import J

ROW_BYTES = 100


class MemoryWrites(MemoryReads):
    """One table in memory. Every method makes at most one commit."""

    def append(self, frame: DataFrame, mark: Mark, partition: str | None, name_mapping: bool = False) -> bool:
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
        self, frame: DataFrame, condition: str, metadata: str, partition: str | None, reshape: bool = False
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
            form = self._form(frame, Form(StructType(), None, partition, vectors, mapped))
        elif reshape:
            form = self._form(frame, replace(head.form, partition=partition))
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
        found = dict.fromkeys(row[0] for row in frame_of_rows(self.spark, whole).select(value).collect())
        if len(found) == 1:
            return [self._file(whole, form, next(iter(found)))]
        parts = {each: frame_of_rows(self.spark, whole).where(value.eqNullSafe(F.lit(each))) for each in found}
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
        done = Commit([*added], [*removed], compacts or not (added or removed))
        self.log.advance(self.folder, Version(number, table, shape, files, epochs, done, head))


def rows_in_files(files: Sequence[File]) -> int:
    """Return the number of rows of some files."""
    return sum(file.rows or 0 for file in files)


def enforce(form: Form, rows: DataFrame, partition: str | None) -> None:
    """Raise AnalysisException for a column or type that the table does not have, and for another partition column."""
    types = {field.name: field.dataType for field in form.schema}
    for field in rows.schema:
        if types.get(field.name) != field.dataType:
            raise AnalysisException(f"[DELTA_METADATA_MISMATCH] {field.name} {field.dataType.simpleString()}")
    if partition is not None and partition != form.partition:
        raise AnalysisException(f"[DELTA_PARTITION_COLUMN_MISMATCH] {partition}")
