"""Prepare the sandboxes before a crash, once for all crashes of the same kind and stage, and do not compile plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from deltafold.lake.delta_table import DELTA
from deltafold.lake.protocol import Lake
from tests.conftest import SMALL
from tests.crash.crash_sandbox import CrashSandbox
from tests.crash.stages import STAGES
from tests.lake.memory.table import MemoryLake

Prepared = Callable[..., CrashSandbox]
"""(kind, stage, lake): the lake is Delta unless another is given."""


@pytest.fixture(scope="session")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return the sandbox of a kind before the run of a stage; copy it, do not change it."""
    known: dict[tuple[str, object, Lake], CrashSandbox] = {}

    def of(kind: str, stage: str, lake: Lake = DELTA) -> CrashSandbox:
        key = kind, STAGES[stage].prepare, lake
        if key not in known:
            world = CrashSandbox(spark, tmp_path_factory.mktemp("prepared") / "world", kind, lake).create()
            STAGES[stage].prepare(world)
            known[key] = world
        return known[key]

    return of


@pytest.fixture
def uncompiled(spark: SparkSession) -> Iterator[None]:
    """Run without compiled plans in the night too: thousands of runs over a few rows, each in a new plan."""
    before = {name: spark.conf.get(name, None) for name in SMALL}
    for name, value in SMALL.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.fixture(scope="session")
def memory() -> Lake:
    """The lake of the sandboxes in memory."""
    return MemoryLake()
