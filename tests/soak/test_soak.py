"""A few operations of a soak, with kills that an exception stands in for, and that a soak sees what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.night import night
from tests.sandbox import maintained_path
from tests.soak.run import Soak
from tests.soak.soak_sandbox import SoakSandbox

SEED, OPERATIONS = 8352, 8  # draws a refresh and a landing that are killed, and upkeep


@night
def test_a_short_soak(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Protects from combinations that nobody thought of; longer with `make soak`."""
    world = SoakSandbox(spark, tmp_path, ("totals", "days")).create()
    soak = Soak(world, SEED)
    tally = soak.run(OPERATIONS)
    assert not tally.faults, tally.faults
    assert tally.kills and tally.refreshes and tally.comparisons > OPERATIONS / 2
    spark.sql(f"delete from delta.`{maintained_path(world.view('totals'))}` where k = 1")
    world.sql("insert into {orders} (id, k, v) values (1, 2, 3)")
    assert soak.run(0).faults
    assert f"seed {SEED}; the last operations:" in capsys.readouterr().out
