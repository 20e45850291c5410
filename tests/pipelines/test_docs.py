"""README and docs, executed: Python and commands print what the pages show but for seconds, jobs and folders.

--regenerate-golden writes what Python printed into the pages, and in docs/examples what commands printed. By day the
Python of README, tutorial and reference runs, by night that of every page.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import deltafold
from deltafold import dagster
from deltafold.cli import commands as cli
from tests.conftest import SMALL
from tests.landing.kafka.broker import Broker
from tests.night import night, sampled

PROJECT = Path(__file__).parents[2]
PAGES = (PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md")))
EXAMPLES = [page for page in PAGES if page.parent.name == "examples"]
BY_DAY = [page for page in PAGES if page.parent.name in (PROJECT.name, "tutorial", "reference")]
OUTPUT = '```text title="Output"'
BLOCK = re.compile(rf"(?ms)^```(python|console)\n(.*?)^```\n(?:\n{OUTPUT}\n(.*?)^```\n)?")
BROKER = "localhost:9092"
VARYING = re.compile(
    r"the slowest: \S+|\d+\.\d s\b|\d+ Spark jobs?|^  seconds: .*$|^/\S+(?=/\.warehouse/)", re.MULTILINE
)


def blocks(language: str, *pages: Path) -> list[str]:
    """The code blocks of a language on some pages, in order."""
    texts = [page.read_text(encoding="utf-8") for page in pages]
    return [block for text in texts for block in re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.DOTALL)]


def python(page: Path, folder: Path) -> str:
    """The program of a page, which writes below a folder."""
    return "\n".join(blocks("python", page)).replace("/tmp/", f"{folder}/tmp/")


def spoken(block: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that stands below it."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Path:
    monkeypatch.delenv("DELTAFOLD_PIPELINES", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_there_is_something_to_run() -> None:
    assert len(blocks("python", *PAGES)) > 30
    assert {command.split()[1] for block in blocks("console", *PAGES) for command, _ in spoken(block)} >= {
        "new",
        "run",
        "show",
        "verify",
    }


def test_links_lead_somewhere() -> None:
    pages = re.findall(r": (\S+\.md)$", (PROJECT / "mkdocs.yml").read_text(), re.MULTILINE)
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            path = os.path.normpath(page.parent / target)
            made = os.path.relpath(path, PROJECT / "docs") in pages  # docs/build.py makes it
            assert target.startswith("https://") or Path(path).exists() or made, f"{page.name}: {target}"


def test_pages_name_what_exists() -> None:
    """Protects from a renamed command, option, function or field that a page still names."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    options = dict(list_options("deltafold", typer.main.get_command(cli.app)))
    found = re.findall(r"(?:^\$ |`|^)deltafold (?:--pipelines [^\s`]+ )?([a-z][a-z-]+)([^\n`#|]*)", text, re.MULTILINE)
    assert len(found) > 80
    unknown = [command for command, _ in found if command not in options]
    assert unknown == []
    asked = [(command, option) for command, rest in found for option in re.findall(r"(?<!\S)--[a-z-]+", rest)]
    assert [each for each in asked if each[1] not in options[each[0]]] == []
    assert {*re.findall(r"\bdf\.(\w+)", text)} <= {*deltafold.__all__, *dagster.__all__}
    assert {*re.findall(r"\bTuning\.(\w+)", text)} <= {field.name for field in dataclasses.fields(deltafold.Tuning)}


def list_options(name: str, command: Any) -> Iterator[tuple[str, set[str]]]:
    """Yield each command below a group, with its options and those of the commands below it."""
    for below, child in getattr(command, "commands", {}).items():
        options = {option for parameter in child.params for option in (*parameter.opts, *parameter.secondary_opts)}
        yield below, options.union(*(found for _, found in list_options(below, child)))


def test_the_readme_is_one_screen() -> None:
    lines = (PROJECT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 100


@night
def test_the_readme_runs(tmp_path: Path) -> None:
    """In a process of its own, as a reader would; on a few rows, compiling a plan costs more than running it."""
    settings = tmp_path / "settings"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in SMALL.items()))
    environment = os.environ | {"SPARK_CONF_DIR": str(settings)}
    subprocess.run([sys.executable, "-c", python(PAGES[0], tmp_path)], check=True, cwd=tmp_path, env=environment)


@pytest.fixture
def places(elsewhere: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """What stands here for a folder, and a broker, of the reader's."""
    here = {"/tmp/": f"{elsewhere}/tmp/"}
    if not any(BROKER in block for block in blocks("python", request.getfixturevalue("page"))):
        yield here
        return
    broker = Broker(elsewhere / "broker")
    yield here | {BROKER: broker.address}
    broker.kill()


def replace_all(text: str, places: Mapping[str, str]) -> str:
    for before, after in places.items():
        text = text.replace(before, after)
    return text


def run_block(block: re.Match[str], names: dict[str, Any], places: Mapping[str, str]) -> str:
    """Run a block of a page in the program so far; return it with what it printed, if the page shows that."""
    back = {here: theirs for theirs, here in places.items()}
    if block[1] == "console":
        ran = [(command, run_command(replace_all(command, places))) for command, _ in spoken(block[2])]
        return "".join(["```console\n", *(f"$ {command}\n{replace_all(out, back)}" for command, out in ran), "```\n"])
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(replace_all(block[2], places), "page", "exec"), names)
    if block[3] is None:
        return block[0]
    output = "\n".join(line.rstrip() for line in replace_all(printed.getvalue(), back).splitlines())
    return f"```python\n{block[2]}```\n\n{OUTPUT}\n{output}\n```\n"


def run_command(command: str) -> str:
    """Run a command in this folder; return what it printed, if it is ours."""
    if not command.startswith("deltafold "):
        subprocess.run(["sh", "-c", command], check=True)
        return ""
    result = CliRunner().invoke(cli.app, shlex.split(command)[1:])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    "page",
    sampled([page for page in PAGES if blocks("python", page)], BY_DAY.__contains__, lambda page: page.stem),
)
def test_the_python_of_a_page_runs(
    elsewhere: Path, spark: SparkSession, page: Path, places: Mapping[str, str], regenerate: bool
) -> None:
    """All blocks of a page in one program: a later one continues an earlier one. Of an example, commands as well."""
    names: dict[str, Any] = {"__name__": page.stem}
    before = page.read_text(encoding="utf-8")
    (elsewhere / "docs").symlink_to(PROJECT / "docs")
    try:
        after = BLOCK.sub(
            lambda block: (
                block[0] if block[1] == "console" and page not in EXAMPLES else run_block(block, names, places)
            ),
            before,
        )
    finally:
        spark.sql("drop view if exists default.sales_by_day")
        spark.sql("drop database if exists shop cascade")
    if regenerate:
        page.write_text(after, encoding="utf-8")
    assert VARYING.sub("#", page.read_text(encoding="utf-8")) == VARYING.sub("#", after)


def test_the_commands_print_what_the_pages_show(elsewhere: Path) -> None:
    for block in blocks("console", *(page for page in PAGES if page not in EXAMPLES)):
        for command, output in spoken(block):
            assert VARYING.sub("#", run_command(command)) == VARYING.sub("#", output), command
