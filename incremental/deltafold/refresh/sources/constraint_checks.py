"""Check declared constraints on an epoch's changes before anything is written; a SourceError names the rows (D-019).

Only the change can break a constraint that was fulfilled before; net(s, k) is the change of s summed by the columns k:

| constraint | broken by |
| --- | --- |
| primary key k of s | net(s, k) > 0 where k is NULL, or where rows before and net together are more than one |
| foreign key l.f → o.k | net(l, f) > 0 that neither net(o, k) > 0 nor a row of after(o) has |
| | net(o, k) < 0 that a row of after(l) has |
| append-only s | a row of the consolidated change with a negative weight |

One job measures all nets; if one is not empty, another job looks for offenders. A new constraint is checked over whole
tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from typing import Literal, assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.constraints import AppendOnlyFact, Constraint, ForeignKeyFact, PrimaryKeyFact
from deltafold.algebra.errors import SourceError
from deltafold.algebra.program import WEIGHT
from deltafold.algebra.sqltext import quoted
from deltafold.lake.log.file_skipping import SKIPPABLE
from deltafold.lake.snapshot import Snapshot
from deltafold.refresh.epoch import Epoch
from deltafold.spark.checkpoint import computed_once

DO = "Correct the data and refresh again, or remove the declaration."


def check_constraints(epoch: Epoch, constraints: Sequence[Constraint]) -> None:
    """Check every declared constraint that this epoch's changes can break; raises SourceError."""
    if not constraints:
        return
    with epoch.measure.phase("check constraints"), ExitStack() as computed:
        checks = Checks(epoch, computed)
        if offences := checks.offences([suspect for fact in constraints for suspect in checks.suspects(fact)]):
            raise_offences(offences)


