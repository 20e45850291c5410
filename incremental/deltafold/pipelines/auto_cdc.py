"""Express an AUTO CDC flow of Spark Declarative Pipelines as a query over its events (SCD 1, D-180)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from deltafold.algebra.errors import QueryError
from deltafold.algebra.sqltext import quoted
from deltafold.pipelines.project import QueryFunction, Reader, StreamingTable

if TYPE_CHECKING:
    from pyspark.pipelines.flow import AutoCdcFlow


def latest_rows(flow: AutoCdcFlow, kept: StreamingTable) -> QueryFunction:
    """Return the query of an AUTO CDC flow (SCD 1): the latest event of each key, without deletes (D-180).

    Spark merges events into the target and keeps the sequence of deleted keys, so that late events change nothing. The
    rows are those of this query over all events. An event without a key or a sequence is an error, as in Spark (D-187).
    Of events with the same key and sequence, Spark's choice is undefined; here it is the largest row.

    kept: the table of the events that no other table has.
    """
    keys = [_column_name(key) for key in flow.keys]
    sequence = _expression(flow.sequence_by)
    deletes = None if flow.apply_as_deletes is None else _expression(flow.apply_as_deletes)
    included = None if flow.column_list is None else {_column_name(c).lower() for c in flow.column_list}
    excluded = {_column_name(c).lower() for c in flow.except_column_list or ()}

    def query(reader: Reader) -> DataFrame:
        events = reader.events(flow.source, kept)
        every = [F.col(quoted(name)) for name in events.columns]
        checked = F.when(check_events(flow), sequence)
        latest = events.groupBy(*(F.col(quoted(key)).alias(f"__key_{number}") for number, key in enumerate(keys))).agg(
            F.max_by(F.struct(*every), checked).alias("__event")
        )
        latest = latest.select("__event.*")
        if deletes is not None:
            latest = latest.where(~F.coalesce(deletes, F.lit(False)))
        chosen = [
            name
            for name in events.columns
            if (included is None or name.lower() in included) and name.lower() not in excluded
        ]
        if lacking := {key.lower() for key in keys} - {name.lower() for name in chosen}:
            raise QueryError(
                f"AUTO CDC into {flow.target}: its columns leave out the key {min(lacking)}. Let the table have it, as "
                "Spark demands."
            )
        return latest.select(*(F.col(quoted(name)) for name in chosen))

    return query


def check_events(flow: AutoCdcFlow) -> Column:
    """Return a condition on events, which stops the query at one without a key or a sequence (D-187)."""
    needed = {f"key {(name := _column_name(key))}": F.col(quoted(name)) for key in flow.keys}
    needed["sequence"] = _expression(flow.sequence_by)
    condition = F.lit(True)
    for what, column in reversed(needed.items()):
        fault = F.raise_error(F.lit(f"AUTO CDC into {flow.target}: an event of {flow.source} has a NULL {what}."))
        condition = F.when(column.isNull(), fault).otherwise(condition)
    return condition


def _expression(column: Column) -> Column:
    """Return a column of this session; Spark's API turns texts into columns of Spark Connect."""
    if isinstance(column, ClassicColumn):
        return column
    expression = cast(Any, column)._expr
    if type(expression).__name__ == "SQLExpression":
        return F.expr(str(expression._expr))
    if type(expression).__name__ == "ColumnReference":
        return F.col(str(expression._unparsed_identifier))
    raise QueryError(f"{column}: it is a column of Spark Connect. Write its SQL as a text.")


def _column_name(column: Column) -> str:
    """Return the name of a column that an AUTO CDC flow lists."""
    return str(cast(Any, _expression(column))._jc.toString()).strip("`")
