"""Random programs: the reference and the translated program in batch; some as views over random histories."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import QueryError
from deltafold.api import Mrql
from deltafold.language.evaluation import evaluate
from deltafold.spark.catalyst import isolate_session
from tests.local_rows import local
from tests.mrql.generator import TABLES, Generator, table_rows
from tests.mrql.oracle.comparing import difference
from tests.mrql.oracle.reference import Reference
from tests.mrql.oracle.values import Row
from tests.sandbox import MemorySandbox, confirm

BATCH, VIEWS = 12, 2
WRONG_ONCE = (35, 266)  # seeds
UNSUPPORTED = "UNSUPPORTED_SUBQUERY_EXPRESSION_CATEGORY"  # Spark's own refusal of a correlation, as a QueryError


def named(name: str, rows: list[tuple[Any, ...]]) -> list[Row]:
    names = [column.split()[0] for column in TABLES[name][0].split(", ")]
    return [Row(zip(names, row, strict=True)) for row in rows]


def check_batch(spark: SparkSession, seed: int) -> bool:
    """Compare one random program; False where Spark refuses it."""
    tables = table_rows(random.Random(seed))
    query = Mrql(Generator(seed).program())
    frames = {name: local(spark, rows, TABLES[name][0]) for name, rows in tables.items()}
    try:
        found = evaluate(isolate_session(spark), query, list(frames), frames.get)
    except QueryError as error:
        assert UNSUPPORTED in str(error), f"seed {seed}: {query.text}\n{error}"
        return False
    expected = Reference({name: named(name, rows) for name, rows in tables.items()}).run(query.items)
    wrong = difference(expected, found.collect())
    assert not wrong, f"seed {seed}: {query.text}\n{wrong}\n{tables}"
    return True


def test_batch(spark: SparkSession) -> None:
    seeds = (*range(BATCH), *WRONG_ONCE)
    assert sum(check_batch(spark, seed) for seed in seeds) >= len(seeds) * 0.9


@pytest.mark.night
@pytest.mark.timeout(14400)
def test_ten_thousand(spark: SparkSession) -> None:
    assert sum(check_batch(spark, seed) for seed in range(10_000)) >= 9_000


def check_view(sandbox: MemorySandbox, seed: int) -> None:
    chance = random.Random(seed)
    query = Mrql(Generator(seed).program())
    tables = table_rows(chance)
    for name, rows in tables.items():
        sandbox.source(name, TABLES[name][0], rows)
    view = sandbox.view(query, policy="auto")
    for _ in range(3):
        view.refresh()
        confirm(view)
        for name, rows in tables.items():
            sandbox.do(("insert", name, chance.sample(rows, 2)))
            column = TABLES[name][0].split()[0]
            sandbox.do(("delete", name, f"{column} <=> {chance.choice(rows)[0]!r}".replace("None", "null")))


@pytest.mark.parametrize("seed", range(VIEWS))
def test_views(sandbox: MemorySandbox, seed: int) -> None:
    check_view(sandbox, 1_000_000 + seed)


@pytest.mark.night
@pytest.mark.parametrize("seed", range(VIEWS, 200))
def test_more_views(sandbox: MemorySandbox, seed: int) -> None:
    check_view(sandbox, 1_000_000 + seed)
