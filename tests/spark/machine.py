"""Stands in for other machines: runs a Python program with no Java on the PATH, another home, another cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PYTHONPATH = os.pathsep.join([str(PROJECT / "incremental"), str(PROJECT)])  # for processes that import tests
QUICK_JAVA = "-XX:TieredStopAtLevel=1"  # compiles less, starts sooner


def without_java(folder: Path) -> str:
    """A PATH with all the programs of this one but java; `folder` is made, and holds them."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*") if place else ():
            if program.name != "java" and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


def run(program: str, *args: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs Python text in a folder of its own, with the variables added; none of this run's Java or Spark settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))}
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        cwd=cwd,
        env=kept | variables,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
