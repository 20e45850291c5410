"""Check the rules that all code must fulfil."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import deltafold
from tests.spark.machine import PROJECT, run

CODE = sorted(
    path
    for package in ("incremental", "pipelines", "assets", "benchmarks", "tests", "docs")
    for path in (PROJECT / package).rglob("*.py")
)
OF_CODE = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}  # loading them runs what they hold
SAYING_NOTHING = re.compile(r"(^|_)(utils?|helpers?|managers?|base|common|misc)(_|$)")
WHAT = re.compile(r"((?!\. [A-Z]).)*?: |\{error\}|\{\w*\}$")
FIX = re.compile(r"[.?)}] [A-Z{`]|\{\w*\}(\.|, .*)?$")
PARTICIPLE = re.compile(
    r"_*([a-z]*[a-df-z]ed|told|made|found|given|kept|chosen|shown|written|built|drawn|held|known|taken)"
)
ADJECTIVES = {"quoted", "quarantined", "malformed", "landed"}  # of what the function returns
LOCATED = {"error", "fault", "BadParameter", "declaration"}  # the place is added to errors of MRQL, a monoid, an option
ADDRESS = re.compile(
    r"https?://[^\s\"')]*(pypi|pythonhosted|maven|npmjs|mirror|index)|--(extra-)?index-url|--find-links"
)


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=False).stdout
    return [PROJECT / name for name in listed.split("\0") if name and (PROJECT / name).is_file()]


def test_imported_package_is_ours() -> None:
    assert Path(deltafold.__file__ or "").parent == PROJECT / "incremental" / "deltafold"


def test_importing_the_library_starts_nothing(tmp_path: Path) -> None:
    heavy = "{'pyspark', 'py4j', 'delta', 'dagster', 'pandas', 'pyarrow', 'matplotlib'}"
    program = (
        "import sys, deltafold, deltafold.algebra, deltafold.compiler\n"
        f"sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    )
    done = run(program, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_imports_go_one_way() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_modules_say_what_they_are() -> None:
    """Protects from modules without a docstring, or with a name that says nothing."""
    assert not [path for path in CODE if SAYING_NOTHING.search(path.stem)]
    assert not [path for path in CODE if not ast.get_docstring(ast.parse(path.read_text()))]


def test_documented_files_exist() -> None:
    """Protects from a page that sends the reader to a file that was moved."""
    files = [f"/{path.relative_to(PROJECT)}" for path in tracked()]
    pages = ("contributing/map.md", "contributing/tests.md", "explanation/refresh.md", "explanation/costs.md")
    text = "".join((PROJECT / "docs" / page).read_text() for page in pages)
    named = re.findall(r"`([\w/.]+(?:\.py|\.md|\.json|\.lark|\.mrql|/))`", text)
    assert len(named) > 60
    assert not [name for name in named if not any(f"/{name}" in file for file in files)]


def test_decisions_are_numbered_short_and_cited() -> None:
    """Protects from a number in the code that leads nowhere, and from decisions that nobody finds or reads."""
    index, *entries = re.split(r"(?m)^(?=## )", (PROJECT / "incremental" / "DECISIONS.md").read_text())
    heads = [re.match(r"## (D-\d{3}) (.+) \(\d{4}-\d\d-\d\d\)\n", entry) for entry in entries]
    decisions = {head[1]: head[2] for head in heads if head}
    assert list(decisions) == [f"D-{number:03}" for number in range(1, len(entries) + 1)]
    assert sorted(re.findall(r"(?m)^- (D-\d{3}) (.+)$", index)) == sorted(decisions.items())
    assert [entry for entry in entries if len(entry.strip().splitlines()) > 9] == []
    cited = {number for path in CODE if path != Path(__file__) for number in re.findall(r"D-\d{3}", path.read_text())}
    assert len(cited) > 20 and cited <= decisions.keys()


def functions(path: Path) -> Iterator[str]:
    """Yield the names of a module's functions and methods, without properties and functions within functions."""
    tree = ast.parse(path.read_text())
    for owner in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))):
        for node in owner.body:
            if isinstance(node, ast.FunctionDef) and "property" not in str([*map(ast.unparse, node.decorator_list)]):
                yield node.name


def test_functions_are_named_by_verbs() -> None:
    """Protects from names such as `grouped`, which look like values."""
    product = [path for path in CODE if not {"tests", "benchmarks"} & {*path.relative_to(PROJECT).parts}]
    found = {name for path in product for name in functions(path) if PARTICIPLE.fullmatch(name)}
    assert not found - ADJECTIVES - {"_embed"}


def user_errors() -> set[str]:
    """Return the names of the error classes whose messages users read; NoDataError has the name of a source only."""
    bases = dict[str, set[str]]()
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and "tests" not in path.parts:
                bases[node.name] = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    found = {"DeltafoldError"}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found - {"NoDataError"}


def messages(path: Path, kinds: set[str]) -> Iterator[tuple[str, str]]:
    """Yield class and message of the errors that a module creates for its users; values are shown as {} or {name}."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and node.args:
            kind = ast.unparse(node.func).rpartition(".")[2]
            if kind == "ValueError" and "declaration" in path.parts:
                kind = "declaration"
            if kind in kinds or (kind == "ValueError" and path.stem == "tuning"):
                yield kind, literal(node.args[0])


def literal(node: ast.AST) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(literal, values))
        case ast.FormattedValue(value=ast.Name(id=name)):
            return f"{{{name}}}"
        case _:
            return "{}"


def test_every_error_has_what_cause_and_fix() -> None:
    """An error is `what: cause. fix.`; a message that is, or ends with, a value has the rest in that."""
    kinds = user_errors() | LOCATED
    found = [(path.stem, *each) for path in CODE if "tests" not in path.parts for each in messages(path, kinds)]
    assert len(kinds) > 18 and len(found) > 330
    assert not [each for each in found if not FIX.search(each[2])]
    assert not [each for each in found if each[1] not in LOCATED and not WHAT.match(each[2])]


def imports(path: Path) -> set[str]:
    """Return the packages that a module imports, anywhere in it."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in nodes]
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("package", ["incremental", "pipelines", "assets"])
def test_data_is_never_code(package: str) -> None:
    """Protects from file formats whose reading executes their content."""
    for path in (PROJECT / package).rglob("*.py"):
        assert not imports(path) & OF_CODE, path
        assert "yaml.load(" not in path.read_text(), path


def test_only_this_machine_is_served() -> None:
    """Protects from a web server on all addresses; tests/spark/test_loopback.py looks at Spark."""
    (started,) = [line for line in (PROJECT / "Makefile").read_text().splitlines() if "dagster dev" in line]
    assert started.endswith("-h 127.0.0.1")


def test_no_file_names_a_registry_or_a_machine() -> None:
    """Protects from an address or a folder that only one machine has."""
    here, binary = (str(PROJECT), f"{Path.home()}/"), {".png", ".csv", ".gz", ".parquet"}
    texts = {
        path.relative_to(PROJECT): path.read_text(errors="replace")
        for path in tracked()
        if path != Path(__file__) and path.suffix not in binary
    }
    assert not [path for path, text in texts.items() if ADDRESS.search(text) or any(place in text for place in here)]


def test_every_pin_has_its_hash() -> None:
    pins = re.split(r"\n(?=\S)", (PROJECT / "constraints.txt").read_text().strip())
    assert len(pins) > 80
    assert all("==" in pin.splitlines()[0] and "--hash=sha256:" in pin for pin in pins)
