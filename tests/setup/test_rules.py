"""The rules of the code, which are the same for all rooms."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import incremental
from tests.setup.machine import PROJECT, run

CODE = sorted(
    path
    for room in ("incremental", "pipelines", "assets", "benchmarks", "tests")
    for path in (PROJECT / room).rglob("*.py")
)
LONGEST_MODULE, LONGEST_FUNCTION = 300, 40
OF_CODE = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}  # loading them runs what they hold
SAYING_NOTHING = re.compile(r"(^|_)(utils?|helpers?|managers?|base|common|misc)(_|$)")
ADDRESS = re.compile(
    r"https?://[^\s\"')]*(pypi|pythonhosted|maven|npmjs|mirror|index)|--(extra-)?index-url|--find-links"
)


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=False).stdout
    return [PROJECT / name for name in listed.split("\0") if name and (PROJECT / name).is_file()]


def test_imported_package_is_ours() -> None:
    assert Path(incremental.__file__ or "").parent == PROJECT / "incremental"


def test_importing_the_library_starts_nothing(tmp_path: Path) -> None:
    heavy = "{'pyspark', 'py4j', 'delta', 'dagster', 'pandas', 'pyarrow', 'matplotlib'}"
    program = (
        "import sys, incremental, incremental.algebra, incremental.compiler\n"
        f"sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    )
    done = run(program, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_rooms_look_one_way() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(PROJECT)))
def test_modules_are_small_and_say_what_they_are(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module begins with what it is"
    assert not SAYING_NOTHING.search(path.stem)
    if "tests" not in path.relative_to(PROJECT).parts:
        assert len(text.splitlines()) <= LONGEST_MODULE
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                assert length <= LONGEST_FUNCTION, f"{node.name} has {length} lines"


def imports(path: Path) -> set[str]:
    """The packages that a module imports, wherever in it."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in nodes]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("room", ["incremental", "pipelines", "assets"])
def test_data_is_never_code(room: str) -> None:
    """Protects from files that, being read, run what somebody wrote into them."""
    for path in (PROJECT / room).rglob("*.py"):
        assert not imports(path) & OF_CODE, path
        assert "yaml.load(" not in path.read_text(), path


def test_only_this_machine_is_served() -> None:
    """Protects from a web server on all addresses; tests/setup/test_loopback.py looks at Spark."""
    (started,) = [line for line in (PROJECT / "Makefile").read_text().splitlines() if "dagster dev" in line]
    assert started.endswith("-h 127.0.0.1")


@pytest.mark.parametrize("path", tracked(), ids=lambda path: str(path.relative_to(PROJECT)))
def test_no_file_names_a_registry_or_a_machine(path: Path) -> None:
    if path == Path(__file__) or path.suffix in {".png", ".csv", ".gz", ".parquet"}:
        return
    text = path.read_text(errors="replace")
    assert not ADDRESS.search(text)
    assert str(PROJECT) not in text
    assert str(Path.home()) + "/" not in text


def test_every_pin_has_its_hash() -> None:
    pins = re.split(r"\n(?=\S)", (PROJECT / "constraints.txt").read_text().strip())
    assert len(pins) > 80
    assert all("==" in pin.splitlines()[0] and "--hash=sha256:" in pin for pin in pins)
