"""The benchmarks of pipelines on small data: every dataset equals its batch query in the end, and is measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks import many_views, shop, tpcdi
from benchmarks.contest import Contest
from tests.night import night

pytestmark = night


@pytest.mark.parametrize("shape", many_views.SHAPES)
def test_many_views(spark: SparkSession, tmp_path: Path, shape: str) -> None:
    contest = Contest(spark, tmp_path)
    many_views.one(contest, spark, tmp_path, 20_000, 6, shape, "copy on write", rounds=1, verify=True)
    (refresh,) = contest.of(f"6 {shape} 20000 copy on write", "one run", "change")
    assert refresh.jobs and refresh.rows_read and refresh.cpu_seconds
    assert refresh.commits and refresh.commits >= 6, "one of each dataset at least"


def test_shop(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop, "ROUNDS", 1)
    contest = Contest(spark, tmp_path)
    shop.one(contest, spark, tmp_path, 3_000, "change data feed", "incremental", verify=True)
    assert {lap.who for lap in contest.laps if lap.step == "change-1"} == {
        "one by one", "one run", "recompute", "recompute marts",
    }  # fmt: skip


def test_tpcdi(spark: SparkSession, tmp_path: Path) -> None:
    contest = Contest(spark, tmp_path)
    tpcdi.one(contest, spark, tmp_path, 0.1, "auto", verify=True)
    assert len(contest.of("scale 0.1", "one run", "batch-later")) == 2
