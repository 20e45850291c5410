"""Tasks of Spark find in input files what the driver finds."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources import Files
from deltafold.landing.folder import partitions_in
from deltafold.landing.preflight import inspection
from deltafold.landing.preflight.inspection import Inspection, in_batches
from deltafold.spark import catalyst
from tests.sandbox import DeltaSandbox

SCHEMA = "id int, name string"
FAULTS: dict[str, tuple[str, bytes]] = {
    "not UTF-8": ("a.csv", b"id,name\n1,\xe9\n"),
    "never closed": ("a.csv", b'id,name\n1,"x\n'),
    "more than one JSON object": ("a.json", b'{"id": 1} {"id": 2}\n'),
    "not a complete .gz file": ("a.csv.gz", gzip.compress(b"id,name\n1,x\n")[:-6]),
    "not well-formed XML": ("a.xml", b"<r><row><id>1</id>"),
    "is empty": ("a.txt", b""),
    "not a complete Parquet file": ("a.parquet", b"PAR1"),
    "lacks the column": ("b.parquet", b""),
}


@pytest.fixture(params=[1 << 40, 0], ids=["driver", "tasks"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where files are looked into."""
    monkeypatch.setattr(inspection, "TASK_BYTES", request.param)


def inspect(spark: SparkSession, root: Path, format: str) -> list[str]:
    """Look into the files of all partitions."""
    options = {"rowTag": "row"} if format == "xml" else {"wholetext": "true"} if format == "text" else {}
    columns: list[StructField] = list(catalyst.schema_of(SCHEMA))
    files = Files(str(root), cast(Any, format), f"{SCHEMA}, day int", partition_by="day", options=options)
    return list(
        Inspection(spark=spark, source="s", files=files, columns=columns, root=root).digests(
            [*partitions_in("s", files).values()]
        )
    )


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("fault", FAULTS)
def test_the_fault_of_the_first_file_is_told(spark: SparkSession, tmp_path: Path, fault: str) -> None:
    """Protects from a fault that is lost, or told as a page of Spark's, where tasks find it."""
    name, content = FAULTS[fault]
    format = {"txt": "text"}.get(kind := name.removesuffix(".gz").rpartition(".")[2], kind)
    for day in (1, 2, 3):
        (tmp_path / f"day={day}").mkdir()
    good = tmp_path / "day=1" / name
    if format == "parquet":
        columns = "1 id" if fault.startswith("lacks") else "1 id, 'x' name"
        spark.sql(f"select {columns}").toPandas().to_parquet(good if fault.startswith("not") else tmp_path / "b")
        content = content or (tmp_path / "b").read_bytes()
        (tmp_path / "b").unlink(missing_ok=True)
    else:
        good.write_bytes(gzip.compress(b"id,name\n1,x\n") if name.endswith("gz") else GOOD[format])
    for day in (2, 3):
        (tmp_path / f"day={day}" / name).write_bytes(content)
    where = f"source s was not landed: {tmp_path}/day=2/{name}"
    with pytest.raises(SourceError, match=fault) as caught:
        inspect(spark, tmp_path, format)
    assert str(caught.value).startswith(where)


GOOD = {
    "csv": b"id,name\n1,x\n", "json": b'{"id": 1}\n', "xml": b"<r><row><id>1</id></row></r>", "text": b"x\n",
}  # fmt: skip


@pytest.mark.usefixtures("place")
def test_a_file_that_is_gone_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    file = tmp_path / "day=1" / "a.csv"
    file.write_bytes(GOOD["csv"])
    files = Files(str(tmp_path), "csv", f"{SCHEMA}, day int", partition_by="day")
    found = [*partitions_in("s", files).values()]
    file.unlink()
    with pytest.raises(FileNotFoundError) as caught:
        list(Inspection(spark=spark, source="s", files=files, columns=[], root=tmp_path).digests(found))
    assert caught.value.filename == str(file)


def test_digests_are_the_same(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from landing everything again once a partition has grown."""
    for day in range(5):
        (tmp_path / f"day={day}").mkdir()
        for number in range(day + 1):
            (tmp_path / f"day={day}" / f"{number}.csv").write_text(f"id,name\n{day % 2},x{number}\n")
    here = inspect(spark, tmp_path, "csv")
    monkeypatch.setattr(inspection, "TASK_BYTES", 0)
    assert inspect(spark, tmp_path, "csv") == here
    assert len(set(here)) == 5


def test_batches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from copying all files of a store before the first of them is looked into."""
    for day in range(5):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "a.csv").write_text("x" * 10)
    found = [*partitions_in("s", Files(str(tmp_path), "csv", "day int", partition_by="day")).values()]
    monkeypatch.setattr(inspection, "BATCH_BYTES", 20)
    assert [[each.key for each in batch] for batch in in_batches(found)] == [["0", "1"], ["2", "3"], ["4"]]


def test_workers_without_the_package_are_told(
    delta: DeltaSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from Python's traceback of a worker, and from a landing that goes on without the check."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(GOOD["csv"])
    delta.warehouse.source("s", Files(str(tmp_path / "in"), "csv", SCHEMA))
    monkeypatch.setattr(inspection, "TASK_BYTES", 0)
    with monkeypatch.context() as patched:
        patched.setattr(inspection, "_check_and_digest", _elsewhere)
        with pytest.raises(SourceError, match=r"No module named 'gone'.*Install Deltafold for the Python of Spark's"):
            delta.warehouse.land("s")
    assert delta.warehouse.land("s").rows == 1


def _elsewhere(*_: object, **__: object) -> str:
    import gone  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]

    return str(gone)
