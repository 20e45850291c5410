"""Draw the pictures of the documentation as SVG files: `python docs/pictures.py` writes docs/pictures/*.svg.

A test (tests/package/test_site.py) checks that the files are what this draws.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

FOLDER = Path(__file__).with_name("pictures")
EXPLAINED = Path(__file__).with_name("tutorial") / "joins.md"
NOTES = {  # beginnings of lines of its output of explain, without the indentation
    "view ": "incremental, or recomputed; the fingerprint changes with the query",
    "state_1:": "a Delta table: a row for each city and shop",
    "keeps group row count; revenue": "its columns; without rows, a group vanishes",
    "state_2:": "a Delta table: a row for each city",
    "answer:": "how readers get it",
    "group by city:": "an operator, and the rule for its change",
    "group by city, shop_2:": "below it what it reads; this one is state_1",
    "join of 2": "Δsales with shops as they were, Δshops with sales as they are",
    "source sales": "only changed files are read",
}
INK, PALE, LINE = "#263238", "#eceff1", "#90a4ae"
NOTE, WIDEST = "#1565c0", 92  # the colour of notes; the characters of a line of code
BLUE, GREEN, RED, YELLOW = "#e3f2fd", "#e8f5e9", "#c62828", "#fff8e1"


@dataclass
class Picture:
    """A drawing of boxes, texts and arrows; title: what it shows, for readers who do not see it."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list[str])

    def box(self, x: int, y: int, width: int, height: int, lines: str, fill: str = PALE, *, code: bool = False) -> None:
        """Draw a box with lines of text in its middle."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}" stroke="{LINE}"/>'
        )
        texts = lines.split("\n")
        top = y + height / 2 - 8 * (len(texts) - 1) + 5
        for number, text in enumerate(texts):
            self.text(x + width // 2, round(top + 16 * number), text, anchor="middle", code=code)

    def text(
        self,
        x: int,
        y: int,
        text: str,
        *,
        anchor: str = "start",
        code: bool = False,
        color: str = INK,
        bold: bool = False,
        size: int = 13,
    ) -> None:
        """Draw a line of text."""
        font = "monospace" if code else "sans-serif"
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-family="{font}" font-size="{size}"{weight} '
            f'fill="{color}" xml:space="preserve">{escape(text)}</text>'
        )

    def arrow(self, x1: int, y1: int, x2: int, y2: int, *, color: str = INK, dashed: bool = False) -> None:
        """Draw an arrow."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{color}" stroke-width="1.5"{dash} '
            f'marker-end="url(#head)"/>'
        )

    def line(self, x1: int, y1: int, x2: int, y2: int, *, color: str = LINE) -> None:
        """Draw a dashed line without a head."""
        self.parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{color}" stroke-dasharray="3 3"/>')

    def crash(self, x: int, y: int) -> None:
        """Draw a flash at the place of a crash."""
        points = [(0, -14), (-7, 2), (-1, 2), (-4, 14), (7, -3), (1, -3), (4, -14)]
        drawn = " ".join(f"{x + dx},{y + dy}" for dx, dy in points)
        self.parts.append(f'<polygon points="{drawn}" fill="{RED}"/>')

    def svg(self) -> str:
        """Return the picture as SVG."""
        head = (
            f'<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="{INK}"/></marker>'
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" height="{self.height}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<defs>{head}</defs>",
                f'<rect width="{self.width}" height="{self.height}" rx="8" fill="#ffffff"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def draw_refresh() -> Picture:
    """Draw the life of a refresh with its crash points."""
    picture = Picture(900, 300, "The life of a refresh, and what the next one does after a crash")
    steps = (
        "1 pin the versions\nof the sources",
        "2 write the intent\nto the journal",
        "3 commit\nthe states",
        "4 commit\nthe view",
        "5 complete\nthe journal",
    )
    picture.text(20, 30, "epoch 3", bold=True)
    for number, step in enumerate(steps):
        x = 20 + 177 * number
        picture.box(x, 45, 140, 56, step, BLUE)
        if number < len(steps) - 1:
            picture.arrow(x + 140, 73, x + 177, 73)
            picture.crash(x + 158, 122)
    picture.text(20, 165, "after a crash", bold=True)
    picture.box(20, 178, 300, 40, "begin again: nothing was written")
    picture.box(
        326, 178, 542, 40, "the next refresh finishes epoch 3 from the same versions,\nand skips what was committed"
    )
    picture.text(20, 245, "readers see", bold=True)
    picture.box(120, 228, 568, 28, "the answer of epoch 2", YELLOW)
    picture.box(694, 228, 174, 28, "the answer of epoch 3", GREEN)
    picture.line(691, 101, 691, 262)
    picture.text(20, 285, "Every commit carries the number of its epoch, so Delta refuses to apply it twice.")
    return picture


def draw_states() -> Picture:
    """Draw a query beside its states."""
    picture = Picture(900, 330, "A query, and the states and the answer that are kept for it")
    picture.text(20, 30, "the query", bold=True)
    query = (
        "SELECT city, count(*) AS shops,",
        "       avg(revenue) AS mean_revenue",
        "FROM (SELECT city, shops.shop,",
        "             sum(price) AS revenue",
        "      FROM sales",
        "      JOIN shops ON sales.shop = shops.shop",
        "      GROUP BY city, shops.shop)",
        "GROUP BY city",
    )
    for number, text in enumerate(query):
        picture.text(20, 60 + 20 * number, text, code=True)
    picture.text(440, 30, "what is kept", bold=True)
    picture.box(440, 45, 440, 54, "state_2, a row for each city:\nrows, count, sum and count of revenue", BLUE)
    picture.box(440, 145, 440, 54, "state_1, a row for each city and shop:\nrows, sum of price", BLUE)
    picture.box(440, 245, 200, 54, "sales: two versions\nof a Delta table")
    picture.box(680, 245, 200, 54, "shops: two versions\nof a Delta table")
    picture.arrow(540, 245, 600, 199)
    picture.arrow(780, 245, 720, 199)
    picture.text(660, 228, "Δ of the join", anchor="middle")
    picture.arrow(660, 145, 660, 99)
    picture.text(672, 127, "Δ of revenue")
    picture.text(20, 260, "The answer is computed from the", color=INK)
    picture.text(20, 280, "rows of state_2 that changed.", color=INK)
    picture.line(330, 75, 440, 72)
    picture.line(365, 155, 440, 172)
    return picture


def draw_graph() -> Picture:
    """Draw a pipeline's graph with what its views share."""
    picture = Picture(900, 290, "A pipeline: each change is read once, each view is refreshed once")
    picture.text(20, 30, "sources", bold=True)
    picture.text(330, 30, "views", bold=True)
    picture.box(20, 60, 150, 44, "orders\nversion 7 to 9")
    picture.box(20, 180, 150, 44, "customers\nversion 4, unchanged")
    picture.box(330, 45, 170, 44, "daily", BLUE)
    picture.box(330, 115, 170, 44, "by_customer", BLUE)
    picture.box(330, 180, 170, 44, "areas", BLUE)
    picture.box(660, 80, 180, 44, "report\nreads daily, by_customer", GREEN)
    picture.box(215, 67, 70, 30, "Δ orders", YELLOW)
    picture.arrow(170, 82, 215, 82)
    picture.arrow(285, 78, 330, 68)
    picture.arrow(285, 88, 330, 128)
    picture.arrow(170, 195, 330, 145, dashed=True)
    picture.arrow(170, 205, 330, 205, dashed=True)
    picture.arrow(500, 68, 660, 95)
    picture.arrow(500, 137, 660, 110)
    picture.text(548, 68, "Δ daily")
    picture.text(548, 140, "Δ by_customer")
    picture.text(330, 243, "nothing to do")
    picture.text(
        20,
        272,
        "The versions are looked up once, at the start, so all answers belong together. Δ orders is computed once.",
    )
    return picture


def draw_chunks() -> Picture:
    """Draw a first load in chunks on a time line."""
    picture = Picture(900, 250, "A first load in four chunks, of which the third is interrupted")
    picture.text(20, 30, "deltafold run shop --chunk 2g", code=True)
    chunks = (("chunk 1 of 4\nepoch 1", 20, 150), ("chunk 2 of 4\nepoch 2", 174, 150), ("chunk 3", 328, 70))
    for text, x, width in chunks:
        picture.box(x, 50, width, 50, text, BLUE)
    picture.crash(410, 75)
    picture.text(440, 30, "deltafold run shop", code=True)
    picture.box(440, 50, 150, 50, "chunk 3 of 4\nepoch 3, finished", BLUE)
    picture.box(594, 50, 150, 50, "chunk 4 of 4\nepoch 4", BLUE)
    picture.arrow(20, 125, 880, 125)
    picture.text(850, 145, "time")
    picture.text(20, 175, "readers see", bold=True)
    picture.box(120, 158, 620, 28, "nothing yet; after an earlier load: its answer", YELLOW)
    picture.box(746, 158, 134, 28, "all rows", GREEN)
    picture.line(743, 50, 743, 190)
    picture.text(
        20, 225, "A chunk is a number of whole files. Each one is committed as an epoch, and is not read again."
    )
    return picture


def draw_explain() -> Picture:
    """Draw the output of explain in the tutorial, with notes beside its lines."""
    page = EXPLAINED.read_text(encoding="utf-8")
    shown = re.search(r"(?ms)^view mean_revenue: incremental.*?(?=^```$)", page)
    lines = shown[0].splitlines() if shown else []
    picture = Picture(1040, 20 * len(lines) + 30, "The output of explain, with what its lines mean")
    notes = dict(NOTES)
    for number, line in enumerate(lines):
        y = 30 + 20 * number
        picture.text(20, y, line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…", code=True, size=10)
        if start := next((start for start in notes if line.lstrip().startswith(start)), None):
            picture.text(600, y, notes.pop(start), color=NOTE)
            picture.line(26 + 6 * min(len(line), WIDEST), y - 4, 594, y - 4)
    assert not notes, f"{EXPLAINED.name} has no line {', '.join(notes)}"
    return picture


PICTURES = {
    "refresh": draw_refresh,
    "states": draw_states,
    "graph": draw_graph,
    "chunks": draw_chunks,
    "explain": draw_explain,
}


def main(folder: Path = FOLDER) -> None:
    """Write all pictures into a folder."""
    folder.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (folder / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
