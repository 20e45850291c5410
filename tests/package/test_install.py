"""The built wheel, installed with the extras that the README names, beside Twisted and a user's own packages."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from deltafold.spark.cache import cache_folder
from tests.conftest import SMALL
from tests.night import night
from tests.package.environments import build, environment, find_python, requirements
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

    @property
    def variables(self) -> dict[str, str]:
        """Those of the commands: nothing of this process's packages."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DELTAFOLD"))}
        own = {"DELTAFOLD_CACHE": str(cache_folder()), "DELTAFOLD_PIPELINES": str(self.folder / "flows")}
        return inherited | own | {"SPARK_CONF_DIR": str(self.folder)}

    def run(self, command: str, *arguments: str, **variables: str) -> str:
        """Run a command of the environment in the project; returns its output."""
        called, known = [str(self.commands / command), *arguments], self.variables | variables
        done = subprocess.run(called, cwd=self.folder, env=known, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @contextmanager
    def spark(self) -> Iterator[str]:
        """Keep one Spark of the environment for several commands; yields the file that they find it by.

        It prints nothing, whatever they do.
        """
        file = self.folder.with_name("spark.json")
        called = [str(self.commands / "python"), "-m", "deltafold.spark.host", str(file)]
        host = subprocess.Popen(
            called, cwd=self.folder, env=self.variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            while not file.exists():
                assert host.poll() is None, "the host did not come up"
                time.sleep(0.1)
            yield str(file)
        finally:
            host.terminate()
            said, _ = host.communicate()
        assert said == ""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


def project(folder: Path, commands: Path) -> Project:
    for name, text in {"assets/definitions": DEFINITIONS, "assets/__init__": "", "pipelines/__init__": ""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(text)
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in SMALL.items()))
    return Project(folder, commands)


def check_project(mine: Project) -> None:
    """Run a pipeline, and refresh it by Dagster, beside the user's own packages, which stay as they are."""
    before = {path: path.read_text() for path in mine.folder.rglob("*.py")}
    mine.run("python", "-c", PARTS.format(here=str(mine.folder)))
    mine.run("deltafold", "new", "shop")
    late = mine.folder / "flows" / "shop" / "data" / "sales" / "day=2024-05-04"
    with mine.spark() as host:
        assert "epoch 1 applied" in mine.run("deltafold", "run", "shop", DELTAFOLD_SPARK_HOST=host)
        late.mkdir()
        (late / "late.csv").write_text("id,shop,product,amount\n10,s1,tea,2.20\n")
        job = ("-m", "assets.definitions", "-j", "shop_update", "--tags", DAY)
        mine.run("python", "-m", "dagster", "job", "execute", *job, DELTAFOLD_SPARK_HOST=host)
    assert json.loads(mine.run("deltafold", "path", "shop", "--json"))["epoch"] == 2
    assert {path: path.read_text() for path in mine.folder.rglob("*.py")} == before


@pytest.mark.own_spark
def test_wheel_beside_other_packages(wheel: Path, tmp_path: Path) -> None:
    """Protects from packages that other distributions have too, and from an extra that lacks what its steps import."""
    (extras,) = {*EXTRAS.findall((PROJECT / "README.md").read_text())}
    needed = requirements(wheel, extras.split(","))
    wanted = [f"deltafold[{extras}] @ {wheel.as_uri()}", "twisted"]
    commands = environment(tmp_path / "env", wanted, linked=needed)
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
    wanted = [
        f"deltafold[local,dagster,pipelines,demo,dev] @ {wheel.as_uri()}",
        *(oldest if release == "oldest" else []),
    ]
    commands = environment(tmp_path / "env", wanted, pinned=False)
    variables = os.environ | {"DELTAFOLD_CACHE": str(cache_folder())}
    tests = [str(commands / "python"), "-m", "pytest", "tests/dagster", "--junitxml", str(tmp_path / "tests.xml")]
    done = subprocess.run(tests, cwd=PROJECT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
