"""A scene for each example about Delta, and a world in memory for each that is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.corpus.world import World
from tests.examples.scene import Scene


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Scene:
    return Scene(spark, tmp_path)


@pytest.fixture
def world(spark: SparkSession) -> World:
    return World(spark)
