"""Define how the candidates of a loop are stored: each row that the loop derives, at each level it is derived at.

| column | contains |
| --- | --- |
| the row's columns | under their names |
| `__level` | 0 for rows of init; 1 + the greatest level of the loop's rows that the row is derived from |
| `__rows` | the number of its derivations at this level, above zero |
| `__accepted` | 0: not accepted; 1: accepted, and improved at a later level; 2: accepted and in the answer |
| `__bucket` | partition: pmod(hash(key), buckets); the key is the row, of kind best its key columns |

All candidates of one key are in one bucket. A bag (kind levels) has each accepted row as often as it is derived; its
rows are told apart by identity (spark/row_identity.py), those of other kinds by SQL's equality, as DISTINCT does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, StructField, StructType

from deltafold.algebra.loops import ACCEPTED, LEVEL, LoopState
from deltafold.algebra.program import BUCKET, ROWS, WEIGHT
from deltafold.algebra.sqltext import is_unordered, quoted
from deltafold.dataflow.state_schema import StoredTable
from deltafold.lake.version_diff import Difference
from deltafold.spark.row_identity import group_identical, identical_sql

ANSWER = 2  # `__accepted` of a candidate that is in the answer


@dataclass(frozen=True)
class Candidates:
    """Names and expressions of the table of one loop."""

    loop: LoopState
    buckets: int

    @property
    def row(self) -> tuple[str, ...]:
        """The columns of a row."""
        return tuple(column.name for column in self.loop.columns)

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The columns that decide together which candidates are accepted."""
        return tuple(column.name for column in self.loop.row_key)

    @cached_property
    def value(self) -> tuple[str, ...]:
        """The columns of a row beside its key, by which kind best compares the rows of a key."""
        return tuple(name for name in self.row if name not in self.key)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns by which the table's rows are found: those of a row, and its level."""
        return (*self.row, LEVEL)

    @property
    def reached_by(self) -> tuple[str, ...]:
        """The columns by which a changed candidate finds those that are judged with it; in a bag each by itself."""
        return self.identity if self.is_levelled_bag else self.key

    @property
    def is_levelled_bag(self) -> bool:
        """Whether a candidate is accepted whatever other levels have."""
        return self.loop.traits.by_one_level or self.loop.traits.fixed_steps

    @property
    def are_identical(self) -> bool:
        """Whether derivations of identical rows are counted, not of rows that SQL calls equal."""
        return self.is_levelled_bag and not self.loop.distinct

    def group(self, rows: DataFrame, names: tuple[str, ...], *aggregates: tuple[str, Column]) -> DataFrame:
        """Return some columns of candidates, the same for a group of rows, and aggregates of each group."""
        if self.are_identical:
            return group_identical(rows, names, *aggregates)
        return rows.groupBy(*map(quoted, names)).agg(*(value.alias(name) for name, value in aggregates))

    def copies_sql(self, rows: str) -> str:
        """Return SQL of how often an accepted candidate is there, by its derivations; DISTINCT leaves init as it is."""
        if not self.is_levelled_bag:
            return "1L"
        return f"if({LEVEL} = 0, {rows}, 1L)" if self.loop.distinct else rows

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns in order."""
        return (*self.row, LEVEL, ROWS, ACCEPTED, BUCKET)

    @property
    def bucket_sql(self) -> str:
        """The bucket of a row."""
        if self.buckets == 1 or not self.key:
            return "0"
        return f"CAST(pmod(hash({', '.join(map(quoted, self.key))}), {self.buckets}) AS INT)"

    @property
    def stored(self) -> StoredTable:
        """What others need to know of the table."""
        ordered = [c.name for c in (*self.loop.row_key, *self.loop.columns) if not is_unordered(c.type)]
        return StoredTable(self.columns, (*dict.fromkeys(ordered), LEVEL), self.bucket_sql)

    def value_sql(self, side: str = "") -> str:
        """Return SQL of the value by which kind best compares rows, NULL being least."""
        return f"struct({', '.join(side + quoted(name) for name in self.value) or 'true'})"

    @property
    def best_of(self) -> tuple[str, str]:
        """SQL of kind best: the aggregate that finds the best value, and the operator between a better and a worse."""
        return ("min", "<") if self.loop.keep == "least" else ("max", ">")

    def last_accepted_sql(self, accepted: str) -> str:
        """Return SQL of `__accepted` of a candidate of kind best: the last one accepted is the best of all."""
        last = f"max(if({accepted} > 0, {LEVEL}, NULL)) OVER (PARTITION BY {', '.join(map(quoted, self.key))})"
        return f"if({accepted} > 0, if({LEVEL} = {last}, {ANSWER}, 1), 0)"

    def same(self, names: tuple[str, ...], left: str = "t", right: str = "u") -> str:
        """Return the SQL condition that two rows agree in some columns, NULL equal to NULL."""
        if self.are_identical:
            return identical_sql(self._schema, names, left, right)
        return " AND ".join(f"{left}.{quoted(name)} <=> {right}.{quoted(name)}" for name in names) or "true"

    def accepted_rows_sql(self, rows: str, accepted: str) -> str:
        """Return SQL of the copies of a candidate that the step reads, by its derivations and its acceptance."""
        return f"if({accepted} > 0, {self.copies_sql(rows)}, 0L)"

    def answer_rows_sql(self, rows: str, accepted: str) -> str:
        """Return SQL of the copies of a candidate in the answer."""
        return f"if({accepted} = {ANSWER}, {self.copies_sql(rows)}, 0L)"

    def repeat_rows(self, candidates: DataFrame, times: str) -> DataFrame:
        """Return the identity of candidates, each as many times as an SQL expression gives."""
        names = [F.col(quoted(name)) for name in self.identity]
        if not self.is_levelled_bag:
            return candidates.where(f"{times} > 0").select(*names)
        copies = F.expr(f"explode(array_repeat(true, CAST({times} AS INT)))").alias("__copy")
        return candidates.select(*names, copies).drop("__copy")

    def accepted_rows(self, table: DataFrame) -> DataFrame:
        """Return the rows that the step reads, with their levels, of a version of the table."""
        return self.repeat_rows(table, self.accepted_rows_sql(ROWS, ACCEPTED))

    def answer(self, table: DataFrame) -> DataFrame:
        """Return the loop's answer of a version of the table."""
        return self.repeat_rows(table, self.answer_rows_sql(ROWS, ACCEPTED)).drop(LEVEL)

    def difference(self, versions: Difference) -> DataFrame:
        """Return the change of the answer between two versions of the table, from their files."""
        names = (*self.identity, ROWS, ACCEPTED)
        change = versions.frame(names, consolidate=True)
        weight = WEIGHT if WEIGHT in change.columns else "1L"
        return self.sum_by_row(change, f"{weight} * {self.answer_rows_sql(ROWS, ACCEPTED)}")

    def sum_by_row(self, candidates: DataFrame, weight: str) -> DataFrame:
        """Return the rows of candidates with the sum of a weight over their levels, zeros left out."""
        total = F.expr(f"sum({weight})").cast("bigint")
        return self.group(candidates, self.row, (WEIGHT, total)).where(f"{WEIGHT} <> 0")

    @cached_property
    def _schema(self) -> StructType:
        """The columns that find a candidate, with their types."""
        row = [StructField(column.name, DataType.fromDDL(column.type)) for column in self.loop.columns]
        return StructType([*row, StructField(LEVEL, IntegerType())])
