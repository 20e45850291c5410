"""MERGE as a join: which rows of the target go, and which rows are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from incremental.algebra.sqltext import quoted
from incremental.lake.memory.rows import ROW, evaluated
from incremental.lake.protocol import Clause

CHOSEN, SOURCE = "__chosen", "__source"


def merged(
    target: DataFrame, source: DataFrame, condition: str, clauses: Sequence[Clause]
) -> tuple[list[int], DataFrame]:
    """The places of the target's rows that are updated or deleted, and the rows that are written.

    target: with a column ROW of places. Raises AnalysisException where several rows of the source match the same row,
    whether or not a clause takes them, as Delta does.
    """
    pairs = target.alias("t").join(source.withColumn(SOURCE, F.lit(True)).alias("u"), F.expr(condition), "full")
    chosen, matched = F.lit(None).cast("int"), F.col(ROW).isNotNull() & F.col(SOURCE).isNotNull()
    for number, clause in reversed(list(enumerate(clauses))):
        side = F.col(ROW).isNull() if clause.action == "insert" else matched
        chosen = F.when(side & F.expr(clause.when or "true"), F.lit(number)).otherwise(chosen)
    names = [name for name in target.columns if name != ROW]
    matches = Counter(row[0] for row in pairs.where(matched).select(ROW).collect())
    if max(matches.values(), default=1) > 1 and not unconditional(clauses):
        raise AnalysisException("[DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE] several rows match one")
    numbered = pairs.withColumn(CHOSEN, chosen).where(f"{CHOSEN} IS NOT NULL")
    changed = evaluated(numbered.select(*(value_of(name, clauses).alias(name) for name in names), ROW, CHOSEN))
    places = [int(row[0]) for row in changed.select(ROW).collect() if row[0] is not None]
    written = [number for number, clause in enumerate(clauses) if clause.action != "delete"]
    return sorted({*places}), changed.where(F.col(CHOSEN).isin(written)).select(*map(quoted, names))


def unconditional(clauses: Sequence[Clause]) -> bool:
    """Whether matched rows are deleted and nothing else, however many rows of the source they match."""
    return [(c.action, c.when) for c in clauses if c.action != "insert"] == [("delete", None)]


def value_of(name: str, clauses: Sequence[Clause]) -> Column:
    """A column of the rows that are written: by the chosen clause, else as it is in the target."""
    value = F.col(f"t.{quoted(name)}")
    for number, clause in enumerate(clauses):
        given = {key.strip("`").replace("``", "`"): each for key, each in clause.values.items()}.get(name)
        if given is not None or clause.action == "insert":
            new = given if isinstance(given, Column) else F.expr("NULL" if given is None else given)
            value = F.when(F.col(CHOSEN) == number, new).otherwise(value)
    return value
