"""Write the candidates of a loop in one commit of its table: the first load, a MERGE, or a rewrite of all rows.

A small table is read, changed and written by one task (lake/upsert.py). A stored candidate that does not have
the derivations it was read with was changed by somebody: the write fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.loops import ACCEPTED
from deltafold.algebra.program import BUCKET, ROWS
from deltafold.algebra.sqltext import quoted
from deltafold.algebra.tuning import Tuning
from deltafold.dataflow.loops.candidates import Candidates
from deltafold.dataflow.loops.touched import ROWS_BEFORE
from deltafold.lake.files import needs_mapping
from deltafold.lake.physical_layout import arrange, sort_partitions
from deltafold.lake.protocol import Clause, Mark, Table
from deltafold.lake.upsert import Extent, Matching, Upsert, Written, apply_upsert
from deltafold.spark.checkpoint import in_one_task, plan_at_once


@dataclass(frozen=True)
class CandidateWrite:
    """Writes one table; `t` is what is stored, `u` the touched candidates that differ from it."""

    candidates: Candidates
    table: Table
    mark: Mark

    def load(self, rows: DataFrame) -> None:
        """Create the table with all candidates, or replace all that it has."""
        arranged_rows = self._arrange(rows)
        if self.table.version() is None:
            self.table.append(arranged_rows, self.mark, BUCKET, name_mapping=needs_mapping(self.candidates.columns))
        else:
            self.table.overwrite(arranged_rows, self.mark, BUCKET)

    def change(self, stored: DataFrame, changed: DataFrame, extent: Extent, *, few: bool, tuning: Tuning) -> Written:
        """Write what changed; returns how. stored: the rows before; few: one task has them and the change."""
        upsert = Upsert(
            extent=extent,
            matching=lambda: self._match(changed),
            stored=lambda _: stored,
            merged=lambda rows: self._merge(rows, changed, few=few),
        )
        return apply_upsert(self.table, upsert, self.mark, extent.choose_path(*self.table.size(), tuning))

    def _match(self, changed: DataFrame) -> Matching:
        values = {quoted(n): F.col(f"u.{quoted(n)}") for n in (*self.candidates.identity, ROWS, ACCEPTED, BUCKET)}
        update = {quoted(ROWS): F.expr(self._check_rows(f"u.{ROWS}")), quoted(ACCEPTED): F.col(f"u.{ACCEPTED}")}
        clauses = [
            Clause("delete", f"u.{ROWS} = 0 AND t.{ROWS} = u.{ROWS_BEFORE}", {}),
            Clause("update", None, update),
            Clause("insert", None, {**values, quoted(ROWS): F.expr(self._check_rows(f"u.{ROWS}", "0L"))}),
        ]
        return Matching(change=changed, same=f"t.{BUCKET} = u.{BUCKET} AND {self._same}", clauses=clauses)

    def _merge(self, stored: DataFrame, changed: DataFrame, *, few: bool) -> DataFrame:
        """Return all stored rows with the change."""
        if few:
            stored, changed = in_one_task(stored, changed)
        joined = stored.alias("t").join(changed.alias("u"), F.expr(f"t.{BUCKET} = u.{BUCKET} AND {self._same}"), "full")
        values = {name: f"coalesce(u.{quoted(name)}, t.{quoted(name)})" for name in self.candidates.columns}
        values |= {ROWS: f"if(u.{ROWS} IS NULL, t.{ROWS}, {self._check_rows(f'u.{ROWS}')})"}
        rows = joined.selectExpr(*(f"{values[name]} AS {quoted(name)}" for name in self.candidates.columns))
        kept = rows.where(f"{ROWS} > 0")
        if not few:
            return self._arrange(kept)
        order = self.candidates.stored.sorted_by
        return plan_at_once(
            sort_partitions(kept.coalesce(1), order if self.candidates.buckets == 1 else [BUCKET, *order])
        )

    @property
    def _same(self) -> str:
        return self.candidates.same(self.candidates.identity)

    def _check_rows(self, rows: str, stored: str = f"coalesce(t.{ROWS}, 0L)") -> str:
        """Return SQL of the derivations to write, which fails if those stored are not those that were read."""
        message = f"'the table of {self.candidates.loop.name} was changed by somebody. Rebuild the view'"
        differs = f"{stored} <> u.{ROWS_BEFORE}"
        return f"if({differs}, CAST(raise_error({message}) AS BIGINT), {rows})"

    def _arrange(self, rows: DataFrame) -> DataFrame:
        return arrange(rows, self.candidates.buckets, self.candidates.stored.sorted_by)
