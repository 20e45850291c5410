"""What is written to a table in memory, by Deltafold and by others."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from incremental.algebra.sqltext import quoted
from incremental.lake.commit_tag import Mark
from incremental.lake.files import Commit, File, Identity, needs_mapping
from incremental.lake.memory.log import Form, Rows, Version
from incremental.lake.memory.merge import merged
from incremental.lake.memory.reads import MemoryReads
from incremental.lake.memory.rows import ROW, collected, count, empty_relation, frame, shaped, with_places, without
from incremental.lake.protocol import Clause
from incremental.spark.catalyst import J

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
        """A commit without rows, which only carries the mark."""
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
        come, leave = self._exchange(self._places(condition), added)
        self._commit(come, leave)
        whole = [file for file in come if not file.identity[1]]  # rewritten ones too, as Delta counts
        return rows_in_files(whole)

    def in_partitions(self, version: int, condition: str) -> DataFrame:
        """The rows of the partitions that fulfil a condition."""
        return self.at(version).where(condition)

    def replace_partitions(self, frame: DataFrame, condition: str, mark: Mark, partition: str) -> bool:
        """Replace the rows of the partitions that fulfil a condition."""
        if not self._is_done(mark):
            form = self.latest.form
            enforce(form, frame, partition)
            added = self._files(frame, form)
            self._check_replaced(added, condition)
            self._commit(*self._exchange(self._places(condition), added), mark=mark)
        return True

    def merge(self, source: DataFrame, condition: str, clauses: Sequence[Clause], mark: Mark) -> None:
        """One MERGE of `source` (alias u) into the table (alias t)."""
        if self._is_done(mark):
            return
        places, rows = merged(with_places(self.spark, self.latest.relation), source, condition, clauses)
        added = self._files(rows, self.latest.form)
        self._commit(*self._exchange(places, added), mark=mark)

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
        """Delete rows."""
        if places := self._places(condition):
            self._commit(*self._exchange(places, []))

    def update(self, values: Mapping[str, str], condition: str) -> None:
        """Write rows anew with other values."""
        form = self.latest.form
        rows = with_places(self.spark, self.latest.relation).where(condition)
        new = {name.strip("`"): F.expr(value) for name, value in values.items()}
        changed = rows.select(*(new.get(f.name, F.col(quoted(f.name))).alias(f.name) for f in form.schema))
        if places := self._places(condition):
            self._commit(*self._exchange(places, self._files(changed, form)))

    def replace_files(self, gone: Collection[Identity], rows: DataFrame) -> None:
        """Remove some files and add rows."""
        removed = [file for identity, file in self.latest.files.items() if identity in gone]
        self._commit(self._files(rows, self.latest.form), removed)

    def restore(self, version: int) -> None:
        """Let the table be what it was: files that left since come again."""
        files, then = self.latest.files, self._at(version)
        added = [file for identity, file in then.files.items() if identity not in files]
        removed = [file for identity, file in files.items() if identity not in then.files]
        self._commit(added, removed, form=then.form)

    def add_column(self, name: str, data_type: DataType) -> None:
        """Add a column, NULL in the rows that are there."""
        form = self.latest.form
        schema = StructType([*form.schema.fields, StructField(name, data_type)])
        self._commit([], [], form=replace(form, schema=schema, like=empty_relation(self.spark, schema)))

    def _form(self, rows: DataFrame, form: Form) -> Form:
        """A form with the columns of a frame."""
        if needs_mapping(rows.columns) and not form.mapped:
            raise AnalysisException(f"[DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES] {', '.join(rows.columns)}")
        schema = StructType([StructField(field.name, field.dataType) for field in rows.schema])
        return replace(form, schema=schema, like=empty_relation(self.spark, schema))

    def _files(self, rows: DataFrame, form: Form) -> list[File]:
        """The rows of a frame as files, one a partition."""
        whole = collected(shaped(rows, form.schema), form.like)
        if form.partition is None:
            return [self._file(whole, form, None)] if count(whole) else []
        value = F.col(quoted(form.partition)).cast("string")
        found = dict.fromkeys(row[0] for row in frame(self.spark, whole).select(value).collect())
        if len(found) == 1:
            return [self._file(whole, form, next(iter(found)))]
        parts = {each: frame(self.spark, whole).where(value.eqNullSafe(F.lit(each))) for each in found}
        return [self._file(collected(part, form.like), form, each) for each, part in parts.items()]

    @staticmethod
    def _file(rows: J, form: Form, partition: str | None) -> File:
        number = count(rows)
        return File((f"{uuid.uuid4()}.memory", ""), number, ROW_BYTES * number, Rows(rows, form.schema, partition))

    def _places(self, condition: str) -> list[int]:
        """Where the rows are that fulfil a condition."""
        rows = with_places(self.spark, self.latest.relation).where(condition).select(ROW)
        return [int(row[0]) for row in rows.collect()]

    def _exchange(self, places: Sequence[int], added: Sequence[File]) -> tuple[list[File], list[File]]:
        """What a commit adds and removes that lets the rows at some places go and files come."""
        come, leave = [*added], list[File]()
        for file, gone in self._by_file(places):
            leave.append(file)
            if len(gone) < (file.rows or 0):
                come.append(self._less(file, gone))
        return come, leave

    def _by_file(self, places: Sequence[int]) -> Iterator[tuple[File, list[int]]]:
        start = 0
        for file in self.latest.files.values():
            end = start + (file.rows or 0)
            if gone := [place - start for place in places if start <= place < end]:
                yield file, gone
            start = end

    def _less(self, file: File, gone: Sequence[int]) -> File:
        """A file less some rows: with another deletion vector, or as another file."""
        form, held = self.latest.form, file.action
        rows = without(self.spark, held.relation, gone)
        if not form.vectors:
            return replace(self._file(rows, form, held.partition), action=replace(held, relation=rows))
        identity = file.identity[0], str(uuid.uuid4())
        action = replace(held, relation=rows, deleted=held.deleted + len(gone))
        return replace(file, identity=identity, rows=count(rows), action=action)

    def _check_replaced(self, files: Sequence[File], condition: str) -> None:
        """Refuse rows that do not fulfil the condition whose rows they replace."""
        for file in files:
            fulfilled = F.coalesce(F.expr(condition), F.lit(False))
            if not frame(self.spark, file.action.relation).where(~fulfilled).isEmpty():
                raise AnalysisException(f"[DELTA_REPLACE_WHERE_MISMATCH] rows do not fulfil {condition}")

    def _is_done(self, mark: Mark | None) -> bool:
        """Whether a mark's epoch, or a later one, was written already."""
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
    """How many rows files have."""
    return sum(file.rows or 0 for file in files)


def enforce(form: Form, rows: DataFrame, partition: str | None) -> None:
    """Refuse columns that the table does not have, types that are others, and another partition column."""
    types = {field.name: field.dataType for field in form.schema}
    for field in rows.schema:
        if types.get(field.name) != field.dataType:
            raise AnalysisException(f"[DELTA_METADATA_MISMATCH] {field.name} {field.dataType.simpleString()}")
    if partition is not None and partition != form.partition:
        raise AnalysisException(f"[DELTA_PARTITION_COLUMN_MISMATCH] {partition}")
