"""Results in a notebook: tables and pictures in which no text of a user is HTML."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from deltafold import display
from deltafold.algebra.program import NodeRule
from deltafold.algebra.results.html import Explanation, bars, graph, render, table, view, warehouse
from deltafold.algebra.results.pipeline_report import DatasetResult, PipelineReport
from deltafold.algebra.results.report import Landing, Report, Verification
from deltafold.algebra.results.upkeep import Lag, Size, Status, TableUpkeep, Upkeep

EVIL = "<script>alert('1')</script> & \"x\""
LOOPS: dict[str, dict[str, list[int]]] = {EVIL: {"insert": [3, 1]}}
REPORT = Report(
    view=EVIL, epoch=3, generation=1, verdict="applied", sentence=EVIL, versions={EVIL: (None, 4)}, change_rows=12345,
    phases={EVIL: 1.5}, because=(EVIL,), rounds=LOOPS, seconds=2.0,
)  # fmt: skip
STATUS = Status(
    view=EVIL, epoch=3, generation=1, age=7300.0, lag={EVIL: Lag(2, None), "t": Lag(1, 0)},
    tables={EVIL: Size(3, 2_500_000, 1)}, quarantined={EVIL: 2},
)  # fmt: skip
FAILED = DatasetResult(name=EVIL, outcome="failed", error=EVIL, error_type="ValueError", seconds=0.5)
RESULTS = [
    REPORT,
    STATUS,
    Verification(
        view=EVIL, ok=False, missing=1, extra=0, rows=9, versions={EVIL: 1}, sample=(EVIL,), sentence=EVIL, share=0.5
    ),
    FAILED,
    PipelineReport(
        datasets=(FAILED, DatasetResult(name="above", outcome="skipped", reads=(EVIL,), because=(EVIL,))), seconds=1.0
    ),
    Landing(source=EVIL, version=2, landed=(), unchanged=(), removed=(), rows=5, seconds=0.1, quarantined={EVIL: 1}),
    Upkeep(
        view=EVIL, sentence=EVIL, retention_hours=1.0, generations=(), entries=0, keeps=(EVIL,), seconds=1.0,
        finished="", tables={EVIL: TableUpkeep(work="sorted", partitions=1, files=(9, 2), removed=7, freed=2000)},
    ),
    Explanation.of(f"view {EVIL}", [NodeRule(EVIL, "rule", 2)]),
]  # fmt: skip


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_texts_are_escaped_and_tags_are_closed(result: Any) -> None:
    html = result._repr_html_()
    assert "<script" not in html and "&lt;script&gt;" in html
    assert ElementTree.fromstring(html).itertext()  # every element is closed, every attribute quoted
    assert isinstance(result, Landing) or len(repr(result)) < 200


def test_a_result_shows_its_numbers() -> None:
    text = "".join(ElementTree.fromstring(render(REPORT)).itertext())
    assert "12,345" in text and "2.00" in text and "–4" in text  # the source had no version before
    assert repr(REPORT) == f"<Report: {EVIL}>"


def test_a_status_is_a_sentence() -> None:
    assert STATUS.sentence == f"{EVIL}: epoch 3, 2 hours old, behind 1 source"
    assert Status(view="v").sentence == "v: never refreshed"
    assert Status(view="v", epoch=1, unfinished=2, problems={"t": "gone"}).sentence == (
        "v: epoch 1, a source is gone, epoch 2 interrupted"
    )


def test_bars_are_as_long_as_their_numbers() -> None:
    assert not bars({}, "s") and not bars({"a": 0.0}, "s") and not table(("a",), [])
    widths = [float(each) for each in re.findall(r'<rect[^>]* width="([\d.]+)"', bars({"a": 1.0, "b": 4.0}, "s"))]
    assert widths[1] == 4 * widths[0] > 0


def test_a_dataset_is_at_the_right_of_what_it_reads() -> None:
    picture = graph({"a": (), "b": (), "c": ("a", "b"), "d": ("c", "elsewhere")}, {})
    boxes = re.findall(r'<rect x="(\d+)" y="(\d+)"', picture)
    assert [int(x) for x, _ in boxes] == sorted(int(x) for x, _ in boxes)
    assert len({*boxes}) == 4 and picture.count("<line") == 3


def test_a_view_charts_its_last_refreshes() -> None:
    html = view(EVIL, EVIL, STATUS, [replace(REPORT, epoch=epoch) for epoch in range(1, 31)])
    assert html.count("<rect") == 20 and "1.30 applied" in html and "1.10 applied" not in html
    assert "<script" not in html


def test_a_warehouse_has_a_line_for_each_view() -> None:
    html = warehouse(EVIL, [STATUS.sentence, "v: never refreshed"])
    assert html.count("<li>") == 2 and "v: never refreshed" in html and "<script" not in html
    assert not warehouse("w", []).count("<ul")


class Shell:
    """IPython, as far as progress uses it: what a cell showed, in order."""

    def __init__(self, kernel: object) -> None:
        self.shown: list[str] = []
        self.kernel = kernel
        self.display = SimpleNamespace(HTML=str, display=self._show)

    def get_ipython(self) -> Shell:
        return self

    def _show(self, html: str, *, display_id: bool) -> Any:
        assert display_id
        self.shown.append(html)
        return SimpleNamespace(update=self.shown.append)


def test_progress_is_shown_in_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(object())
    monkeypatch.setitem(sys.modules, "IPython", shell)  # pyright: ignore[reportArgumentType]
    with pytest.raises(KeyError), display.show_progress(None) as step:
        assert step is not None
        step("merging <b>")
        raise KeyError
    assert shell.shown == ["<i></i>", "<i>merging &lt;b&gt;</i>", "<i></i>"]


def test_progress_is_shown_to_nobody_else(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)  # interactive, but its errors go to a file
    own: list[str] = []
    with display.show_progress(own.append) as step:
        assert step == own.append
    with display.show_progress(None) as step:
        assert step is None
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with display.show_progress(None) as step:
        assert step is not None
        step("[bold]merging")
    assert "[bold]merging" in capsys.readouterr().err
