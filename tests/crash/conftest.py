"""Worlds that have lived through what comes before a crash, made once for all crashes of the same kind and stage."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from tests.crash.stages import STAGES
from tests.crash.worlds import World

Prepared = Callable[[str, str], World]


@pytest.fixture(scope="session")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The world of a kind before the run of a stage; to be copied, not to be changed."""
    known: dict[tuple[str, object], World] = {}

    def of(kind: str, stage: str) -> World:
        key = kind, STAGES[stage].prepare
        if key not in known:
            world = World(spark, tmp_path_factory.mktemp("prepared") / "world", kind).create()
            STAGES[stage].prepare(world)
            known[key] = world
        return known[key]

    return of
