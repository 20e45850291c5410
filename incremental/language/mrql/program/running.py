"""Run a translated program in a session that has its sources as views: its loops, then the query above them."""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from incremental.language.loops.functions import fixpoint, iterate
from incremental.language.mrql.program.definitions import Translated
from incremental.language.mrql.repeats import Loop


def run_program(spark: SparkSession, program: Translated) -> DataFrame:
    """The answer of a program, as Spark analyses it. Raises what Spark raises."""
    for loop in program.loops:
        for name, rows in zip(loop.names, run_loop(spark, loop), strict=True):
            rows.createOrReplaceTempView(name)
    return frame(spark, program.sql)


def run_loop(spark: SparkSession, loop: Loop) -> tuple[DataFrame, ...]:
    """The answers of a loop."""
    starts = tuple(frame(spark, sql) for sql in loop.starts)

    def step(*rows: DataFrame) -> Any:
        for name, each in zip(loop.given, rows, strict=True):
            each.createOrReplaceTempView(name)
        found = tuple(frame(spark, sql) for sql in loop.steps)
        return found if len(found) > 1 else found[0]

    start: Any = starts if len(starts) > 1 else starts[0]
    answer = fixpoint(start, step) if loop.least else iterate(start, step, **loop.options)
    return answer if isinstance(answer, tuple) else (cast(DataFrame, answer),)


def frame(spark: SparkSession, sql: str) -> DataFrame:
    """The frame of a text."""
    return cast(Any, spark).sql(sql)
