"""Addresses of Delta tables that Spark cannot reach, and what the log of one tells without reading its files."""

from __future__ import annotations

import pytest

from deltafold.algebra.errors import SourceError
from deltafold.api import Delta
from deltafold.lake.delta_table import DeltaTable
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
