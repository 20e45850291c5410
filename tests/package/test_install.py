"""The built wheel, installed with the extras that the README names, beside Twisted and a user's own packages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from deltafold.spark.cache import cache_folder
from tests.night import night
from tests.package.environments import build, environment, find_python
from tests.spark.machine import PROJECT

EXTRAS = re.compile(r"pip install '\.\[([\w,]*dagster)\]'")  # as the README installs it
OLDEST = re.compile(r"(dagster[\w-]*)>=([\d.]+)")
DAY = '{"dagster/partition": "2024-05-04"}'
DEFINITIONS = """
import dagster as dg
from deltafold.dagster import load_definitions

@dg.asset(deps=["shop"])
def letter() -> None: ...

defs = dg.Definitions.merge(load_definitions(), dg.Definitions(assets=[letter]))
"""
PARTS = """
import assets, incremental, pipelines, twisted
import deltafold as df
assert assets.__file__.startswith({here!r}) and pipelines.__file__.startswith({here!r})
assert "site-packages" in incremental.__file__ and hasattr(incremental, "Version"), incremental.__file__
assert "site-packages" in df.__file__ and df.Warehouse and df.start, df.__file__
"""


@dataclass(frozen=True)
class Project:
    """A user's project with Python packages that are called `assets` and `pipelines`, and an environment of its own."""

    folder: Path
    commands: Path

    def run(self, command: str, *arguments: str) -> str:
        """Run a command of the environment in the project; returns its output."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DELTAFOLD"))}
        variables |= {"DELTAFOLD_CACHE": str(cache_folder()), "DELTAFOLD_PIPELINES": str(self.folder / "flows")}
        done = subprocess.run(
            [str(self.commands / command), *arguments], cwd=self.folder, env=variables, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


def project(folder: Path, commands: Path) -> Project:
    for name, text in {"assets/definitions": DEFINITIONS, "assets/__init__": "", "pipelines/__init__": ""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(text)
    return Project(folder, commands)


def check_project(mine: Project) -> None:
    """Run a pipeline, and refresh it by Dagster, beside the user's own packages, which stay as they are."""
    before = {path: path.read_text() for path in mine.folder.rglob("*.py")}
    mine.run("python", "-c", PARTS.format(here=str(mine.folder)))
    mine.run("deltafold", "new", "shop")
    assert "epoch 1 applied" in mine.run("deltafold", "run", "shop")
    late = mine.folder / "flows" / "shop" / "data" / "sales" / "day=2024-05-04"
    late.mkdir()
    (late / "late.csv").write_text("id,shop,product,amount\n10,s1,tea,2.20\n")
    mine.run("dagster", "job", "execute", "-m", "assets.definitions", "-j", "shop_update", "--tags", DAY)
    assert json.loads(mine.run("deltafold", "path", "shop", "--json"))["epoch"] == 2
    assert {path: path.read_text() for path in mine.folder.rglob("*.py")} == before


@pytest.mark.own_spark
def test_wheel_beside_other_packages(wheel: Path, tmp_path: Path) -> None:
    """Protects from packages that other distributions have too, and from an extra that lacks what its steps import."""
    (extras,) = {*EXTRAS.findall((PROJECT / "README.md").read_text())}
    commands = environment(tmp_path / "env", [f"deltafold[{extras}] @ {wheel.as_uri()}", "twisted"])
    check_project(project(tmp_path / "project", commands))


@pytest.mark.own_spark
@night
@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_other_pythons(wheel: Path, tmp_path: Path, version: str) -> None:
    """Unpinned: the releases that a user gets today."""
    wanted = [f"deltafold[local,dagster] @ {wheel.as_uri()}", "twisted"]
    commands = environment(tmp_path / "env", wanted, find_python(version), pinned=False)
    check_project(project(tmp_path / "project", commands))


@night
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("release", ["oldest", "newest"])
def test_other_dagsters(wheel: Path, tmp_path: Path, release: str) -> None:
    """The tests of assets pass with the oldest Dagster that pyproject.toml allows, and with today's newest."""
    dagster = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["dagster"]
    bounds = [OLDEST.match(requirement) for requirement in dagster]
    oldest = [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]
    assert len(oldest) == 3, oldest
    wanted = [f"deltafold[local,dagster,demo,dev] @ {wheel.as_uri()}", *(oldest if release == "oldest" else [])]
    commands = environment(tmp_path / "env", wanted, pinned=False)
    variables = os.environ | {"DELTAFOLD_CACHE": str(cache_folder())}
    tests = [str(commands / "python"), "-m", "pytest", "tests/dagster", "--junitxml", str(tmp_path / "tests.xml")]
    done = subprocess.run(tests, cwd=PROJECT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
