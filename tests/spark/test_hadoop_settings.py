"""Settings that no Spark of one process uses are not sent to its tasks; those of users and of committers are."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.spark import catalyst
from deltafold.spark.session import drop_cluster_settings


def test_settings_of_cluster_managers_are_dropped_for_good(spark: SparkSession, tmp_path: Path) -> None:
    """A class that Hadoop loads late makes it read its files again: after a write they would be back."""
    spark.range(1).write.format("delta").save(str(tmp_path / "table"))
    assert spark.read.format("delta").load(str(tmp_path / "table")).count() == 1
    settings = catalyst.context(spark).hadoopConfiguration()
    assert settings.size() < 500
    assert settings.get("mapreduce.fileoutputcommitter.algorithm.version") == "1"  # Spark's, not Hadoop's default
    assert settings.get("fs.AbstractFileSystem.file.impl")


@pytest.mark.parametrize(
    ("name", "value", "left"), [("yarn.acl.enable", "true", "true"), ("yarn.acl.enable", "false", None)]
)
def test_what_a_user_set_stays(spark: SparkSession, name: str, value: str, left: str | None) -> None:
    settings = catalyst.context(spark).hadoopConfiguration()
    settings.set(name, value)
    try:
        drop_cluster_settings(spark)
        assert settings.get(name) == left
    finally:
        settings.unset(name)
