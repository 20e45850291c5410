"""Render results for notebooks as HTML: tables, bars and a graph, from their public fields.

A text becomes a part of HTML only through `element`, which escapes it: names of columns and values of rows are the
user's. Pictures are SVG of a few elements, so that they need no package and follow the colours of the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import singledispatch
from html import escape
from typing import Any

from deltafold.algebra.program import NodeRule
from deltafold.algebra.results.formats import format_bytes
from deltafold.algebra.results.pipeline_report import DatasetResult, Outcome, PipelineReport
from deltafold.algebra.results.report import Landing, Report, Verification
from deltafold.algebra.results.upkeep import Status, Upkeep

COLORS: dict[Outcome, str] = {
    "refreshed": "#4c72b0",
    "nothing to do": "#a0a0a0",
    "read as it is": "#ccb974",
    "failed": "#c44e52",
    "skipped": "#dd8452",
}
"""The colour of a dataset by the outcome of its refresh."""
BAR = "#4c72b0"
BARS_WIDTH, LABEL_WIDTH, BAR_HEIGHT = 560, 180, 18  # pixels
BOX_WIDTH, BOX_HEIGHT, BOX_GAP = 150, 34, 30
LONGEST_LABEL = 22  # characters beside a bar or in a box; the whole text is its title
CHARTED_EPOCHS = 20


class Html(str):
    """A text that is HTML; every other text is escaped when it becomes a part of one."""


class Explanation(str):
    """The text of `View.explain()`, which a notebook shows with a table of the rules.

    rules: how each node of the plan is maintained; none for a view that is recomputed.
    """

    rules: tuple[NodeRule, ...] = ()

    @classmethod
    def of(cls, text: str, rules: Iterable[NodeRule]) -> Explanation:
        """Return a text with rules."""
        explanation = cls(text)
        explanation.rules = tuple(rules)
        return explanation

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        nodes = [(element("span", rule.node, style=f"padding-left:{rule.depth}em"), rule.rule) for rule in self.rules]
        return block(table(("operator", "how it is maintained"), nodes), element("pre", self))


def element(name: str, *content: object, **attributes: object) -> Html:
    """Return an element; content that is no HTML is escaped, and so are the values of attributes."""
    shown = "".join(f' {key.replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    return Html(f"<{name}{shown}>{''.join(map(_embed, content))}</{name}>")


def block(*parts: Html) -> Html:
    """Return parts below each other; empty ones are left out."""
    return element("div", *(part for part in parts if part))


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    """Return a table with numbers at the right; empty without rows."""
    body = [element("tr", *map(_cell, row)) for row in rows]
    if not body:
        return Html()
    head = element("tr", *(element("th", title, style="text-align:left") for title in headers))
    return element("table", element("thead", head), element("tbody", *body))


def facts(values: Mapping[str, object]) -> Html:
    """Return a table of one row; what is None or empty is left out."""
    shown = {name: value for name, value in values.items() if value not in (None, "")}
    return table(tuple(shown), [tuple(shown.values())] if shown else [])


def bars(values: Mapping[str, float], unit: str, colors: Mapping[str, str] | None = None) -> Html:
    """Return a chart with a bar for each value, with its number; empty without a value above 0."""
    most = max(values.values(), default=0.0)
    if most <= 0:
        return Html()
    room = BARS_WIDTH - LABEL_WIDTH - 80  # for the number beside the longest bar
    lines = list[Html]()
    for number, (name, value) in enumerate(values.items()):
        top, width = number * BAR_HEIGHT, round(room * value / most, 1)
        text_y = top + BAR_HEIGHT - 5
        lines += [
            _text(_shorten(name), x=LABEL_WIDTH - 6, y=text_y, anchor="end", title=name),
            element(
                "rect", x=LABEL_WIDTH, y=top + 2, width=width, height=BAR_HEIGHT - 4, fill=(colors or {}).get(name, BAR)
            ),
            _text(f"{value:,.2f} {unit}", x=LABEL_WIDTH + width + 6, y=text_y, anchor="start"),
        ]
    return _picture(lines, BARS_WIDTH, len(values) * BAR_HEIGHT)


def graph(reads: Mapping[str, Sequence[str]], colors: Mapping[str, str]) -> Html:
    """Return boxes from left to right, each at the right of those that it reads.

    reads: of each box those that it reads, all of which are before it.
    """
    columns = dict[str, int]()
    places = dict[str, tuple[int, int]]()
    for name, read in reads.items():
        columns[name] = 1 + max((columns[each] for each in read if each in columns), default=-1)
        row = sum(1 for other in places if columns[other] == columns[name])
        places[name] = columns[name] * (BOX_WIDTH + BOX_GAP), row * (BOX_HEIGHT + BOX_GAP // 2)
    lines = list[Html]()
    for name, read in reads.items():
        x, y = places[name]
        for x_read, y_read in (places[each] for each in read if each in places):
            begun, ended = (x_read + BOX_WIDTH, y_read + BOX_HEIGHT // 2), (x, y + BOX_HEIGHT // 2)
            lines.append(element("line", x1=begun[0], y1=begun[1], x2=ended[0], y2=ended[1], stroke="#888"))
        lines += [
            element("rect", x=x, y=y, width=BOX_WIDTH, height=BOX_HEIGHT, rx=4, fill=colors.get(name, BAR)),
            _text(_shorten(name), x=x + BOX_WIDTH // 2, y=y + 21, anchor="middle", title=name, fill="#fff"),
        ]
    return _picture(
        lines,
        max((x for x, _ in places.values()), default=0) + BOX_WIDTH,
        max((y for _, y in places.values()), default=0) + BOX_HEIGHT,
    )


@singledispatch
def render(result: Any) -> Html:
    """Return a result as HTML; of a kind without a form of its own, a table of its fields."""
    return table(("field", "value"), ((field.name, getattr(result, field.name)) for field in fields(result)))


@render.register
def _(result: Report) -> Html:
    counts = {
        "verdict": result.verdict,
        "epoch": result.epoch,
        "generation": result.generation,
        "rows changed": result.change_rows,
        "groups": result.groups,
        "rows read": result.rows_read,
        "rows written": result.rows_written,
        "jobs": result.jobs,
        "commits": result.commits,
        "seconds": result.seconds,
        "finished": result.finished,
    }
    rounds = [
        (loop, phase, len(moved), sum(moved))
        for loop, phases in result.rounds.items()
        for phase, moved in phases.items()
    ]
    return block(
        _title(result.sentence),
        facts(counts),
        _items(result.because),
        table(("source", "version before", "after"), ((name, *pair) for name, pair in result.versions.items())),
        bars(result.phases, "s"),
        table(("loop", "phase", "rounds", "rows"), rounds),
        history([*result.below]),
    )


@render.register
def _(result: Verification) -> Html:
    counts = {
        "equal": "yes" if result.ok else "no",
        "rows compared": result.rows,
        "missing": result.missing,
        "extra": result.extra,
        "share of the keys": f"{result.share:.0%}",
        "residual": result.residual,
        "allowed": result.allowed,
        "bound": result.bound,
    }
    return block(
        _title(result.sentence),
        facts(counts),
        table(("rows that differ",), ((element("code", row),) for row in result.sample)),
        table(("source", "version"), result.versions.items()),
    )


@render.register
def _(result: Status) -> Html:
    behind = [(source, lag.versions, lag.rows) for source, lag in result.lag.items()]
    sizes = [(name, size.files, format_bytes(size.bytes), size.fragmented) for name, size in result.tables.items()]
    return block(
        _title(result.sentence),
        facts(
            {
                "epoch": result.epoch,
                "generation": result.generation,
                "verdict": result.verdict,
                "finished": result.finished,
                "interrupted epoch": result.unfinished,
            }
        ),
        table(("source", "problem"), result.problems.items()),
        table(("source", "versions behind", "rows behind"), behind),
        table(("source", "rows in quarantine"), result.quarantined.items()),
        table(("table", "files", "size", "fragmented partitions"), sizes),
    )


@render.register
def _(result: PipelineReport) -> Html:
    colors = {dataset.name: COLORS[dataset.outcome] for dataset in result.datasets}
    rows = [
        (dataset.name, dataset.outcome, *_numbers(dataset.report), dataset.seconds, "" if dataset.ok else _why(dataset))
        for dataset in result.datasets
    ]
    headers = ("dataset", "outcome", "epoch", "rows changed", "rows read", "rows written", "jobs", "seconds", "why")
    return block(
        _title(result.sentence),
        graph({dataset.name: dataset.reads for dataset in result.datasets}, colors),
        table(headers, rows),
        bars({dataset.name: dataset.seconds for dataset in result.datasets}, "s", colors),
        table(("change that was read once", "datasets"), result.shared.items()),
    )


@render.register
def _(result: DatasetResult) -> Html:
    return block(_title(result.sentence)) if result.report is None else render(result.report)


@render.register
def _(result: Landing) -> Html:
    counts = {
        "source": result.source,
        "version": result.version,
        "partitions landed": len(result.landed),
        "unchanged": len(result.unchanged),
        "removed": len(result.removed),
        "rows": result.rows,
        "rows left out": result.left_out,
        "seconds": result.seconds,
    }
    return block(facts(counts), table(("partition", "rows in quarantine"), result.quarantined.items()))


@render.register
def _(result: Upkeep) -> Html:
    rows = [
        (name, each.work, each.partitions, *each.files, each.removed, format_bytes(each.freed))
        for name, each in result.tables.items()
    ]
    headers = ("table", "work", "partitions", "files before", "after", "old files removed", "freed")
    return block(_title(result.sentence), table(headers, rows), _items(result.keeps))


def history(reports: Sequence[Report]) -> Html:
    """Return one row for each refresh."""
    rows = (
        (report.view, report.generation, report.epoch, report.verdict, *_numbers(report)[1:], report.seconds)
        for report in reports
    )
    return table(
        ("view", "generation", "epoch", "verdict", "rows changed", "rows read", "rows written", "jobs", "seconds"), rows
    )


def view(name: str, query: str, status: Status, reports: Sequence[Report]) -> Html:
    """Return a view: its query, its status, and the last refreshes with a chart of their seconds.

    reports: those of its finished epochs, the oldest first.
    """
    last = reports[-CHARTED_EPOCHS:]
    seconds = {f"{report.generation}.{report.epoch} {report.verdict}": report.seconds for report in last}
    return block(_title(f"view {name}"), element("pre", query), render(status), history(last), bars(seconds, "s"))


def warehouse(root: str, sentences: Sequence[str]) -> Html:
    """Return a warehouse with a sentence for each of its views."""
    return block(_title(f"warehouse {root}"), _items(sentences))


def _why(dataset: DatasetResult) -> str:
    return dataset.error or f"{', '.join(dataset.because)} failed"


def _numbers(report: Report | None) -> tuple[int | None, ...]:
    """Return epoch, rows changed, read and written, and jobs of a refresh."""
    if report is None:
        return (None,) * 5
    return report.epoch, report.change_rows, report.rows_read, report.rows_written, report.jobs


def _title(text: str) -> Html:
    return element("p", element("b", text))


def _items(texts: Sequence[str]) -> Html:
    return element("ul", *(element("li", text) for text in texts)) if texts else Html()


def _cell(value: object) -> Html:
    """Return a cell of a table: numbers with thousands or two digits, at the right; None as a dash."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    text = "–" if value is None else f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if number else value
    return element("td", text, style="text-align:right" if number else "text-align:left")


def _embed(content: object) -> str:
    return content if isinstance(content, Html) else escape(str(content))


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…"


def _text(text: str, *, x: float, y: float, anchor: str, title: str = "", fill: str = "currentColor") -> Html:
    content = (element("title", title), text) if title else (text,)
    return element("text", *content, x=x, y=y, text_anchor=anchor, fill=fill)


def _picture(lines: Sequence[Html], width: float, height: float) -> Html:
    size = {"width": round(width), "height": round(height), "viewBox": f"0 0 {round(width)} {round(height)}"}
    style = "font:12px sans-serif;max-width:100%"
    return element("svg", *lines, xmlns="http://www.w3.org/2000/svg", style=style, **size)
