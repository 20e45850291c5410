"""Check the laws of declared monoids on real values, before the first epoch of a state is written."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from incremental.algebra.errors import QueryError
from incremental.algebra.monoids.declared import DeclaredMonoid
from incremental.algebra.monoids.laws import counterexample_sql, extended_sql, laws_of, sample_sql
from incremental.algebra.program import State
from incremental.algebra.sqltext import quoted
from incremental.algebra.tuning import Tuning


def check_laws(state: State, rows: DataFrame, tuning: Tuning) -> None:
    """Check each declared monoid of a state by one Spark job; without one nothing is run.

    rows: the input of the state. Raises QueryError with a counterexample.
    """
    for slot in state.slots:
        if slot.call.declared is not None:
            check_sampled_laws(slot.call.declared, rows, quoted(slot.call.arguments[0].name), tuning)


def check_sampled_laws(monoid: DeclaredMonoid, rows: DataFrame, x: str, tuning: Tuning) -> None:
    """Raise QueryError if a law does not hold for sampled values of a column; x: its quoted name."""
    sampled = rows.select(x).where(f"{x} IS NOT NULL").limit(tuning.law_rows)
    values = sampled.agg(F.expr(sample_sql(monoid, x, tuning.law_values)).alias("s"))
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
