"""What is a path of this machine, and what only looks like one to Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from deltafold import telemetry
from deltafold.algebra.errors import DeltafoldError, SourceError, UsageError
from deltafold.algebra.local_path import is_remote, local_path, remote_fault
from deltafold.api import Warehouse
from deltafold.operations.metrics import metrics_of
from deltafold.pipelines import catalogue
from deltafold.spark import cache, session
from tests.landing.test_dropped import files

ELSEWHERE = ["s3a://b/wh", "s3a:/b/wh", " hdfs://b/wh", "ABFSS://box@there/wh", "dbfs:/wh", "file://host/wh"]


@pytest.mark.parametrize("address", ELSEWHERE)
def test_a_uri_is_never_a_local_folder(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a folder `s3a:` on the local disk, where somebody meant a bucket."""
    monkeypatch.chdir(tmp_path)
    said = r"^warehouse .*: (\w+: is not a folder of this machine|file:// names another machine)\. \w"
    for given in (address, Path(address)) if "file" not in address else (address,):
        with pytest.raises(SourceError, match=said):
            local_path("warehouse", given)
    if not is_remote(address) or remote_fault(address):
        with pytest.raises(SourceError, match="the folder of input files"):
            files(cast(Path, address))
    else:
        assert files(cast(Path, address)).path == address.strip()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("file:///x", "/x"), ("file:/x", "/x"), ("FILE:///x/a b", "/x/a b"), ("file://localhost/x", "/x"),
        ("file:/localhost/x", "/localhost/x"), ("file:///x#1?y", "/x#1?y"), ("/x", "/x"), ("c:/x", "{here}/c:/x"),
        ("a:b", "{here}/a:b"), ("~", "{here}/~"), ("file:x", "{here}/file:x"), ("50%20", "{here}/50%20"),
    ],
)  # fmt: skip
def test_a_local_address_is_its_path(address: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from refusing `file:///x`, and from taking another folder for it than Spark would."""
    monkeypatch.chdir(tmp_path)
    assert str(local_path("warehouse", address)) == path.format(here=tmp_path)


def test_a_uri_within_a_path_is_misplaced() -> None:
    """Protects from what joining a folder and a URI makes."""
    with pytest.raises(SourceError, match="misplaced URI"):
        local_path("warehouse", "/data/s3a://b/wh")


def test_an_escape_is_ambiguous() -> None:
    """Protects from two folders for one address: Spark reads %20 as it stands, other programs as a blank."""
    with pytest.raises(SourceError, match="ambiguous"):
        local_path("warehouse", "file:///a%20b")


def test_no_secret_is_repeated() -> None:
    with pytest.raises(SourceError) as caught:
        local_path("warehouse", "s3a://me:hunter2@lake/wh")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "use"),
    [
        ("DELTAFOLD_CACHE", cache.cache_folder),
        ("DELTAFOLD_PIPELINES", catalogue.pipelines_folder),
        ("DELTAFOLD_PIPELINES", catalogue.home_of_new),
        ("DELTAFOLD_METRICS", lambda: metrics_of(cast(Any, None))),
        ("DELTAFOLD_LOG", telemetry.switch_on),
        ("DELTAFOLD_SPARK_HOST", session.start),
    ],
)
def test_no_variable_names_a_uri(variable: str, use: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from the same folder, made by way of the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setenv(variable, ("json:" if variable == "DELTAFOLD_LOG" else "") + "s3a://b/x")
    with pytest.raises(DeltafoldError, match=rf"{variable}.* s3a://b/x: s3a: is not a folder of this machine"):
        use()  # type: ignore[operator]
    assert not list(tmp_path.iterdir())


def test_a_warehouse_without_a_scheme_is_on_this_machine(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from journals on this machine and tables on another: a path without a scheme is where Spark says."""
    assert Warehouse(spark, tmp_path.as_uri()).root == tmp_path
    clustered = spark.newSession()
    clustered.conf.set("fs.defaultFS", "hdfs://nowhere:9000/")
    with pytest.raises(SourceError, match=r"Spark would put its tables on hdfs://nowhere:9000/.*Set spark\.hadoop"):
        Warehouse(clustered, tmp_path)


def test_a_warehouse_needs_a_folder_and_a_session(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from errors of Python deep within."""
    file = tmp_path / "file"
    file.write_text("")
    for root in (file, file / "below"):
        with pytest.raises(SourceError, match=rf"^warehouse {root}: {file} is not a folder\. Name another"):
            Warehouse(spark, root)
    with pytest.raises(SourceError, match=r"^warehouse: None is not a path\. Name a local folder"):
        Warehouse(spark, cast(Any, None))
    with pytest.raises(UsageError, match=rf"^warehouse {tmp_path}: NoneType is not a Spark session\. .* start\(\)"):
        Warehouse(cast(Any, None), tmp_path)
    with pytest.raises(UsageError, match=r"^tuning: \{'buckets': 2\} is not valid\. Give a Tuning"):
        Warehouse(spark, tmp_path, tuning=cast(Any, {"buckets": 2}))
