"""What a materialisation shows of a landing, and of a refresh and a check with loops."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from deltafold.algebra.results.report import Landing, Report, Verification
from deltafold.dagster.metadata import of_landing, of_partition, of_refresh, of_verification


def test_what_is_in_quarantine_is_on_the_page_of_the_asset_and_of_the_partition() -> None:
    """Protects from rows that are left out while every page is green and says nothing."""
    landing = Landing(
        source="sales",
        version=3,
        landed=("1", "2"),
        unchanged=(),
        removed=(),
        rows=10,
        seconds=1.0,
        quarantined={"1": 2, "7": 5},
    )
    told = of_landing(landing)
    assert (told["malformed rows left out"].value, told["rows in quarantine"].value) == (2, 7)
    assert [of_partition(landing, [key])["rows in quarantine"].value for key in ("1", "2")] == [2, 0]


def test_rounds_and_residuals_of_loops_are_on_the_page_of_the_view() -> None:
    """A table of what each round did, a picture of it, and how the residual fell; nothing of a view without loops."""
    rounds = {"loop_1": {"retract": [1200, 3], "insert": [7]}, "loop_2": {"steps": [9, 9]}}
    shown: Any = of_refresh(
        Report(
            view="v",
            epoch=2,
            generation=1,
            verdict="applied",
            sentence="",
            rounds=rounds,
            residuals={"loop_2": [0.25, 0.000125]},
        ),
        {},
    )
    first = {"loop": "loop_1", "phase": "retract", "rounds": 2, "rows in each": "1,200, 3"}
    assert shown["loops"].records[0].data == first
    assert [row.data for row in shown["residuals"].records] == [{"loop": "loop_2", "of each step": "0.25, 0.000125"}]
    assert str(shown["rounds of loops"].value).startswith("![v: rounds of epoch 2](data:image/png;base64,iVBORw0")
    assert not {"loops", "residuals", "rounds of loops"} & set(
        of_refresh(Report(view="v", epoch=2, generation=1, verdict="applied", sentence=""), {})
    )


def test_a_refresh_is_shown_without_its_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a step that fails after its refresh is done, for a package that only draws."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    done = Report(view="v", epoch=2, generation=1, verdict="applied", sentence="", rounds={"loop_1": {"insert": [7]}})
    assert of_refresh(done, {})["rounds of loops"].value == (
        "v: rounds of epoch 2: no picture. matplotlib: the package that draws the pictures of the demo and of "
        "Dagster's pages is not installed. Run pip install 'deltafold[dagster]'."
    )


def test_a_check_shows_how_far_an_answer_may_be_from_its_fixpoint() -> None:
    found = Verification(
        view="v",
        ok=True,
        missing=0,
        extra=0,
        rows=9,
        versions={},
        sample=(),
        sentence="",
        residual=1e-5,
        bound=7e-5,
        allowed=1.5e-5,
    )
    shown = of_verification(found, show_rows=False)
    assert [shown[name].value for name in ("residual", "residual allowed", "bound")] == [1e-5, 1.5e-5, 7e-5]
