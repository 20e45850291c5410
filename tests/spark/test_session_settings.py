"""A laptop's settings are a laptop's alone: on any other Spark the user's stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from deltafold.spark.cache import cache_folder
from deltafold.spark.jvm.jars import delta_jars
from deltafold.spark.jvm.java import launch_environment, provide_java
from deltafold.spark.session_settings import (
    DELTA_SETTINGS,
    EXTENSIONS,
    LOG_STORE,
    LOOPBACK_SETTINGS,
    is_laptop,
    session_settings,
)
from tests.night import night
from tests.spark.machine import PYTHONPATH

OF_A_LAPTOP = (
    "spark.local.dir",
    "spark.driver.memory",
    "spark.ui.enabled",
    "spark.sql.warehouse.dir",
    "spark.sql.catalogImplementation",
    "spark.sql.shuffle.partitions",
    "spark.databricks.delta.snapshotPartitions",
    LOG_STORE,
    "spark.driver.extraJavaOptions",
)


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2, 3]"])
def test_a_laptop(master: str) -> None:
    found = session_settings("a", master, None, {})
    assert is_laptop(master)
    assert not {*OF_A_LAPTOP, *DELTA_SETTINGS, *LOOPBACK_SETTINGS} - found.keys()
    assert found["spark.driver.memory"] == "2g"


@pytest.mark.parametrize("master", ["yarn", "spark://master:7077", "k8s://https://host:6443", "local-cluster[2,1,512]"])
def test_a_cluster_keeps_its_settings(master: str) -> None:
    """Protects from a driver that no executor reaches, and from scratch folders that executors do not have."""
    found = session_settings("a", master, None, {})
    assert not is_laptop(master)
    assert not found.keys() & {*OF_A_LAPTOP}
    assert bool(found.keys() & LOOPBACK_SETTINGS.keys()) == master.startswith("local")
    assert DELTA_SETTINGS.items() <= found.items()
    assert session_settings("a", master, "3g", {})["spark.driver.memory"] == "3g"


def test_a_cluster_on_this_machine() -> None:
    assert LOOPBACK_SETTINGS.items() <= session_settings("a", "spark://127.0.0.1:7077", None, {}).items()


def test_given_settings_win() -> None:
    given = {"spark.master": "yarn", "spark.sql.session.timeZone": "Europe/Oslo", "spark.driver.host": "driver"}
    found = session_settings("a", "local[*]", None, given)
    assert given.items() <= found.items()
    assert "spark.local.dir" not in found


def test_one_log_store_for_all_schemes() -> None:
    """Protects from a session that Delta refuses, as it has a log store for each scheme and one for all of them."""
    assert LOG_STORE not in session_settings("a", "local[2]", None, {"spark.delta.logStore.class": "x.Store"})


def test_extensions_are_added_to_deltas() -> None:
    """Protects from a session without Delta where the user has an extension of another kind."""
    assert session_settings("a", "yarn", None, {EXTENSIONS: "x.Y"})[EXTENSIONS] == f"{DELTA_SETTINGS[EXTENSIONS]},x.Y"
    both = f"x.Y,{DELTA_SETTINGS[EXTENSIONS]}"
    assert session_settings("a", "yarn", None, {EXTENSIONS: both})[EXTENSIONS] == both


SUBMITTED = """
import sys
from pyspark.sql import SparkSession
from deltafold.api import Delta, Warehouse, start
if sys.argv[2] == "session":
    made = SparkSession.builder.getOrCreate()
spark = start(settings={"spark.sql.shuffle.partitions": "3"})
spark.range(9).selectExpr("id % 2 k", "id v").write.format("delta").save(sys.argv[1] + "/t")
warehouse = Warehouse(spark, sys.argv[1] + "/warehouse")
warehouse.source("t", Delta(sys.argv[1] + "/t"))
view = warehouse.view("v", "SELECT k, sum(v) s FROM t GROUP BY k")
view.refresh()
names = "spark.master", "spark.app.name", "spark.local.dir", "spark.sql.shuffle.partitions"
print(view.verify().ok, *(spark.sparkContext.getConf().get(each, "-") for each in names[:3]), spark.conf.get(names[3]))
"""


def submitted(folder: Path, *options: str, session: str = "none") -> subprocess.CompletedProcess[str]:
    """Run a program by spark-submit, as a platform does."""
    program = folder / "job.py"
    program.write_text(SUBMITTED)
    environment = os.environ | launch_environment(provide_java()) | {"PYSPARK_PYTHON": sys.executable}
    command = [f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", "local[1]", "--name", "theirs", *options]
    command += ["--conf", f"spark.local.dir={folder}/scratch", "--conf", "spark.ui.enabled=false"]
    variables = environment | {"PYTHONPATH": PYTHONPATH, "DELTAFOLD_CACHE": str(cache_folder())}
    return subprocess.run(
        [*command, str(program), str(folder), session], env=variables, cwd=folder, capture_output=True, text=True
    )


@night
@pytest.mark.parametrize("session", ["none", "session"])
def test_spark_submit_keeps_its_spark(tmp_path: Path, session: str) -> None:
    """Protects from a second Spark beside the platform's, or from other settings than the platform gave."""
    extended = [option for name, value in DELTA_SETTINGS.items() for option in ("--conf", f"{name}={value}")]
    jars = ",".join(map(str, delta_jars()))
    done = submitted(tmp_path, "--jars", jars, *(extended if session == "session" else []), session=session)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["True", "local[1]", "theirs", f"{tmp_path}/scratch", "3"]


@night
def test_spark_submit_without_delta(tmp_path: Path) -> None:
    done = submitted(tmp_path)
    assert done.returncode == 1
    assert "lacks Delta Lake: its jars are not on the class path. Start it with --packages io.delta:" in done.stdout
