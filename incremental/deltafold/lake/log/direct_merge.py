"""Merge few rows into a large Delta table: deletion vectors hide the old rows, new files have the new ones (D-121).

Delta's MERGE reads the files of a table three times (to find those with a match, to join all their rows, and to find
the rows to delete), and shuffles their rows once. Here one broadcast join, which reads them once, finds every matched
row with its place in its file; deletion vectors and new rows are written from those alone. Of files that are sorted by
the first key, only the pages are read that may have one of the change (key_interval.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.sqltext import quoted, unquote
from deltafold.lake.key_interval import KeyInterval
from deltafold.lake.log.actions import from_java, java_list
from deltafold.lake.log.delta_log import open_log
from deltafold.lake.log.direct_commit import DirectCommit
from deltafold.lake.log.file_lists import partition_columns, rows_of_files
from deltafold.lake.log.whole_files import rows_with_places
from deltafold.lake.protocol import Clause, Mark, VersionedTable
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J
from deltafold.spark.checkpoint import Checkpoints, in_one_task, plan_at_once

IN_FILE, AT_ROW, SOURCE_ROW, TAKEN_CLAUSE = "__file", "__position", "__source", "__clause"
FEW_ROWS = 50_000  # of a source that the driver holds


def merge_directly(
    table: VersionedTable,
    source: DataFrame,
    condition: str,
    clauses: Sequence[Clause],
    mark: Mark,
    partitions: str,
    matched: int | None = None,
    interval: KeyInterval | None = None,
) -> bool:
    """Merge a source of few rows (alias u) into a table (alias t), reading its files once; one commit.

    partitions: a condition of t's partition columns that all matched rows fulfil. matched: how many rows of t must
    match. interval: see `Matching`. Returns False, with nothing committed, if another number does, if the table has no
    deletion vectors, if its log does not list what is needed, if there are too many files, or if several rows of the
    source match the same row: Delta's MERGE does, or refuses, the rest.
    """
    commit = DirectCommit.begin(table.spark, table.path, open_log(table.spark, table.path, table.label), mark)
    if commit is None:
        return False
    if commit.done:
        return True
    files = commit.files_to_merge(partitions)
    if files is None:
        return False
    with ExitStack() as block:
        merged = DirectMerge(
            commit=commit,
            files=files,
            condition=condition,
            clauses=clauses,
            checkpoints=Checkpoints(block, FEW_ROWS),
            interval=interval,
        )
        return merged.write(source, matched)


@dataclass(frozen=True, kw_only=True)
class DirectMerge:
    """A merge in progress; files: Scala's sequence of the AddFiles that may have a match."""

    commit: DirectCommit
    files: J
    condition: str
    clauses: Sequence[Clause]
    checkpoints: Checkpoints
    interval: KeyInterval | None = None

    def write(self, source: DataFrame, wanted: int | None = None) -> bool:
        """Find the matched rows, write files and commit them; False, with nothing committed, if that is impossible, or
        if another number of rows matches than is wanted.
        """
        numbered, condition, within = self._number_rows(source)
        measures = [F.count(TAKEN_CLAUSE).alias("chosen"), F.count(F.lit(1)).alias("pairs")]
        matched, measured = self.checkpoints.measure(
            plan_at_once(self._match_rows(numbered, condition, within)), measures, small=False
        )
        if wanted is not None and measured["pairs"] != wanted:
            return False
        rows = plan_at_once(self._new_rows(numbered, matched))
        columns = partition_columns(self.commit.transaction.snapshot().metadata())
        named = {name for clause in self.clauses for name in _values(clause)}
        if not (named <= {*rows.columns} and self.commit.fits(rows, columns[0] if columns else None)):
            return False
        several = measured["pairs"] > measured["chosen"]
        if several and matched.select(IN_FILE, AT_ROW).distinct().count() < measured["pairs"]:
            return False
        replaced = self.write_vectors(matched) if measured["chosen"] else []
        if sum(int(each.numberOfModifiedRows()) for each in replaced) != measured["chosen"]:
            return False
        self.commit.finish([*self.commit.write_files(rows), *_vector_actions(replaced)], overwrites=True)
        return True

    def _number_rows(self, source: DataFrame) -> tuple[DataFrame, Column, Column | None]:
        """Return the source, its rows numbered, the condition, and that of the table's rows that its first key may
        match, None for most of them.

        A source that was measured is computed already (D-226). `<=>` of a column without NULLs becomes a plain `=`:
        Spark hashes two values for it, which takes a third longer.
        """
        spark = source.sparkSession
        condition = catalyst.parse_expression(spark, self.condition)
        numbered = source.withColumn(SOURCE_ROW, F.monotonically_increasing_id())
        if self.interval is not None:
            return numbered, catalyst.column(spark, condition), self._within(self.interval)
        safe = list(dict.fromkeys(map(_name, filter(_compares_columns, catalyst.subexpressions(condition)))))
        measures = [F.count_if(F.col(quoted(name)).isNull()).alias(name) for name in safe]
        ends = KeyInterval.measures(source.schema[safe[0]]) if safe else []
        counted = [*measures, *ends, F.count(F.lit(1)).alias(SOURCE_ROW)]
        kept, measured = self.checkpoints.measure(numbered, counted, small=True)

        def plain(each: J) -> J | None:
            if not _compares_columns(each) or measured[_name(each)]:
                return None
            return catalyst.catalyst(spark).expressions.EqualTo(each.left(), each.right())

        within = self._within(KeyInterval.of(source.schema[safe[0]], measured)) if safe else None
        return kept, catalyst.column(spark, catalyst.rewrite(spark, condition, plain)), within

    def _within(self, interval: KeyInterval) -> Column | None:
        """Return the condition of the table's rows that are in the interval; None for most of them."""
        spark, stored = self.commit.spark, catalyst.python_schema(self.commit.transaction.snapshot().schema())
        return interval.condition(stored[interval.column], list(from_java(spark, java_list(spark, self.files))))

    def _match_rows(self, source: DataFrame, condition: Column, within: Column | None) -> DataFrame:
        """Return the rows that match: the new values, the clause, the row of the source, and the place in the file."""
        snapshot = self.commit.transaction.snapshot()
        stored = rows_of_files(self.commit.spark, self.commit.transaction.deltaLog(), snapshot, self.files)
        names, spark = stored.columns, self.commit.spark
        placed = rows_with_places(spark, stored, self.files, IN_FILE, AT_ROW, within)
        pairs = placed.alias("t").join(F.broadcast(source).alias("u"), condition)
        chosen = F.lit(None).cast("int")
        for number, clause in reversed(self._matched_clauses):
            chosen = F.when(F.expr(clause.when or "true"), number).otherwise(chosen)
        numbered = pairs.withColumn(TAKEN_CLAUSE, chosen)
        return numbered.select(
            *(self._value_after(name).alias(name) for name in names), IN_FILE, AT_ROW, SOURCE_ROW, TAKEN_CLAUSE
        )

    def _new_rows(self, source: DataFrame, matched: DataFrame) -> DataFrame:
        """Return the rows to add: updated ones, and those of the source that match none."""
        source, matched = in_one_task(source, matched)
        pairs = source.alias("u").join(matched.alias("m"), F.col(f"u.{SOURCE_ROW}") == F.col(f"m.{SOURCE_ROW}"), "left")
        unmatched = F.col(f"m.{SOURCE_ROW}").isNull()
        insert = next((clause for clause in self.clauses if clause.action == "insert"), None)
        added = F.lit(False) if insert is None else F.expr(insert.when or "true")
        updates = [number for number, clause in self._matched_clauses if clause.action == "update"]
        kept = pairs.where(
            F.when(unmatched, added).otherwise(F.coalesce(F.col(f"m.{TAKEN_CLAUSE}").isin(updates), F.lit(False)))
        )
        inserted = {} if insert is None else _values(insert)
        fields = catalyst.python_schema(self.commit.transaction.snapshot().schema()).fields
        return kept.select(
            *(
                F.when(unmatched, inserted.get(field.name, F.lit(None)))
                .otherwise(F.col(f"m.{quoted(field.name)}"))
                .cast(field.dataType)
                .alias(field.name)
                for field in fields
            )
        )

    def _value_after(self, name: str) -> Column:
        """Return the value of a column in an updated row; a stored column that each update replaces is not read."""
        updates = [(number, _values(clause)) for number, clause in self._matched_clauses if clause.action == "update"]
        replaced = all(name in values for _, values in updates)
        value = F.lit(None) if replaced else F.col(f"t.{quoted(name)}")
        for number, values in updates:
            if name in values:
                value = F.when(F.col(TAKEN_CLAUSE) == number, values[name]).otherwise(value)
        return value

    @property
    def _matched_clauses(self) -> list[tuple[int, Clause]]:
        return [(number, clause) for number, clause in enumerate(self.clauses) if clause.action != "insert"]

    def write_vectors(self, matched: DataFrame) -> list[J]:
        """Write the deletion vectors of all matched rows that change; return Delta's description of each such file."""
        commands = catalyst.sql(self.commit.spark).delta.commands
        places = plan_at_once(matched.where(F.col(TAKEN_CLAUSE).isNotNull()).select(IN_FILE, AT_ROW).coalesce(1))
        spark, true = places.sparkSession, catalyst.parse_expression(places.sparkSession, "true")
        columns = [catalyst.some(spark, cast(Any, F.col(name))._jc) for name in (IN_FILE, AT_ROW)]
        transaction = self.commit.transaction
        vectors = catalyst.module(commands, "DeletionVectorBitmapGenerator").buildRowIndexSetsForFilesMatchingCondition(
            catalyst.session(spark), transaction, True, catalyst.dataset(places), self.files, true, *columns
        )
        helper = catalyst.module(commands, "DMLWithDeletionVectorsHelper")
        by_path = helper.generateCandidateFileMap(transaction.deltaLog().dataPath(), self.files)
        return catalyst.sequence(helper.findFilesWithMatchingRows(transaction, by_path, vectors))


def _vector_actions(replaced: Sequence[J]) -> list[J]:
    """Return the actions that replace files by themselves with other deletion vectors, and remove empty ones."""
    actions: list[J] = []
    for touched in replaced:
        file = touched.fileLogEntry()
        if touched.isFullyReplaced():
            actions.append(file.remove())
        else:
            pair = file.removeRows(touched.newDeletionVector(), True, True)
            actions += [pair._1(), pair._2()]
    return actions


def _compares_columns(expression: J) -> bool:
    """Return whether an expression is `t.name <=> u.name`, and not `<=>` of something computed."""
    if catalyst.kind(expression) != "EqualNullSafe":
        return False
    return {catalyst.kind(side) for side in (expression.left(), expression.right())} == {"UnresolvedAttribute"}


def _name(equality: J) -> str:
    """Return the column of the source in `t.name <=> u.name`."""
    return str(catalyst.sequence(equality.right().nameParts())[-1])


def _values(clause: Clause) -> dict[str, Column]:
    """Return the values that a clause gives to columns, by their names."""
    named = {unquote(name): value for name, value in clause.values.items()}
    return {name: value if isinstance(value, Column) else F.expr(value) for name, value in named.items()}
