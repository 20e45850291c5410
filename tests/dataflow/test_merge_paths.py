"""The same history over all merge paths and several buckets: small states rewritten, large ones merged.

All queries go through it in memory; merges of a Delta table, by a direct commit and by its MERGE, are shown in place
and in a bag by night. By day lake/test_direct_merge.py and the crashes on Delta merge.
"""

from __future__ import annotations

import pytest
from delta.tables import DeltaMergeBuilder

from deltafold.lake.upsert import BY_WRITER
from tests.night import night
from tests.reading import large_by_day
from tests.sandbox import DeltaSandbox, MemorySandbox, checked, rows

QUERIES = {
    "in_place": "select k, q, sum(v) s, min(v) lo, max_by(v, u) m, stddev(v) sd from t group by k, q",
    "distinct": "select k, avg(v) a, count(distinct q) d from t group by k",
    "nested": "select k, max(s) m, sum(n) n from (select k, q, sum(v) s, count(*) n from t group by k, q) group by k",
    "bag": "select k, v from t where q is null or q > 0",
    "having": "select q, count(*) n, min(v) lo from t group by q having count(*) > 2",
    "total": "select count(*) n, min(v) lo, sum(v) s from t",
}
BY_DAY = ("nested", "bag")
FIRST = ("k int, q int, v double, u int", [(i % 4, i % 3 or None, i / 4, i) for i in range(20)])
ROUNDS = (
    (),
    (
        "insert into {t} values (1, null, 2.5, 100), (null, null, null, 101), (7, 7, 7.0, 102)",
        "update {t} set v = v - 1 where k = 1 or q is null",
    ),
    ("delete from {t} where v <= 0 or k is null", "insert into {t} select * from {t} where k = 2"),
    ("delete from {t} where k = 2",),
)


MERGED = {"rewrite_files": 0, "rewrite_touched_bytes": 0}
BY_DELTA = MERGED | {"local_rows": 0}


@large_by_day
@pytest.mark.parametrize(
    ("sizes", "buckets", "path"),
    [
        pytest.param({}, 1, "rewrite", marks=night),  # the path of all other tests in memory
        ({}, 5, "rewrite"),
        pytest.param(MERGED, 1, "merge", marks=night),
        pytest.param(MERGED, 5, "merge", marks=night),
    ],
    ids=["rewrite", "touched buckets", "merge", "buckets merged"],
)
def test_history(sandbox: MemorySandbox, long: bool, sizes: dict[str, int], buckets: int, path: str) -> None:
    """The path is chosen by size; the answer does not depend on it."""
    sandbox.source("t", *FIRST)
    sandbox.tune(**sizes, bucket_bytes=1 if buckets > 1 else 1 << 40, buckets=buckets)
    views = [sandbox.another(query) for name, query in QUERIES.items() if long or name in BY_DAY]
    taken = set()
    for changes in ROUNDS if long else ROUNDS[:3]:
        for change in changes:
            sandbox.sql(change)
        for view in views:
            taken |= set(checked(view).paths.items())
    assert_only(path, taken)


@pytest.mark.parametrize(
    ("sizes", "buckets", "path", "names"),
    [
        pytest.param(MERGED, 1, "merge", ("nested",), marks=night),
        pytest.param(BY_DELTA, 1, f"merge{BY_WRITER}", ("in_place",), marks=night),
        pytest.param({}, 5, "rewrite", ("nested",), marks=night),
        pytest.param(MERGED, 5, "merge", ("in_place", "bag"), marks=night),
        pytest.param(BY_DELTA, 5, f"merge{BY_WRITER}", ("in_place", "bag"), marks=night),
    ],
    ids=["merge", "by Delta", "touched buckets", "buckets merged", "buckets by Delta"],
)
def test_history_on_delta(
    delta: DeltaSandbox, long: bool, sizes: dict[str, int], buckets: int, path: str, names: tuple[str, ...]
) -> None:
    """Buckets come from the source's size, and the path is reported. Every other example on Delta rewrites."""
    delta.source("t", *FIRST)
    delta.tune(**sizes, bucket_bytes=1 if buckets > 1 else 1 << 40, buckets=buckets)
    views = [delta.view(QUERIES[name], name) for name in names]
    taken = set()
    for changes in ROUNDS if long else ROUNDS[:3]:
        for change in changes:
            delta.sql(change)
        for view in views:
            taken |= set(checked(view).paths.items())
    assert_only(path, taken)


@night
def test_what_a_merge_changed_is_read_from_its_files(delta: DeltaSandbox) -> None:
    """Protects from a state that is read twice more, whole, for the few groups that its readers are told of."""
    delta.source("t", "k int, q int", [(i, i % 7) for i in range(4000)])
    delta.tune(**MERGED)
    view = delta.view("select k, count(*) n from (select k, max(q) q from t group by k having count(*) > 0) group by k")
    checked(view)
    delta.sql("insert into {t} values (1, 9), (4001, 1)")
    report = checked(view)
    assert report.paths == {"state_1": "merge", "state_2": "merge"}
    assert report.rows_read < 4 * 3500  # two searches for the groups that are merged into, one for their old rows


@night
def test_partitions_that_get_no_row_lose_theirs(delta: DeltaSandbox) -> None:
    """A session may ask Delta to overwrite only the partitions that get rows; a rewrite is of the whole table."""
    delta.source("t", *FIRST)
    views = [delta.view(QUERIES[name], name) for name in ("in_place", "bag")]
    views.append(delta.view(QUERIES["bag"], "definition", policy="definition"))
    delta.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        for change in ("", "delete from {t}"):
            if change:
                delta.sql(change)
            for view in views:
                checked(view)
    finally:
        delta.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert [rows(view) for view in views] == [[], [], []]


@night
def test_what_others_write_beside_a_merge_is_not_ours(delta: DeltaSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark of a MERGE is a setting: in a shared session Delta took a second write of a user's for one of ours."""
    delta.source("t", *FIRST)
    view = delta.view(QUERIES["in_place"])
    checked(view)
    delta.sql("delete from {t} where k = 2")
    execute = DeltaMergeBuilder.execute

    def beside(merge: DeltaMergeBuilder) -> object:
        for number in range(2):
            delta.insert("t", FIRST[0], [(9, 9, 9.0, number)])
        return execute(merge)

    monkeypatch.setattr(DeltaMergeBuilder, "execute", beside)
    delta.tune(**BY_DELTA)
    assert checked(view).paths["state_1"] == f"merge{BY_WRITER}"
    monkeypatch.undo()
    checked(view)
    assert (9, 9, 18.0) in [row[:3] for row in rows(view)]


def assert_only(path: str, taken: set[tuple[str, str]]) -> None:
    """States were merged by this path and by no other, and the bag was changed."""
    assert {("state_1", "first load"), ("state_1", path)} <= taken
    ways = {way.removesuffix(BY_WRITER) for table, way in taken if table == "view"}
    assert ways <= {"changed", "first load", "unchanged"}
    assert not {way for table, way in taken if table != "view"} - {path, "first load", "unchanged"}
