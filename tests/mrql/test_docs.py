"""Every program on the page runs: the reference and the translation agree."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from deltafold.api import Mrql
from deltafold.language.evaluation import evaluate
from deltafold.language.mrql.aggregates import AGGREGATE_NAMES
from deltafold.language.mrql.scalars.functions import FUNCTIONS
from deltafold.spark.catalyst import isolate_session
from tests.local_rows import local
from tests.mrql.examples import TABLES
from tests.mrql.oracle.comparing import difference
from tests.mrql.oracle.reference import Reference
from tests.mrql.test_examples import plain_row
from tests.spark.machine import PROJECT

PAGE = (PROJECT / "docs" / "reference" / "mrql.md").read_text()
PROGRAMS = re.findall(r"^```mrql\n(.*?)^```$", PAGE, re.M | re.DOTALL)


def test_there_are_programs() -> None:
    assert len(PROGRAMS) >= 6


def test_every_function_is_on_the_page() -> None:
    """Protects from functions whose names a reader has to guess."""
    table = PAGE.split("## Functions")[1].split("\nA function takes")[0]
    assert {*FUNCTIONS, *AGGREGATE_NAMES, "exists", "member", "elem"} == {*re.findall(r"`(\w+)", table)} - {
        "value",
        "end",
    }


@pytest.mark.parametrize("text", PROGRAMS)
def test_programs(spark: SparkSession, text: str) -> None:
    frames: dict[str, DataFrame] = {name: local(spark, rows, schema) for name, (schema, rows) in TABLES.items()}
    tables: dict[str, list[Any]] = {name: [plain_row(r) for r in frame.collect()] for name, frame in frames.items()}
    query = Mrql(text)
    found = evaluate(isolate_session(spark), query, list(frames), frames.get)
    assert not difference(Reference(tables).run(query.items), found.collect())
