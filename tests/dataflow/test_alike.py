"""Expressions that Spark prints alike stand side by side in one query, and each is computed."""

from __future__ import annotations

import pytest

from tests.sandbox import MemorySandbox, checked, rows

QUERIES = (
    "select k, sum(from_csv(s, 'x int, y int').y) a, sum(from_csv(s, 'y int, x int').y) b from t group by k",
    "select k, count(*) filter (where try_variant_get(parse_json(j), '$.v', 'int') is not null) a, "
    "count(*) filter (where try_variant_get(parse_json(j), '$.v', 'date') is not null) b from t group by k",
    "select k, max(from_json(lower(m), 'map<string,string>')['x']) a, max(from_json(m, 'map<string,string>')['x']) b "
    "from t group by k",
    "select k, count(*) filter (where s like any ('1,2', '3')) a, count(*) filter (where s like any ('1,%', '4')) b "
    "from t group by k",
    "select k, lag(v) over w a, lag(v) ignore nulls over w b from t window w as (partition by k order by n)",
)
FIRST = [
    (1, 1, 5, "1,2", '{"v": 1}', '{"X": "a", "x": "b"}'),
    (1, 2, None, "1,7", '{"v": "2024-05-01"}', '{"X": "c"}'),
    (1, 3, 6, "3,9", '{"v": 2}', "{}"),
]


@pytest.mark.parametrize("query", QUERIES)
def test_each_is_computed(sandbox: MemorySandbox, query: str) -> None:
    """Protects from one that is taken for the other."""
    sandbox.source("t", "k int, n int, v int, s string, j string, m string", FIRST)
    view = sandbox.another(query)
    checked(view)
    assert any(row[-1] != row[-2] for row in rows(view))
    sandbox.do(("insert", "t", [(2, 4, 7, "1,2", '{"v": 3}', '{"x": "d"}')]), ("delete", "t", "n = 1"))
    checked(view)
