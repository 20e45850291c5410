"""Importing the package starts nothing, and a package that is missing is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

import deltafold
from deltafold import api
from tests.spark.machine import PYTHONPATH, run

HEAVY = "{'pyspark', 'py4j', 'delta', 'dagster', 'pandas', 'pyarrow', 'matplotlib', 'typer', 'lark'}"
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def test_every_public_name_is_exported() -> None:
    assert deltafold.__all__ == api.__all__
    assert {name: getattr(deltafold, name) for name in deltafold.__all__} == {
        name: getattr(api, name) for name in api.__all__
    }
    assert {*deltafold.__all__, "__version__"} <= {*dir(deltafold)}
    with pytest.raises(AttributeError, match="module 'deltafold' has no attribute 'no_such_name'"):
        _ = deltafold.no_such_name  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]


def test_importing_starts_nothing(tmp_path: Path) -> None:
    """A deep import of the parts that need no Spark brings none either."""
    program = (
        "import sys, deltafold, deltafold.algebra, deltafold.compiler, deltafold.cli\n"
        "assert deltafold.__version__ and 'Warehouse' in dir(deltafold)\n"
        f"sys.exit(', '.join({HEAVY} & set(sys.modules)) or 0)"
    )
    done = run(program, cwd=tmp_path, PYTHONPATH=PYTHONPATH)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("missing", "program", "sentence"),
    [
        (
            "pyspark",
            "import deltafold as df; df.Warehouse",
            "Run pip install 'deltafold[local]', or use the Python of a",
        ),
        ("pyspark", "from deltafold import start", "pyspark: the package that runs the queries is not installed. Run"),
        ("dagster", "from deltafold.dagster import load_definitions", "Run pip install 'deltafold[dagster]'."),
    ],
)
def test_missing_package_is_one_sentence(tmp_path: Path, missing: str, program: str, sentence: str) -> None:
    done = run(WITHOUT.format(names={missing}) + program, cwd=tmp_path, PYTHONPATH=PYTHONPATH)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith(f"deltafold.algebra.errors.MissingPackageError: {missing}: ") and sentence in last


def test_command_without_spark_ends_with_one_sentence(tmp_path: Path) -> None:
    program = "import sys\nfrom deltafold.cli.commands import main\nsys.argv = ['deltafold', {!r}, 'shop']\nmain()"
    assert run(program.format("new"), cwd=tmp_path, PYTHONPATH=PYTHONPATH).returncode == 0
    done = run(WITHOUT.format(names={"pyspark"}) + program.format("run"), cwd=tmp_path, PYTHONPATH=PYTHONPATH)
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (
        70,
        "pyspark: the package that runs the queries is not installed. Run pip install 'deltafold[local]', or use the "
        "Python of a platform that has Spark.",
    )
