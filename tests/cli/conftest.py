"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.lake.protocol import Lake
from tests.cli.calling import call
from tests.cli.pretended import PretendedView, pretend
from tests.pipelines.declared import PARTITIONED, write


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PretendedView:
    folder = tmp_path / "pipelines"  # the warehouse lies beside it
    monkeypatch.setenv("DELTAFOLD_PIPELINES", str(folder))
    shops = "  shops: {delta: shops, invariant: true}\n"
    write(folder, "shop", PARTITIONED + shops + "partitions: {kind: daily, start: 2024-01-01}\n")
    return pretend(monkeypatch)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spark: SparkSession) -> Path:
    """The folder of a new pipeline `shop`; the commands find the session that all tests share."""
    monkeypatch.setenv("DELTAFOLD_PIPELINES", str(tmp_path / "pipelines"))
    call("new", "shop")
    return tmp_path / "pipelines" / "shop"


@pytest.fixture
def quick(in_memory: Lake, home: Path) -> Path:
    """The same with tables in memory, for what does not depend on Delta."""
    return home
