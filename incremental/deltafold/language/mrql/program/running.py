"""Run a translated program in a session that has its sources as views, or show it as the PySpark that it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession

from deltafold.language.loops.functions import fixpoint, iterate
from deltafold.language.mrql.program.definitions import Translated
from deltafold.language.mrql.repeats import RepeatLoop
from deltafold.spark import catalyst

OPENING_SELECT = "(SELECT "
CLAUSES = (
    " FROM ",
    " LATERAL VIEW ",
    " WHERE ",
    " GROUP BY ",
    " HAVING ",
    " ORDER BY ",
    " UNION ALL ",
    " INTERSECT ALL ",
    " EXCEPT ALL ",
)
STRINGS = (r"'(?:\\.|[^'\\])*'", r"`(?:\\.|[^`\\])*`")
TOKEN = re.compile("|".join((*STRINGS, re.escape(OPENING_SELECT), *map(re.escape, CLAUSES), ".")), re.DOTALL)


def run_program(spark: SparkSession, program: Translated) -> DataFrame:
    """Return the answer of a program, analysed. Raises the errors of Spark."""
    for loop in program.loops:
        for name, rows in zip(loop.names, _run_loop(spark, loop), strict=True):
            _register_rows(spark, rows, name)
    return _frame_of_sql(spark, program.sql)


def _register_rows(spark: SparkSession, rows: DataFrame, name: str) -> None:
    """Register rows as a view in the session of the program; stored answers belong to another one."""
    catalyst.frame(spark, catalyst.analysed_plan(rows)).createOrReplaceTempView(name)


def _run_loop(spark: SparkSession, loop: RepeatLoop) -> tuple[DataFrame, ...]:
    """Return the answers of a loop."""

    def step(*rows: DataFrame) -> Any:
        for name, frame in zip(loop.step_views, rows, strict=True):
            _register_rows(spark, frame, name)
        return _one_or_all([_frame_of_sql(spark, sql) for sql in loop.steps])

    start: DataFrame = _one_or_all([_frame_of_sql(spark, sql) for sql in loop.starts])
    answer = cast(Any, fixpoint(start, step) if loop.least else iterate(start, step, **loop.options))
    return answer if len(loop.names) > 1 else (answer,)


def _one_or_all(frames: list[DataFrame]) -> Any:
    """Return the only frame, or a tuple of all."""
    return tuple(frames) if len(frames) > 1 else frames[0]


def _frame_of_sql(spark: SparkSession, sql: str) -> DataFrame:
    """Return the frame of a query."""
    return cast(Any, spark).sql(sql)


def lay_out(program: Translated) -> str:
    """Write the whole program."""
    return "\n".join([*map(_loop_text, program.loops), _sql_call(program.sql)])


def _loop_text(loop: RepeatLoop) -> str:
    """Write a loop: its start, its step, and its end."""
    options = "".join(f", {name}={value!r}" for name, value in loop.options.items())
    function = "fixpoint" if loop.least else "iterate"
    step = f"lambda {', '.join(loop.step_views)}: {_frame_or_tuple(loop.steps)}"
    return f"{', '.join(loop.names)} = {function}({_frame_or_tuple(loop.starts)}, {step}{options})"


def _frame_or_tuple(texts: Sequence[str]) -> str:
    """Write one frame, or a tuple of them."""
    calls = ", ".join(map(_sql_call, texts))
    return calls if len(texts) == 1 else f"({calls})"


def _sql_call(sql: str) -> str:
    """Write the frame of a query."""
    return f'spark.sql("""\n{_indent(sql)}\n""")'


def _indent(sql: str) -> str:
    """Write each SELECT of a FROM, and each clause of it, on a line of its own; strings stay as they are."""
    pieces = list[str]()
    selects = list[int]()  # of each SELECT in brackets: the number of brackets around it
    depth = 0
    for token in TOKEN.findall(sql):
        line = "\n" + "  " * len(selects)
        if token == OPENING_SELECT:
            selects.append(depth)
            token = f"({line}  SELECT "
            depth += 1
        elif token == "(":
            depth += 1
        elif token == ")":
            depth -= 1
            if selects and selects[-1] == depth:
                selects.pop()
                token = "\n" + "  " * len(selects) + ")"
        elif token in CLAUSES and depth == (selects[-1] + 1 if selects else 0):
            token = line + token[1:]
        pieces.append(token)
    return "".join(pieces)
