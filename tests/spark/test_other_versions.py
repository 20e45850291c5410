"""The same refreshes on other releases of Spark and Delta Lake, each in an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

from incremental.spark.cache import cache_folder
from tests.night import night
from tests.spark.machine import PROJECT

OTHERS = (("4.1.1", "4.3.1"),)  # pyspark and delta-spark; the tests themselves run on 4.2.0 and 4.4.0
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
    others = [need for need in needed if not need.startswith(("pyspark", "delta-spark"))]
    variables = os.environ | {"UV_CACHE_DIR": str(cache_folder("uv"))}
    install = "pip", "install", "--quiet", "--python", str(python), "--constraint", str(pins)
    for command in (
        ("venv", "--clear", "--quiet", str(folder)),
        (*install, f"pyspark=={spark}", f"delta-spark=={delta}", *others),
    ):
        subprocess.run([str(uv), *command], env=variables, check=True)
    (folder / "ready").touch()
    return python


@night
@pytest.mark.parametrize(("spark", "delta"), OTHERS)
def test_another_spark(tmp_path: Path, spark: str, delta: str) -> None:
    """Protects from a call into Spark or Delta that only the newest release has."""
    command = [str(environment(spark, delta)), "-m", "tests.spark.other_versions", str(tmp_path)]
    variables = os.environ | {"DELTAFOLD_CACHE": str(cache_folder())}
    done = subprocess.run(command, cwd=PROJECT, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-1]) == (f"{spark} {delta}", "equal")