class Checks:
    """The checks of one epoch; computed: what is computed once until they end."""

    def __init__(self, epoch: Epoch, computed: ExitStack) -> None:
        self._epoch, self._computed = epoch, computed
        self._nets: dict[tuple[str, tuple[str, ...]], DataFrame] = {}

    def suspects(self, fact: Constraint) -> tuple[Suspect | Offence, ...]:
        """Return the keys that may violate a constraint, or the rows that do."""
        new = fact.text not in self._epoch.intent.relied
        match fact:
            case PrimaryKeyFact():
                return self._key(fact, new=new)
            case ForeignKeyFact():
                return self._dangling(fact, new=new) + (() if new else self._find_orphans(fact))
            case AppendOnlyFact():
                return self._append_only(fact)
            case _:
                assert_never(fact)

    def offences(self, suspected: Sequence[Suspect | Offence]) -> list[Offence]:
        """Return the possible offences of constraints with suspect keys; one job measures all suspects."""
        suspects: list[Suspect] = [item for item in suspected if isinstance(item, Suspect)]
        offences: list[Offence] = [item for item in suspected if isinstance(item, Offence)]
        if not suspects:
            return offences
        measures = [measure_keys(i, suspect.keys, len(suspect.columns)) for i, suspect in enumerate(suspects)]
        for row in reduce(DataFrame.unionAll, measures).collect():
            suspect = suspects[int(row["suspect"])]
            ranges = tuple(None if low is None else (low, high) for low, high in row["ranges"])
            if row["rows"]:
                few = row["rows"] <= self._epoch.tuning.broadcast_rows
                offences.append(suspect.find(TouchedKeys(suspect.keys, few, ranges)))
        return offences

    def _key(self, fact: PrimaryKeyFact, *, new: bool) -> tuple[Suspect | Offence, ...]:
        if not new and not self._has_changed(fact.source):
            return ()
        names = key_names(fact.columns)
        sentence = (
            f"source {fact.source}: its primary key ({', '.join(fact.columns)}) is broken{self._at(fact.source)}: "
            f"duplicate or NULL keys {{rows}}. {DO}"
        )
        added = self._all(fact.source, fact.columns) if new else self._net(fact.source, fact.columns)
        added = added.where(F.col(WEIGHT) > 0)
        if new:
            return (Offence(sample_texts(find_duplicates(added, names), names), fact.columns, sentence),)
        before = self._epoch.sources[fact.source].before
        assert before is not None
        suspect = Suspect(
            keys=added,
            fault="duplicate",
            stored=before,
            columns=fact.columns,
            shown=fact.columns,
            sentence=sentence,
        )
        return (suspect,)

    def _dangling(self, fact: ForeignKeyFact, *, new: bool) -> tuple[Suspect | Offence, ...]:
        """Find added references to keys that do not exist."""
        if not new and not self._has_changed(fact.source):
            return ()
        names = key_names(fact.columns)
        sentence = (
            f"source {fact.source}: its foreign key ({', '.join(fact.columns)}) to {fact.to} is broken"
            f"{self._at(fact.source)}: {fact.to} ({', '.join(fact.key)}){self._at(fact.to)} has no rows for "
            f"{{rows}}. {DO}"
        )
        if new:
            rest = self._referring(fact, new=True).join(self._all(fact.to, fact.key), on=names, how="left_anti")
            return (Offence(sample_texts(rest, names), fact.columns, sentence),)
        rest = self._referring(fact, new=False)
        if self._has_changed(fact.to):
            rest = rest.join(self._net(fact.to, fact.key).where(F.col(WEIGHT) > 0), on=names, how="left_anti")
        suspect = Suspect(
            keys=self._compute_once(rest),
            fault="missing",
            stored=self._epoch.sources[fact.to].after,
            columns=fact.key,
            shown=fact.columns,
            sentence=sentence,
        )
        return (suspect,)

    def _find_orphans(self, fact: ForeignKeyFact) -> tuple[Suspect | Offence, ...]:
        """Find removed keys that are still referenced."""
        if not self._has_changed(fact.to) or not self._epoch.differences[fact.to].removed:
            return ()
        removed = self._net(fact.to, fact.key).where(F.col(WEIGHT) < 0).select(*key_names(fact.key))
        sentence = (
            f"source {fact.source}: its foreign key ({', '.join(fact.columns)}) to {fact.to} is broken"
            f"{self._at(fact.source)}: rows of {fact.to} ({', '.join(fact.key)}) were removed{self._at(fact.to)} that "
            f"are still referenced by {{rows}}. {DO}"
        )
        suspect = Suspect(
            keys=removed,
            fault="present",
            stored=self._epoch.sources[fact.source].after,
            columns=fact.columns,
            shown=fact.columns,
            sentence=sentence,
        )
        return (suspect,)

    def _append_only(self, fact: AppendOnlyFact) -> tuple[Suspect | Offence, ...]:
        changed = self._epoch.differences[fact.source]
        if changed.before is None or not changed.removed:
            return ()
        was = set(changed.before.rows().columns)
        columns = tuple(column for column in self._after(fact.source).columns if column in was)
        removed = changed.frame(columns, consolidate=True).where(F.col(WEIGHT) < 0)
        versions = f"{changed.before.version} and {changed.after.version}"
        sentence = (
            f"source {fact.source}: declared append-only, but between its versions {versions} rows were removed or "
            "updated: {rows}. Restore them and refresh again, or remove the declaration."
        )
        return (Offence(sample_texts(removed, [quoted(column) for column in columns]), columns, sentence),)

    def _referring(self, fact: ForeignKeyFact, *, new: bool) -> DataFrame:
        """Return the added references (new: all references), without those that are partly NULL."""
        net = self._all(fact.source, fact.columns) if new else self._net(fact.source, fact.columns)
        names = key_names(fact.columns)
        return net.where(F.col(WEIGHT) > 0).select(*names).dropna(subset=names).distinct()

    def _net(self, source: str, columns: tuple[str, ...]) -> DataFrame:
        """Return net(s, k), computed once."""
        if (source, columns) not in self._nets:
            changed = self._epoch.differences[source].frame(columns, consolidate=False)
            weight = [F.col(WEIGHT)] if WEIGHT in changed.columns else []
            net = net_weights(select_key(changed, columns, *weight), columns)
            self._nets[source, columns] = self._compute_once(net)
        return self._nets[source, columns]

    def _compute_once(self, rows: DataFrame) -> DataFrame:
        """Return rows that are used more than once, computed once."""
        return self._computed.enter_context(computed_once(rows))

    def _all(self, source: str, columns: tuple[str, ...]) -> DataFrame:
        """Return net(s, k) of a source whose rows are all new."""
        return net_weights(select_key(self._after(source), columns), columns)

    def _after(self, source: str) -> DataFrame:
        return self._epoch.sources[source].after.rows()

    def _has_changed(self, source: str) -> bool:
        return not self._epoch.differences[source].empty

    def _at(self, source: str) -> str:
        return f" at version {self._epoch.intent.sources[source].after}"


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


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """The only keys that can break a constraint, as key_0, key_1, …; the rows of a table that have them decide.

    keys: with their net weights if they may be duplicates; fault: what makes one of them offend; stored: the version of
    that table; columns: its own, to compare with the keys; shown, sentence: the columns and the sentence of the error.
    """

    keys: DataFrame
    fault: KeyFault
    stored: Snapshot
    columns: tuple[str, ...]
    shown: tuple[str, ...]
    sentence: str

    def find(self, touched: TouchedKeys) -> Offence:
        """Return the offending rows; touched: the keys, measured."""
        names = key_names(self.columns)
        stored = touched.among(self.stored.rows(), self.columns)
        match self.fault:
            case "duplicate":
                wrong = find_duplicates(self.keys.unionAll(stored.withColumn(WEIGHT, F.lit(1).cast("bigint"))), names)
            case "missing":
                wrong = self.keys.join(stored, on=names, how="left_anti")
            case "present":
                wrong = stored.distinct()
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
    samples = reduce(DataFrame.unionAll, marked).collect()
    messages, logged = list[str](), list[str]()
    for i, offence in enumerate(offences):
        rows = [row["row"] for row in samples if row["offence"] == i]
        named = (zip(offence.columns, row, strict=True) for row in rows)
        shown = [", ".join(f"{name} = {'NULL' if text is None else text}" for name, text in row) for row in named]
        if shown:
            messages.append(offence.sentence.replace("{rows}", "; ".join(f"({row})" for row in shown)))
            logged.append(offence.sentence.replace("{rows}", f"({', '.join(offence.columns)} = …)"))
    if messages:
        raise SourceError("\n".join(messages), "\n".join(logged))
