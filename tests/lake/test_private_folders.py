"""What others may not read is for its owner, whoever makes it first: a lock, a journal, or Delta (D-194)."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from deltafold.api import Files, Warehouse
from deltafold.demo import demo
from deltafold.lake.durable import make_private
from deltafold.spark.cache import cache_folder
from tests.spark.machine import PROJECT


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_new_folders_are_for_their_owner(tmp_path: Path) -> None:
    """Protects from rows that every user of a machine can read."""
    make_private(tmp_path / "a" / "b")
    assert [mode(path) for path in (tmp_path / "a", tmp_path / "a" / "b")] == [0o700, 0o700]
    os.umask(0o277)
    make_private(tmp_path / "strict")
    assert mode(tmp_path / "strict") == 0o500, "the umask takes more away"


@pytest.mark.usefixtures("umask")
def test_folders_that_exist_stay_as_they_are(tmp_path: Path) -> None:
    """Protects from shutting others out of a folder that was opened to them."""
    (tmp_path / "a").mkdir(mode=0o755)
    make_private(tmp_path / "a" / "b")
    make_private(tmp_path / "a")
    assert [mode(tmp_path / "a"), mode(tmp_path / "a" / "b")] == [0o755, 0o700]
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_private(tmp_path / "file")


@pytest.mark.usefixtures("umask")
def test_a_folder_that_is_shared_on_purpose_stays_shared(tmp_path: Path) -> None:
    """Protects from a warehouse of a team in which one member's views shut the others out."""
    (tmp_path / "team").mkdir()
    (tmp_path / "team").chmod(0o2770)
    os.umask(0o002)
    make_private(tmp_path / "team" / "views" / "v")
    assert mode(tmp_path / "team" / "views" / "v") & 0o777 == 0o770


@pytest.mark.usefixtures("umask")
def test_scratch_files_are_their_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELTAFOLD_CACHE", str(tmp_path))
    assert mode(cache_folder("tmp", "1", private=True)) == 0o700


@pytest.mark.usefixtures("umask")
def test_the_demo_and_dagster_keep_rows_to_their_owner(tmp_path: Path) -> None:
    demo._clear(tmp_path / "demo")
    home = tmp_path / "dagster"
    command = ["make", "-s", "-C", str(PROJECT), f"DAGSTER={home}", str(home / "dagster.yaml")]
    subprocess.run(command, check=True, capture_output=True)
    assert [mode(tmp_path / "demo"), mode(home)] == [0o700, 0o700]


@pytest.mark.usefixtures("umask")
def test_a_warehouse_shows_answers_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Protects from rows of sources that all may read, and from answers that nobody else can."""
    (tmp_path / "drop").mkdir()
    (tmp_path / "drop" / "a.csv").write_text("id\n1\n")
    one, other = (Warehouse(spark, tmp_path / name / "wh") for name in ("one", "other"))
    for warehouse in (one, other):
        warehouse.source("s", Files(str(tmp_path / "drop"), "csv", "id int"))
    one.land("s")
    view = one.view("v", "SELECT id, count(*) n FROM s GROUP BY id")
    view.refresh()
    view.branch("w", other)
    shared = [tmp_path / name / place for name in ("one", "other") for place in ("", "wh", "wh/views")]
    shared += [tmp_path / "one" / "wh" / place for place in ("views/v", "views/v/answer")]
    private = [
        tmp_path / "one" / "wh" / place
        for place in ("landed/s", "sources", "quarantine", "views/v/journal", "views/v/readers")
    ]
    wanted = dict.fromkeys(map(str, shared), 0o755) | dict.fromkeys(map(str, private), 0o700)
    assert {str(folder): mode(folder) for folder in (*shared, *private)} == wanted
