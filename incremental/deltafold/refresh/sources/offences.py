"""Find the keys that a change touched among a table's rows, and cite the rows that violate a constraint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import SourceError
from deltafold.algebra.program import WEIGHT
from deltafold.algebra.sqltext import quoted
from deltafold.lake.log.file_skipping import SKIPPABLE
from deltafold.lake.protocol import VersionedTable

SHOWN_ROWS = 3  # offending rows in an error

KeyFault = Literal["duplicate", "missing", "present"]
"""What makes a suspect key offend: a second row with it, no row of the table with it, or any."""


@dataclass(frozen=True)
class Offence:
    """Rows that violate a constraint, as an array of the texts of `columns`, and the sentence of the error."""

    rows: DataFrame
    columns: tuple[str, ...]
    sentence: str


@dataclass(frozen=True)
class TouchedKeys:
    """The keys that a change touched, in columns key_0, key_1, …, with the range of each; few: broadcast them."""

    keys: DataFrame
    few: bool
    ranges: tuple[tuple[str, str] | None, ...]

    def among(self, table: DataFrame, columns: Sequence[str]) -> DataFrame:
        """Return the touched keys among a table's rows, read within the keys' ranges."""
        types = dict(table.dtypes)
        for column, ends in zip(columns, self.ranges, strict=True):
            if ends is not None:
                low, high = (F.lit(end).cast(types[column]) for end in ends)
                table = table.where(F.col(quoted(column)).between(low, high))
        keys = F.broadcast(self.keys) if self.few else self.keys
        return select_key(table, columns).join(keys, on=key_names(columns), how="left_semi")


@dataclass(frozen=True)
class Suspect:
    """The only keys that can break a constraint, as key_0, key_1, …; the rows of a table that have them decide.

    keys: with their net weights if they may be duplicates; fault: what makes one of them offend; columns: the table's,
    to compare with the keys; shown, sentence: the columns and the sentence of the error.
    """

    keys: DataFrame
    fault: KeyFault
    table: VersionedTable
    version: int
    columns: tuple[str, ...]
    shown: tuple[str, ...]
    sentence: str

    def find(self, touched: TouchedKeys) -> Offence:
        """Return the offending rows; touched: the keys, measured."""
        names = key_names(self.columns)
        found = touched.among(self.table.at(self.version), self.columns)
        match self.fault:
            case "duplicate":
                wrong = find_duplicates(self.keys.unionAll(found.withColumn(WEIGHT, F.lit(1).cast("bigint"))), names)
            case "missing":
                wrong = self.keys.join(found, on=names, how="left_anti")
            case "present":
                wrong = found.distinct()
            case _:
                assert_never(self.fault)
        return Offence(sample_texts(wrong, names), self.shown, self.sentence)


def key_names(columns: Sequence[str]) -> list[str]:
    """Return the names key_0, key_1, … for the columns of a key, so that keys of two sources have the same names."""
    return [f"key_{i}" for i in range(len(columns))]


def select_key(rows: DataFrame, columns: Sequence[str], *more: Column) -> DataFrame:
    """Return the columns of a key as key_0, key_1, …."""
    named = zip(columns, key_names(columns), strict=True)
    return rows.select(*(F.col(quoted(column)).alias(name) for column, name in named), *more)


def net_weights(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Sum the weights of equal keys (1 per row if unweighted), and drop keys whose sum is 0."""
    weight = F.sum(WEIGHT) if WEIGHT in rows.columns else F.count(F.lit(1))
    return rows.groupBy(*key_names(columns)).agg(weight.alias(WEIGHT)).where(F.col(WEIGHT) != 0)


def find_duplicates(counted: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the keys that more than one row has, or that have a NULL; counted: keys with weights."""
    missing = reduce(Column.__or__, (F.col(name).isNull() for name in names))
    return counted.groupBy(*names).agg(F.sum(WEIGHT).alias(WEIGHT)).where((F.col(WEIGHT) > 1) | missing)


def measure_keys(suspect: int, keys: DataFrame, width: int) -> DataFrame:
    """Return one row: the number of keys, and the range of each column whose statistics let Delta skip files."""
    types = dict(keys.dtypes)
    ends = [
        F.array(*(end(F.col(name)).cast("string") if SKIPPABLE.fullmatch(types[name]) else F.lit(None).cast("string")
                  for end in (F.min, F.max)))
        for name in (f"key_{i}" for i in range(width))
    ]  # fmt: skip
    counted = F.count(F.lit(1)).alias("rows")
    return keys.agg(counted, F.array(*ends).alias("ranges")).select(F.lit(suspect).alias("suspect"), "rows", "ranges")


def sample_texts(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the first few rows as arrays of texts."""
    shown = rows.select(F.array(*(F.col(column).cast("string") for column in columns)).alias("row"))
    return shown.orderBy("row").limit(SHOWN_ROWS)


def raise_offences(offences: Sequence[Offence]) -> None:
    """Read the offending rows in one job, and raise the SourceError that names them."""
    marked = [offence.rows.select(F.lit(i).alias("offence"), "row") for i, offence in enumerate(offences)]
    found = reduce(DataFrame.unionAll, marked).collect()
    messages, logged = list[str](), list[str]()
    for i, offence in enumerate(offences):
        rows = [row["row"] for row in found if row["offence"] == i]
        named = (zip(offence.columns, row, strict=True) for row in rows)
        shown = [", ".join(f"{name} = {'NULL' if text is None else text}" for name, text in row) for row in named]
        if shown:
            messages.append(offence.sentence.replace("{rows}", "; ".join(f"({row})" for row in shown)))
            logged.append(offence.sentence.replace("{rows}", f"({', '.join(offence.columns)} = …)"))
    if messages:
        raise SourceError("\n".join(messages), "\n".join(logged))
