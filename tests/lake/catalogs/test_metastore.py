"""Sources and views by their names in a real Hive metastore, shared by processes: by day one exchange of names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lake.catalogs.metastore import HiveMetastore
from tests.night import night
from tests.spark.machine import PYTHONPATH

# root without the right to read and write everything
OBEDIENT = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if shutil.which("setpriv") else []
SECURITY = "org.apache.hadoop.hive.ql.security"
AUTHORIZED = {
    "hive.metastore.pre.event.listeners": f"{SECURITY}.authorization.AuthorizationPreEventListener",
    "hive.security.metastore.authorization.manager": f"{SECURITY}.authorization.StorageBasedAuthorizationProvider",
    "hive.security.metastore.authenticator.manager": f"{SECURITY}.HadoopDefaultMetastoreAuthenticator",
}


@pytest.fixture
def metastore(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HiveMetastore]:
    found = HiveMetastore(tmp_path, getattr(request, "param", None))
    yield found
    found.kill()


def start_child(work: str, folder: Path, settings: dict[str, str]) -> subprocess.Popen[str]:
    (folder / "here").mkdir(exist_ok=True)
    command = [*OBEDIENT, sys.executable, "-m", "tests.lake.catalogs.metastore_child", work, str(folder)]
    variables = os.environ | {"METASTORE": json.dumps(settings), "PYTHONPATH": PYTHONPATH}
    return subprocess.Popen(
        command, cwd=folder / "here", env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run_child(work: str, folder: Path, settings: dict[str, str]) -> None:
    _, errors = (child := start_child(work, folder, settings)).communicate(timeout=400)
    assert child.returncode == 0, errors[-4000:]
    assert not list((folder / "here").iterdir()), "nothing is left in the current folder"


def declare(folder: Path, settings: dict[str, str]) -> None:
    """Declare the pipeline `shop` over the table of a child."""
    home = folder / "pipelines" / "shop"
    home.mkdir(parents=True, exist_ok=True)
    spark = {"master": "local[2]", "memory": "1g", "settings": settings}
    declared = {
        "warehouse": str(folder / "named"),
        "publish_as": "shop.totals",
        "sources": {"t": {"table": "shop.orders"}},
    }
    (home / "pipeline.yaml").write_text(json.dumps(declared | {"spark": spark}))
    (home / "query.sql").write_text("select k, sum(v) s from t group by k")


def deltafold(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "here").mkdir(exist_ok=True)
    variables = os.environ | {"DELTAFOLD_PIPELINES": str(folder / "pipelines"), "PYTHONPATH": PYTHONPATH}
    return subprocess.run(
        [sys.executable, "-m", "deltafold", *arguments],
        cwd=folder / "here",
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )


@night
def test_names_are_shared_by_processes(metastore: HiveMetastore, tmp_path: Path) -> None:
    """Protects from a name that only the process knows that gave it."""
    declare(tmp_path, metastore.settings)
    run_child("create", tmp_path, metastore.settings)
    done = deltafold(tmp_path, "run", "shop")
    assert done.returncode == 0 and "epoch 1 applied" in done.stdout, done.stderr
    run_child("read", tmp_path, metastore.settings)


@night
@pytest.mark.parametrize("work", ["lose_tables", "live"])
def test_names_follow_their_tables(metastore: HiveMetastore, tmp_path: Path, work: str) -> None:
    """Protects from a catalog in memory that behaves otherwise than a metastore."""
    run_child(work, tmp_path, metastore.settings)


@night
@pytest.mark.parametrize("metastore", [AUTHORIZED], indirect=True)
def test_a_metastore_that_refuses_a_view(metastore: HiveMetastore, tmp_path: Path) -> None:
    """Protects from a refresh that is lost where its name may not be registered."""
    run_child("lack_permission", tmp_path, metastore.settings)


@night
@pytest.mark.skipif(os.getuid() == 0 and not OBEDIENT, reason="root may read everything, and there is no setpriv")
def test_a_table_that_may_not_be_read(metastore: HiveMetastore, tmp_path: Path) -> None:
    """Protects from a table that is taken for missing, and from the name of another folder."""
    run_child("lack_files", tmp_path, metastore.settings)


@night
def test_a_metastore_that_does_not_answer(metastore: HiveMetastore, tmp_path: Path) -> None:
    """Protects from minutes of silence and from Java's own words, and from a name that is lost meanwhile."""
    declare(tmp_path, metastore.settings)
    run_child("create", tmp_path, metastore.settings)
    assert deltafold(tmp_path, "run", "shop").returncode == 0
    metastore.pause()
    begun = time.monotonic()
    check_silence(deltafold(tmp_path, "run", "shop"), "Read timed out")
    assert time.monotonic() - begun < 180
    metastore.kill()
    check_silence(deltafold(tmp_path, "run", "shop"), "Connection refused")
    found = deltafold(tmp_path, "doctor", "shop")
    assert found.returncode != 0
    assert f"The catalog does not answer (thrift://127.0.0.1:{metastore.port}: Connection refused)" in found.stdout
    metastore.start()
    run_child("read", tmp_path, metastore.settings)
    done = deltafold(tmp_path, "run", "shop")
    assert done.returncode == 0 and "epoch 2 applied" in done.stdout, done.stderr
    assert "answers." in deltafold(tmp_path, "doctor", "shop").stdout


def check_silence(done: subprocess.CompletedProcess[str], reason: str) -> None:
    message = done.stderr.strip().splitlines()[-1]
    asked = "cannot look up table spark_catalog.shop.orders"
    fix = "Start it, or correct its address, and try again."
    assert (done.returncode, message) == (4, f"{asked}: the catalog does not answer ({reason}). {fix}")


@night
def test_derby_admits_one_process(tmp_path: Path) -> None:
    """Protects from a metastore in the current folder, and from Derby's own words in a second process."""
    declare(tmp_path, {"spark.sql.catalogImplementation": "hive"})
    done = deltafold(tmp_path, "run", "shop")
    assert done.returncode == 70 and done.stderr.strip().splitlines()[-1].startswith(
        "spark.sql.catalogImplementation is hive: no metastore is set"
    ), done.stderr
    address = f"jdbc:derby:;databaseName={tmp_path / 'metastore'};create=true"
    settings = {"spark.sql.catalogImplementation": "hive", "spark.hadoop.javax.jdo.option.ConnectionURL": address}
    declare(tmp_path, settings)
    with start_child("wait", tmp_path, settings) as child:
        assert child.stdout is not None
        assert any(line == "opened\n" for line in child.stdout)
        done = deltafold(tmp_path, "run", "shop")
        child.kill()
    database = f"another process has opened {tmp_path / 'metastore'}, the Derby database of Hive's metastore"
    assert done.returncode == 4 and database in done.stderr, done.stderr
    assert not list((tmp_path / "here").iterdir()), "nothing is left in the current folder"
