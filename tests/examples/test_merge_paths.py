"""The same history over both merge paths and several buckets: small states rewritten, large ones merged."""

from __future__ import annotations

from contextlib import ExitStack
from unittest import mock

import pytest

from incremental.runtime import maintain, publish, refresh
from tests.examples.scene import Scene, checked

QUERIES = {
    "in_place": "select k, q, sum(v) s, min(v) lo, max_by(v, u) m, stddev(v) sd from t group by k, q",
    "distinct": "select k, avg(v) a, count(distinct q) d from t group by k",
    "nested": "select k, max(s) m, sum(n) n from (select k, q, sum(v) s, count(*) n from t group by k, q) group by k",
    "bag": "select k, v from t where q is null or q > 0",
    "having": "select q, count(*) n, min(v) lo from t group by q having count(*) > 2",
    "total": "select count(*) n, min(v) lo, sum(v) s from t",
}
CHANGES = (
    "insert into {t} values (1, null, 2.5, 100), (null, null, null, 101), (7, 7, 7.0, 102)",
    "update {t} set v = v - 1 where k = 1 or q is null",
    "delete from {t} where v <= 0 or k is null",
    "insert into {t} select * from {t} where k = 2",
    "delete from {t} where k = 2",
)


@pytest.mark.parametrize(
    ("few", "buckets", "path"),
    [(4, 1, "rewrite"), (0, 1, "merge"), (4, 5, "merge")],
    ids=["rewrite", "merge", "buckets"],
)
def test_history(scene: Scene, few: int, buckets: int, path: str) -> None:
    """The path is chosen by size and reported; the answer does not depend on it."""
    scene.source("t", "k int, q int, v double, u int", [(i % 4, i % 3 or None, i / 4, i) for i in range(20)])
    with ExitStack() as stack:
        for room in (maintain, publish):
            stack.enter_context(mock.patch.object(room, "SMALL_FILES", few))
        stack.enter_context(
            mock.patch.multiple(refresh, BUCKET_BYTES=1 if buckets > 1 else 1 << 40, MOST_BUCKETS=buckets)
        )
        views = [scene.view(query, name) for name, query in QUERIES.items()]
        taken = set()
        for change in ("", *CHANGES):
            if change:
                scene.sql(change)
            for view in views:
                taken |= set(checked(view).paths.items())
        assert {("state_1", "first load"), ("state_1", path), ("view", "changed")} <= taken
        assert not {way for table, way in taken if table != "view"} - {path, "first load", "unchanged"}
