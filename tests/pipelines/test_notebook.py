"""docs/how-to/notebook.md, executed cell by cell: what a cell shows is what the page has below it, but for numbers.

--regenerate-golden writes the page and its pictures.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "notebook.md"
PICTURES = PAGE.with_suffix("")
CELL = re.compile(r"(?ms)^```py\n(.*?)^```\n(?:\n<!-- output -->\n(.*?)\n<!-- end -->\n)?")
SVG = re.compile(r"(?s)<svg.*?</svg>")
STYLE = re.compile(r"(?s)<style.*?</style>\n?")
NUMBER = re.compile(r"\d[\d,.]*|\bjobs?\b|\bseconds?\b(?= old)|\b(bytes|KB)\b")


def run_cell(code: str, names: dict[str, Any]) -> str:
    """Run a cell, and return as HTML what a notebook shows of its last expression."""
    *statements, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        exec(code, names)
        return ""
    exec(compile(ast.Module(statements, []), PAGE.name, "exec"), names)
    value = eval(compile(ast.Expression(last.value), PAGE.name, "eval"), names)
    return STYLE.sub("", value._repr_html_())


def without_numbers(text: str) -> str:
    return NUMBER.sub("#", text)


def test_the_cells_show_what_the_page_has(spark: SparkSession, tmp_path: Path, regenerate: bool) -> None:
    names: dict[str, Any] = {"__name__": "notebook"}
    pictures = dict[str, str]()

    def run(cell: re.Match[str]) -> str:
        html = run_cell(cell[1].replace("/tmp/", f"{tmp_path}/"), names).replace(f"{tmp_path}/", "/tmp/")

        def link(svg: re.Match[str]) -> str:
            name = f"{len(pictures) + 1}.svg"
            pictures[name] = svg[0]
            return f'<img src="{PICTURES.name}/{name}">'

        linked = SVG.sub(link, html)
        output = f"\n<!-- output -->\n{linked}\n<!-- end -->\n" if html else ""
        return f"```py\n{cell[1]}```\n{output}"

    before = PAGE.read_text(encoding="utf-8")
    after = CELL.sub(run, before)
    assert len(pictures) > 3
    if regenerate:
        PAGE.write_text(after, encoding="utf-8")
        PICTURES.mkdir(exist_ok=True)
        for name, svg in pictures.items():
            (PICTURES / name).write_text(f"{svg}\n", encoding="utf-8")
    assert without_numbers(PAGE.read_text(encoding="utf-8")) == without_numbers(after)
    assert {path.name for path in PICTURES.iterdir()} == pictures.keys()
