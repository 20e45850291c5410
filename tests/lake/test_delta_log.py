"""Addresses of Delta tables that Spark cannot reach, and what the log of one tells without reading its files."""

from __future__ import annotations

import shutil

import pytest

from deltafold.algebra.errors import SourceError
from deltafold.api import Delta
from deltafold.lake.delta_table import DeltaTable
from deltafold.lake.log.delta_log import cached_snapshots
from deltafold.lake.protocol import Mark
from deltafold.spark import catalyst
from deltafold.spark.job_stats import Measure
from tests.sandbox import DeltaSandbox


def test_a_file_system_that_spark_does_not_know(delta: DeltaSandbox) -> None:
    """Protects from a page of Java where the jars of an object store are missing."""
    delta.warehouse.source("orders", Delta("nosuchfs://bucket/orders"))
    with pytest.raises(SourceError, match=r"nosuchfs://bucket/orders cannot be opened: .*nosuchfs.*jars") as found:
        delta.view("select count(*) n from orders").refresh()
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("checksums", ["written", "missing"])
def test_the_last_epoch_of_an_application(delta: DeltaSandbox, checksums: str) -> None:
    """It is in the checksum of the latest commit, so that no Spark job reads the log; without one, Spark finds it."""
    table = DeltaTable(delta.spark, delta.path("t"))
    for number, application in enumerate(("a", "b", "a")):
        table.append(delta.spark.range(1).selectExpr("int(id) b"), Mark(application, number + 1, "{}"), None)
    if checksums == "missing":
        for file in (delta.folder / "t/_delta_log").glob("*.crc"):
            file.unlink()
    catalyst.sql(delta.spark).delta.DeltaLog.clearCache()
    measure = Measure(delta.spark)
    with measure.all("epochs"):
        found = [DeltaTable(delta.spark, table.path).epoch(application) for application in "abc"]
    assert found == [3, 2, None]
    assert (measure.cost.jobs == 0) == (checksums == "written")


def test_a_version_is_read_once_in_a_refresh_and_never_for_another_table(delta: DeltaSandbox) -> None:
    """Protects from a snapshot for each question about a version, and from the rows of a table that was dropped."""
    table = DeltaTable(delta.spark, delta.path("t"))
    for number in range(2):
        table.append(delta.spark.range(1).selectExpr(f"{number} b"), Mark("a", number + 1, "{}"), None)
    with cached_snapshots():
        first = table._snapshot_at(0)
        assert table._snapshot_at(0) is first and table.schema(0).names == ["b"]
        shutil.rmtree(delta.folder / "t")
        catalyst.sql(delta.spark).delta.DeltaLog.clearCache()
        for number in range(2):
            table.append(delta.spark.range(1).selectExpr(f"{number} c"), Mark("b", number + 1, "{}"), None)
        assert table.schema(0).names == ["c"]
    assert table._snapshot_at(0) is not table._snapshot_at(0)
