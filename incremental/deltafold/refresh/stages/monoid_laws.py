"""Check the laws of declared monoids on real values, before an epoch of a state is written."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import QueryError
from deltafold.algebra.monoids.declared import DeclaredMonoid
from deltafold.algebra.monoids.laws import counterexample_sql, extended_sql, laws_of, sample_sql
from deltafold.algebra.program import State
from deltafold.algebra.sqltext import quoted
from deltafold.algebra.tuning import Tuning


def check_laws(state: State, rows: DataFrame, tuning: Tuning) -> None:
    """Check each declared monoid of a state by one Spark job; without one nothing is run.

    rows: the input of the state. Raises QueryError with a counterexample.
    """
    for slot in state.slots:
        if (monoid := slot.call.declared) is not None:
            x = quoted(slot.call.arguments[0].name)
            values = rows.where(f"{x} IS NOT NULL").limit(tuning.law_rows)
            check_values(monoid, values, monoid.unit_sql(f"CAST({x} AS {monoid.of_type})"), tuning.law_values)


def check_merged_laws(state: State, change: DataFrame, tuning: Tuning) -> None:
    """Check the same on the merged values of a later change: h, computed already. Raises QueryError as `check_laws`.

    Deletions of what the inverse does not cancel recompute their groups, so that law is not checked again.
    """
    for slot in state.slots:
        if slot.call.declared is not None:
            (kept,) = slot.accumulator.components
            value = quoted(slot.stored_name(kept))
            monoid = replace(slot.call.declared, inverse=None)
            check_values(monoid, change.limit(tuning.law_rows), value, tuning.law_values)


def check_values(monoid: DeclaredMonoid, rows: DataFrame, value: str, most: int) -> None:
    """Raise QueryError if a law does not hold for sampled values of an expression over rows."""
    values = rows.agg(F.expr(sample_sql(value, most)).alias("s"))
    values = values.selectExpr(f"{extended_sql(monoid, 's')} AS s")
    for each in "uvw":
        values = values.selectExpr("*", f"explode(s) AS {each}")
    found = values.agg(F.expr(counterexample_sql(monoid)).alias("found")).collect()[0]["found"]
    if found is None:
        return
    law = laws_of(monoid)[int(found["law"])]
    shown = {name: "NULL" if found[name] is None else repr(found[name]) for name in ("u", "v", "w", "left", "right")}
    raise QueryError(
        f"monoid {monoid.name}: {law.fault}: {law.example.format(**shown)}. {law.instead}.",
        f"monoid {monoid.name}: {law.fault}. {law.instead}.",
    )
