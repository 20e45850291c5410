"""The site of docs/, built as `make docs` builds it: a link, an anchor or a page that leads nowhere is an error."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from docs.build import PAGES as MADE
from docs.build import list_keys
from tests.night import night
from tests.spark.machine import PROJECT

PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md"))]


def paragraphs(page: Path) -> list[str]:
    """The paragraphs and items of lists of a page, without code, tables, pictures and HTML."""
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    parts = re.split(r"\n\s*\n|\n(?=\s*(?:-|\d+\.) )", text)
    return [part for part in parts if not part.lstrip().startswith(("|", "<", "!"))]


@night
def test_the_site_is_built(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warehouse" in (tmp_path / "reference" / "python-api.html").read_text()
    backfill = (tmp_path / "how-to" / "backfill.html").read_text()
    assert backfill.count('title="chunk: ') == 1, "the first use of a word of the glossary is a link to it"
    long = [
        (page.name, text[:60])
        for page in tmp_path.rglob("*.html")
        for text in re.findall(r"(?s)<(?:p|li)>(.*?)</(?:p|li)>", page.read_text())
        if len(re.sub("<[^>]*>", "", text).split()) > 120
    ]
    assert long == []


def test_the_pictures_are_what_the_script_draws(tmp_path: Path) -> None:
    subprocess.run([sys.executable, PROJECT / "docs" / "pictures.py", tmp_path], check=True)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert len(drawn) == 5
    assert drawn == {path.name: path.read_text() for path in (PROJECT / "docs" / "pictures").iterdir()}


def test_the_reference_describes_every_field() -> None:
    """Of records and keys, which end with their meaning; a docstring may name several fields together."""
    made = [MADE["tuning"](), MADE["journal"](), list_keys()]
    assert [line for page in made for line in page.splitlines() if line.endswith("|  |")] == []
    assert "| `range_slices`, `range_intervals` | `256`, `16` | The number of slices" in made[0]


def test_no_paragraph_is_long() -> None:
    assert [(page.name, part[:60]) for page in PAGES for part in paragraphs(page) if len(part.split()) > 120] == []


def test_an_example_is_read_in_a_minute() -> None:
    pages = [page for page in PAGES if page.parent.name == "examples"]
    assert len(pages) >= 4
    assert [
        (page.name, words) for page in pages if (words := sum(len(part.split()) for part in paragraphs(page))) > 150
    ] == []


def test_the_glossary_is_short() -> None:
    page = PROJECT / "docs" / "explanation" / "glossary.md"
    words = re.findall(r"(?m)^\| (?!word|---)([^|]+) \|", page.read_text())
    assert 10 < len(words) <= 20
