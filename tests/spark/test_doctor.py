"""The doctor: one finding for each thing a start needs, each a sentence."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from deltafold.algebra.errors import UsageError
from deltafold.spark import doctor
from deltafold.spark.doctor import Finding, examine
from deltafold.spark.jvm.object_stores import STORES, stores_in
from deltafold.spark.session_settings import CATALOG
from tests.spark.machine import run

NAMES = ["Python", "packages", "Java", "jars", "cache", "warehouse", "memory", "log store"]


def finding(name: str, warehouse: str | Path, **asked: object) -> Finding:
    return next(found for found in examine(warehouse, **asked) if found.name == name)  # pyright: ignore


def test_good_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = examine(tmp_path / "not yet" / "there", memory="64m")
    assert [one.name for one in found] == NAMES
    assert all(one.ok for one in found), found
    assert all(one.sentence.endswith(".") and "\n" not in one.sentence for one in found)
    assert not (tmp_path / "not yet").exists(), "it only looks"


def test_catalogs_are_asked_to_answer(tmp_path: Path) -> None:
    """Protects from a refresh that waits for a catalog which is not there."""
    metastore, unity = "spark.hadoop.hive.metastore.uris", "spark.sql.catalog.unity.uri"
    with socket.create_server(("127.0.0.1", 0)) as server:
        live = f"127.0.0.1:{server.getsockname()[1]}"
        settings = {CATALOG: "hive", metastore: f"thrift://127.0.0.1:1, thrift://{live}", unity: f"http://{live}"}
        found = [each for each in examine(tmp_path, settings=settings) if each.name == "catalog"]
        assert {(each.ok, each.sentence) for each in found} == {
            (True, f"The catalog at thrift://{live} answers."),
            (True, f"The catalog at http://{live} answers."),
        }
    wrong = finding("catalog", tmp_path, settings={unity: "http://127.0.0.1:1"})
    reason = "http://127.0.0.1:1: Connection refused"
    assert wrong == Finding.failure("catalog", f"The catalog does not answer ({reason}). Start it, or correct {unity}.")


def test_no_spark_is_started(tmp_path: Path) -> None:
    program = "import sys; from deltafold.spark.doctor import examine; examine('w'); sys.exit('pyspark' in sys.modules)"
    assert run(program, cwd=tmp_path).returncode == 0
    assert not list(tmp_path.iterdir())


def test_jars_are_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTAFOLD_CACHE", str(tmp_path))
    assert finding("jars", tmp_path) == Finding.success(
        "jars", "Delta Lake's jars (13 MB) are not present; the first start downloads them."
    )
    doctor.jars_folder().mkdir()
    assert not finding("jars", tmp_path).ok


def test_wrong_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "ALLOWED", {"pyspark": SpecifierSet(">=3.5,<4")})
    assert "and <4,>=3.5 is wanted. Run make setup, or pip" in finding("packages", tmp_path).sentence
    monkeypatch.setattr(doctor, "ALLOWED", {"no-such-package": SpecifierSet()})
    assert "no-such-package is not installed. Run make setup, or pip" in finding("packages", tmp_path).sentence


def test_unwritable_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    found = finding("warehouse", tmp_path / "file" / "warehouse")
    assert not found.ok and "cannot be written" in found.sentence
    monkeypatch.setenv("DELTAFOLD_CACHE", str(tmp_path / "file"))
    for name in ("jars", "cache"):
        found = finding(name, tmp_path)
        assert not found.ok and "Set DELTAFOLD_CACHE" in found.sentence


@pytest.mark.parametrize(
    ("amount", "size"),
    [("2g", 2 << 30), ("1500m", 1500 << 20), ("512", 512 << 20), ("1T", 1 << 40), ("64kb", 64 << 10)],
)
def test_amounts_of_memory(amount: str, size: int) -> None:
    assert doctor._bytes(amount) == size


def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_available_memory", lambda: 1 << 30)
    assert not finding("memory", tmp_path, memory="2g").ok
    assert finding("memory", tmp_path, memory="1g").ok
    assert "invalid amount" in finding("memory", tmp_path, memory="lots").sentence
    monkeypatch.setattr(doctor, "_available_memory", lambda: None)
    assert finding("memory", tmp_path, memory="2g").ok


@pytest.mark.parametrize(
    ("warehouse", "ok", "part"),
    [
        ("warehouse", True, "Deltafold locks its tables"),
        ("file:///tmp/warehouse", True, "Deltafold locks its tables"),
        ("abfss://box@there/warehouse", True, "only one of two concurrent commits"),
        ("s3a://bucket/warehouse", False, "Set spark.deltafold.stores: s3a"),
        ("s3://bucket/warehouse", False, "Write s3a:"),
        ("oss://bucket/warehouse", False, "Set spark.delta.logStore.oss.impl"),
    ],
)
def test_log_store(warehouse: str, ok: bool, part: str) -> None:
    found = finding("log store", warehouse)
    assert found.ok is ok and part in found.sentence


@pytest.mark.parametrize("own", ["S3SingleDriverLogStore", "HDFSLogStore"])
def test_a_log_store_of_delta_on_s3(own: str) -> None:
    """Protects from approving what a refresh refuses."""
    settings = {"spark.delta.logStore.s3a.impl": f"io.delta.storage.{own}"}
    found = finding("log store", "s3a://bucket/warehouse", settings=settings)
    assert not found.ok and "lets two processes commit the same version. Set spark.deltafold.stores" in found.sentence


def test_hive_without_a_metastore() -> None:
    settings = {"spark.sql.catalogImplementation": "hive"}
    found = finding("catalog", "warehouse", settings=settings)
    assert not found.ok and "Hive would make a database in the current folder" in found.sentence
    settings["spark.hadoop.javax.jdo.option.ConnectionURL"] = "jdbc:derby:;databaseName=/m;create=true"
    assert all(each.name != "catalog" for each in doctor.examine("warehouse", settings=settings))


def test_configured_log_store() -> None:
    settings = {"spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore"}
    assert finding("log store", "s3a://bucket/warehouse", settings=settings).ok
    provided = finding("log store", "s3a://bucket/warehouse", settings={"spark.deltafold.stores": "s3a"})
    assert provided.ok and "ConditionalLogStore" in provided.sentence
    unknown = finding("log store", "oss://bucket/warehouse", settings={"spark.deltafold.stores": "oss"})
    assert not unknown.ok and "oss is not known" in unknown.sentence
    with pytest.raises(UsageError, match="s3 is not known"):  # so that the command line exits with 2
        stores_in({STORES: "s3"})
    assert finding("warehouse", "s3a://bucket/warehouse").ok
