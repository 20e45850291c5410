"""Compute a MERGE as a join: the rows of the target that it removes, and the rows that it writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.sqltext import quoted, unquote
from deltafold.lake.memory.rows import ROW, materialize
from deltafold.lake.protocol import Clause

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
        given = {unquote(key): each for key, each in clause.values.items()}.get(name)
        if given is not None or clause.action == "insert":
            new = given if isinstance(given, Column) else F.expr("NULL" if given is None else given)
            value = F.when(F.col(CHOSEN) == number, new).otherwise(value)
    return value
