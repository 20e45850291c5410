"""Run a translated program in a session that has its sources as views: its loops, then the query above them."""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from deltafold.language.loops.functions import fixpoint, iterate
from deltafold.language.mrql.program.definitions import Translated
from deltafold.language.mrql.repeats import RepeatLoop
from deltafold.spark import catalyst


def run_program(spark: SparkSession, program: Translated) -> DataFrame:
    """Return the answer of a program, as Spark analyses it. Raises what Spark raises."""
    for loop in program.loops:
        for name, rows in zip(loop.names, run_loop(spark, loop), strict=True):
            register_rows(spark, rows, name)
    return frame_of_sql(spark, program.sql)


def register_rows(spark: SparkSession, rows: DataFrame, name: str) -> None:
    """Give rows a name in the session of the program; they may be of another one, such as a stored answer."""
    catalyst.frame(spark, catalyst.analysed_plan(rows)).createOrReplaceTempView(name)


def run_loop(spark: SparkSession, loop: RepeatLoop) -> tuple[DataFrame, ...]:
    """Return the answers of a loop."""

    def step(*rows: DataFrame) -> Any:
        for name, each in zip(loop.given, rows, strict=True):
            register_rows(spark, each, name)
        return one_or_all([frame_of_sql(spark, sql) for sql in loop.steps])

    start: DataFrame = one_or_all([frame_of_sql(spark, sql) for sql in loop.starts])
    answer = cast(Any, fixpoint(start, step) if loop.least else iterate(start, step, **loop.options))
    return answer if len(loop.names) > 1 else (answer,)


def one_or_all(frames: list[DataFrame]) -> Any:
    """Return the only frame, or a tuple of all."""
    return tuple(frames) if len(frames) > 1 else frames[0]


def frame_of_sql(spark: SparkSession, sql: str) -> DataFrame:
    """Return the frame of a text."""
    return cast(Any, spark).sql(sql)
