"""Tables that only their catalog can open: it gives the settings of their file system, or keeps their commits."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.api import Delta
from deltafold.lake.catalog_faults import catalog_fault
from deltafold.spark import catalyst
from tests.sandbox import DeltaSandbox, checked, rows

QUERY = "select k, sum(v) s from t group by k"


def point_elsewhere(spark: SparkSession, table: str, address: str, settings: dict[str, str]) -> None:
    """Change where a catalog has a table, and the settings that it gives with it, as one that vends credentials."""
    java, catalog = catalyst.jvm(spark), catalyst.session(spark).sessionState().catalog().externalCatalog()
    found = catalog.getTable(*table.split("."))
    given = java.org.apache.spark.api.python.PythonUtils.toScalaMap(settings)
    place, none = catalyst.some(spark, java.java.net.URI(address)), catalyst.none(spark)
    catalog.alterTable(found.withNewStorage(place, none, none, False, none, given, none))


def test_files_are_read_with_what_the_catalog_gives(delta: DeltaSandbox) -> None:
    """Protects from a source that is found by its name and read by its path, which alone may not be read."""
    name, host = f"vended_{uuid4().hex[:8]}", f"vended{uuid4().hex[:8]}"
    delta.spark.sql(f"create database {name} location '{delta.folder / name}'")
    delta.insert("t", "k int, v int", [(1, 2), (1, 3), (2, 5)])
    delta.spark.sql(f"create table {name}.t using delta location '{delta.path('t')}'")
    mount = {f"fs.viewfs.mounttable.{host}.link./lake": delta.folder.as_uri(), "fs.viewfs.impl.disable.cache": "true"}
    point_elsewhere(delta.spark, f"{name}.t", f"viewfs://{host}/lake/t", mount)
    delta.warehouse.source("t", Delta(table=f"{name}.t"))
    view = delta.view(QUERY)
    checked(view)
    delta.sql("update {t} set v = v + 1 where k = 1")
    delta.sql("insert into {t} values (3, 7)")
    delta.sql("delete from {t} where v = 5")
    assert checked(view).verdict == "applied"
    assert view.verify().ok
    assert rows(view) == [(1, 7), (3, 7)]
    delta.warehouse.source("by_path", Delta(f"viewfs://{host}/lake/t"))
    with pytest.raises(SourceError, match="cannot be opened"):
        delta.view("select * from by_path", "w").refresh()
    delta.spark.sql(f"drop database {name} cascade")


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ("catalogManaged", "its catalog manages its commits, .* Copy its rows to a table without"),
        ("catalogOwned-preview", "unsupported by Delta Lake .*: catalogOwned-preview. Drop these features"),
    ],
)
def test_commits_in_a_catalog_are_refused(delta: DeltaSandbox, feature: str, message: str) -> None:
    """Protects from an answer without the latest commits, which a catalog has before the log."""
    delta.source("t", "k int, v int", [(1, 2)])
    delta.spark.sql(f"create table default.{feature[:7]} using delta location '{delta.path('t')}'")
    delta.warehouse.source("named", Delta(table=f"default.{feature[:7]}"))
    views = delta.view(QUERY), delta.view("select * from named", "by_name")
    for view in views:
        view.refresh()
    manage_by_catalog(Path(delta.path("t")), feature)
    for view in views:
        with pytest.raises(SourceError, match=f"the Delta table at .*{message}"):
            view.refresh()
        assert rows(view) == [(1, 2)]
    delta.spark.sql(f"drop table default.{feature[:7]}")


def manage_by_catalog(table: Path, feature: str) -> None:
    """Commit a protocol with the feature."""
    features = ["appendOnly", "invariants", "inCommitTimestamp", "vacuumProtocolCheck", feature, "deletionVectors"]
    reader = [each for each in features if each not in ("appendOnly", "invariants", "inCommitTimestamp")]
    info = {"timestamp": 4102444800000, "inCommitTimestamp": 4102444800000, "operation": "UPGRADE PROTOCOL"}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": features}
    lines = [json.dumps({"commitInfo": info}), json.dumps({"protocol": protocol})]
    (table / "_delta_log" / f"{1:020}.json").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("java_class", "message", "fault"),
    [
        (
            "io.unitycatalog.client.ApiException",
            'getTable call failed with: 403 - {"error_code": "PERMISSION_DENIED", "message": "Ann lacks SELECT"}',
            "this user may not do that (Ann lacks SELECT). Let this user read it",
        ),
        (
            "org.apache.hadoop.security.AccessControlException",
            "Permission denied: user=ann, access=READ",
            "this user may not do that (Permission denied: user=ann, access=READ). Let this user read it",
        ),
        (
            "java.net.ConnectException",
            "Connection refused",
            "the catalog does not answer (Connection refused). Start it, or correct its address, and try again",
        ),
        ("java.lang.IllegalArgumentException", "a bad setting.", "a bad setting. Fix it"),
    ],
)
def test_faults_are_explained(spark: SparkSession, java_class: str, message: str, fault: str) -> None:
    """Protects from the names of Java's classes in messages, and from a fix that does not help."""
    java = catalyst.jvm(spark)
    thrown = getattr(java, java_class)(message)
    with pytest.raises(catalyst.JavaError) as caught:
        java.java.util.concurrent.CompletableFuture.failedFuture(thrown).join()
    assert catalog_fault(caught.value, "Fix it", "read it") == fault
