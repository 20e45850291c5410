"""Types that Delta does not store."""

from __future__ import annotations

import pytest

from incremental.algebra.errors import RefusedError
from tests.examples import scene as on_delta
from tests.examples.scene import Scene


@pytest.mark.parametrize("policy", ["incremental", "auto", "definition"])
def test_an_answer_that_delta_does_not_store(scene: Scene, policy: str) -> None:
    """Said by explain and by the refresh, before anything is written."""
    scene.source("t", "k int, a timestamp, b timestamp", [])
    view = scene.view("select k, max(b) - min(a) as span from t group by k", policy=policy)
    for call in (view.explain, view.refresh):
        with pytest.raises(RefusedError, match=r"column span.*recomputed or not.*timestampdiff"):
            call()
    assert not list((scene.folder / "warehouse").rglob("*.parquet"))
    assert not view.history()


def test_a_state_that_delta_does_not_store(scene: Scene) -> None:
    """Where the answer can be stored, it can be recomputed."""
    scene.source("t", "k int, a timestamp, b timestamp", [])
    scene.sql("insert into {t} values (1, timestamp'2020-01-01', timestamp'2020-01-03'), (1, now(), null)")
    query = "select k, extract(day from max(b - a)) days from t group by k"
    with pytest.raises(RefusedError, match="interval day to second"):
        scene.view(query).explain()
    view = scene.view(query, "w", policy="auto")
    assert "interval day to second" in view.explain()
    on_delta.checked(view)
    assert on_delta.rows(view) == [(1, 2)]
