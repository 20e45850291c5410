"""README and docs, executed: Python and commands print what the pages show but for seconds, jobs and folders.

--regenerate-golden writes what Python printed into the pages.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from deltafold.cli import commands as cli
from tests.conftest import SMALL
from tests.night import night

PROJECT = Path(__file__).parents[2]
PAGES = (PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md")))
OUTPUT = '```text title="Output"'
BLOCK = re.compile(rf"(?ms)^```python\n(.*?)^```\n(?:\n{OUTPUT}\n(.*?)^```\n)?")
VARYING = re.compile(r"\d+\.\d s\b|\d+ Spark jobs?|^  seconds: .*$|^/\S+(?=/\.warehouse/)", re.MULTILINE)


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


def run_block(block: re.Match[str], names: dict[str, Any], folder: Path) -> str:
    """Run a block of a page in the program so far; return it with what it printed, if the page shows that."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block[1].replace("/tmp/", f"{folder}/tmp/"), folder.name, "exec"), names)
    if block[2] is None:
        return block[0]
    output = "\n".join(line.rstrip() for line in printed.getvalue().replace(f"{folder}/tmp/", "/tmp/").splitlines())
    return f"```python\n{block[1]}```\n\n{OUTPUT}\n{output}\n```\n"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks("python", page)], ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(elsewhere: Path, spark: SparkSession, page: Path, regenerate: bool) -> None:
    """All blocks of a page in one program: a later one continues an earlier one."""
    names: dict[str, Any] = {"__name__": page.stem}
    before = page.read_text(encoding="utf-8")
    try:
        after = BLOCK.sub(lambda block: run_block(block, names, elsewhere), before)
    finally:
        spark.sql("drop view if exists default.sales_by_day")
    if regenerate:
        page.write_text(after, encoding="utf-8")
    assert VARYING.sub("#", page.read_text(encoding="utf-8")) == VARYING.sub("#", after)


def test_the_commands_print_what_the_pages_show(elsewhere: Path) -> None:
    for block in blocks("console", *PAGES):
        for command, output in spoken(block):
            if not command.startswith("deltafold "):
                subprocess.run(["sh", "-c", command], check=True, cwd=elsewhere)
                continue
            result = CliRunner().invoke(cli.app, shlex.split(command)[1:])
            assert result.exit_code == 0, result.output
            assert VARYING.sub("#", result.stdout) == VARYING.sub("#", output), command
