"""Random queries over sources whose columns get wider types on the way: they equal the batch query at each refresh."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.corpus.writer import Writer
from tests.properties.histories import History, Step, histories
from tests.properties.queries import queries
from tests.properties.test_random_histories import Paths, failures, paths, tuning
from tests.reading import reading
from tests.sandbox import MemorySandbox, as_asked

WIDER = {"k": "bigint", "i": "bigint", "h": "int", "e": "decimal(16,2)", "d": "timestamp_ntz"}
BEYOND = "k + 5000000000 as k, i * 3L as i, h + 70000 as h, e + 10000000000 as e"
wider = st.sets(st.sampled_from([*WIDER]), min_size=1)


class CastingWriter(Writer):
    """Writes rows by the types of the table, as an INSERT does."""

    def write(self, rows: DataFrame, mode: str) -> None:
        if (table := self.sandbox.table(self.name)).version() is not None:
            rows = rows.select(*(F.col(field.name).cast(field.dataType) for field in table.schema()))
        super().write(rows, mode)

    def update(self, values: dict[str, str], where: str) -> None:
        types = {field.name: field.dataType.simpleString() for field in self.sandbox.table(self.name).schema()}
        super().update({name: f"cast({value} as {types[name]})" for name, value in values.items()}, where)


def widen(sandbox: MemorySandbox, columns: set[str]) -> None:
    """Overwrite the events with wider columns; some rows change to values that the narrower ones cannot have."""
    casts = {name: F.col(name).cast(WIDER[name]) for name in columns}
    rows = sandbox.read("select * from {events}").withColumns(casts)
    beyond = {name: F.expr(text).cast(WIDER[name]) for text, name in map(parts, BEYOND.split(", ")) if name in columns}
    more = rows.where("u % 5 = 0").withColumns({**beyond, "u": F.expr("u + 1000000")})
    sandbox.write("events", sandbox.spark.createDataFrame(rows.unionByName(more).collect(), rows.schema), "reshape")


def parts(text: str) -> tuple[str, str]:
    expression, _, name = text.rpartition(" as ")
    return expression, name


@settings(max_examples=max(2, settings().max_examples // 2))
@given(queries(), histories, paths, wider)
def test_wider_types(spark: SparkSession, sql: str, cuts: list[list[Step]], way: Paths, columns: set[str]) -> None:
    """Whatever goes on, is copied or is rebuilt."""
    with tempfile.TemporaryDirectory() as folder, reading(way.reads):
        sandbox = MemorySandbox(spark, Path(folder))
        sandbox.deletion_vectors = way.deletion_vectors
        events, dimension = CastingWriter(sandbox, "events"), Writer(sandbox, "dim")
        history = History(spark, events, dimension, invariant=False)
        sandbox.warehouse.tuning = tuning(replace(way, invariant=False))
        sandbox.declare("events")
        sandbox.declare("dim")
        view = sandbox.view(sql, on_change="rebuild")
        for number in range(len(cuts) + 1):
            with as_asked(view):
                wrong = failures(view, cuts[:number], number == len(cuts))
            assert not wrong, f"{wrong}\n{way}\n{columns}"
            if number == 0:
                widen(sandbox, columns)
            for step in cuts[number] if number < len(cuts) else []:
                history.apply(step)
