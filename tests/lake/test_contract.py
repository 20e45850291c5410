"""The lake in memory does what Delta does: the same operations on both, and what each of them shows after every one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltafold.lake.delta_table import DELTA
from deltafold.lake.protocol import Lake
from tests.lake.memory.table import MemoryLake
from tests.lake.merge_scenarios import direct_merges, merges_by_delta
from tests.lake.scenarios import Scenario, folders, landing, other_writers, own_writes, vacuumed
from tests.night import sampled

PARTS = [own_writes, merges_by_delta, direct_merges, landing, other_writers, folders, vacuumed]
BY_NIGHT = (merges_by_delta,)


@pytest.fixture(scope="module")
def lakes(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Lake, Path]]]:
    yield [(DELTA, tmp_path_factory.mktemp("delta")), (MemoryLake(), tmp_path_factory.mktemp("memory"))]


@pytest.mark.parametrize("part", sampled(PARTS, lambda part: part not in BY_NIGHT, lambda part: part.__name__))
def test_both_show_the_same(
    spark: SparkSession, lakes: list[tuple[Lake, Path]], part: Callable[[Scenario], None]
) -> None:
    """Protects every test in memory from a lake that does what Delta does not."""
    on_delta, in_memory = (Scenario(spark, lake, folder) for lake, folder in lakes)
    part(on_delta)
    part(in_memory)
    of_delta, of_memory = on_delta.collected(), in_memory.collected()
    assert [what for what, _ in of_memory] == [what for what, _ in of_delta]
    wrong = [(what, e, s) for (what, e), (_, s) in zip(of_delta, of_memory, strict=True) if e != s]
    assert not wrong, "\n".join(f"{what}: Delta {apart(e, s)}, memory {apart(s, e)}" for what, e, s in wrong)


def apart(one: Any, other: Any) -> object:
    """What of one side the other has not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: value for key, value in one.items() if other.get(key) != value}
    return one
