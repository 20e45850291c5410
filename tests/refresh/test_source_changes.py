"""What a rewritten file kept is no change: it is cancelled where a source is read, and reports count what changed."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from deltafold.lake.version_diff import file_difference
from deltafold.spark.job_stats import Measure
from tests.night import every, night
from tests.sandbox import DeltaSandbox, MemorySandbox, checked, rows

ROWS = [(i, i % 7, i * 1.5 if i % 3 else None, f"name {i}") for i in range(600)]
SCHEMA = "id int, k int, v double, s string"
FEED = "alter table {t} set tblproperties (delta.enableChangeDataFeed = true)"


@pytest.fixture
def shop(sandbox: MemorySandbox) -> MemorySandbox:
    """A table of one file that is rewritten by each statement, and one that does not change."""
    sandbox.deletion_vectors = False
    sandbox.source("t", SCHEMA, ROWS)
    sandbox.source("d", "k int, name string", [(k, f"kind {k}") for k in range(7)])
    return sandbox


CHANGED = {
    "select id, name, v from t join d using (k)": 5,  # 2 updated, 1 deleted
    "select k, sum(v) as total, count(*) as n from t group by k": 5,
    "select k, s from t where v is not null": 1,  # one of the rows had a value, and k and s stay as they are
    "select id, k, v from t": 5,
    "select name, min(v) as least from t left join d using (k) group by name": 5,
    "select k, max(v) as best from t group by k": 5,
}


@pytest.mark.parametrize("query", every(3, CHANGED))
def test_reports_count_the_rows_that_changed(shop: MemorySandbox, query: str) -> None:
    """Protects from 600 rows reported, and joined, for three: both versions of a whole file."""
    view = shop.view(query)
    checked(view)
    shop.sql("update {t} set v = v + 1 where id in (4, 5)")
    shop.sql("delete from {t} where id = 8")
    assert checked(view).change_rows == CHANGED[query]


def test_rows_that_change_the_answer_and_no_state_are_counted(shop: MemorySandbox) -> None:
    """Protects from «0 changed rows» of an answer that lost some: the state is of the join's other input."""
    view = shop.view("select id, n from t left join (select k, count(*) n from d group by k) s using (k)")
    checked(view)
    shop.sql("delete from {t} where id in (4, 8)")
    report = checked(view)
    assert (report.change_rows, report.groups) == (2, 0)


@pytest.mark.parametrize(
    "query", every(2, ["select id, name, v from t join d using (k)", "select k, max(v) m from t group by k"])
)
def test_a_file_rewritten_as_it_was_changes_nothing(shop: MemorySandbox, query: str) -> None:
    """No epoch is made, and a table that this one is joined with is not read for it."""
    view = shop.view(query)
    checked(view)
    shop.sql("update {t} set s = 'not read' where id < 300")
    report = checked(view)
    assert report.verdict == "nothing to do"
    assert "do not affect this view" in report.sentence
    assert report.change_rows == report.commits == 0


def test_a_rewrite_that_only_adds_rows_has_that_direction(sandbox: MemorySandbox) -> None:
    """A MERGE that inserts rewrites files, too: the foreign key of its rows still spares the other side."""
    sandbox.deletion_vectors = False
    sandbox.source("t", SCHEMA, ROWS)
    view = sandbox.view("select k, max(id) as last from t group by k")
    checked(view)
    sandbox.sql("delete from {t} where id = 0")
    sandbox.sql("insert into {t} values (0, 0, null, 'name 0'), (600, 5, 1.0, 'name 600')")
    report = checked(view)
    assert report.change_rows == 1
    assert report.groups == 1


def test_copies_of_a_row_are_deleted_one_by_one_or_all(sandbox: MemorySandbox) -> None:
    """The shorter way deletes all copies of a row; where some stay, they are chosen as before."""
    sandbox.source("t", "a int, b string", [(1, "x")] * 3 + [(2, None)] * 2 + [(3, "y")])
    sandbox.tune(rewrite_files=0, rewrite_touched_bytes=0)
    view = sandbox.view("select a, b from t")
    checked(view)
    sandbox.write("t", sandbox.read("select * from {t}").limit(0), "overwrite")
    sandbox.insert("t", "a int, b string", [(1, "x"), (2, None), (2, None), (3, "z")])
    assert checked(view).change_rows == 4  # two of three copies go, a row is replaced by another
    sandbox.sql("delete from {t} where a < 3")
    checked(view)
    assert rows(view) == [(3, "z")]


@night
def test_equal_rows_of_a_first_load_are_told_apart(delta: DeltaSandbox) -> None:
    """They get numbers without being compared, in several files, and single ones of them can be deleted."""
    delta.source("t", "a int", [(i % 3,) for i in range(60)])
    delta.tune(bucket_bytes=1, buckets=3, rewrite_files=0, rewrite_touched_bytes=0)
    view = delta.view("select a from t")
    checked(view)
    stored = delta.spark.read.format("delta").load(view.path)
    assert stored.select("a", "__copy").distinct().count() == 60
    delta.write("t", delta.spark.createDataFrame([(1,), (2,)], "a int"), "overwrite")
    checked(view)
    assert rows(view) == [(1,), (2,)]


@pytest.mark.parametrize("query", every(2, ["select k, max(v) m from t group by k", "select id, v from t"]))
def test_the_change_data_feed_is_read_where_it_has_less(delta: DeltaSandbox, query: str, long: bool) -> None:
    """A DELETE of 50 rows of a file of 600 reads 50; and what is not in the feed is read from the files, as before.

    By night after every change, by day once after the first two; properties/test_change_feed.py has the others, too.
    """
    delta.deletion_vectors = False
    delta.source("t", SCHEMA, ROWS)
    delta.sql(FEED)
    view = delta.view(query)
    checked(view)
    changes: tuple[tuple[str, ...], ...] = (
        ("delete from {t} where id < 5",),
        ("update {t} set v = v * 2 where id between 10 and 20", "update {t} set v = -1 where id = 11"),
        ("insert into {t} values (900, 1, 2.0, 'new')", "delete from {t} where id in (900, 30)"),
        ("optimize {t}", "delete from {t} where id = 31"),
        ("delete from {t} where id = 32", "restore table {t} to version as of 3"),
    )
    for change in changes if long else changes[:2]:
        for statement in change:
            delta.sql(statement)
        if long:
            assert checked(view).change_rows <= 100
    checked(view)
    before = delta.table("t").version()
    assert before is not None
    delta.sql("delete from {t} where id between 40 and 89")
    difference, measure = file_difference(delta.table("t"), before, before + 1), Measure(delta.spark)
    with measure.all("the feed"):
        assert difference.frame(["id"], consolidate=False).count() == 50
    assert (difference.feed is not None, measure.cost.rows_read) == (True, 50)
    report = checked(view)
    assert (report.change_rows <= 100, report.feeds) == (True, ("t",))
    delta.sql("alter table {t} set tblproperties (delta.enableChangeDataFeed = false)")
    delta.sql("delete from {t} where id = 141")
    assert file_difference(delta.table("t"), before, before + 3).feed is None  # off at the end
    delta.sql(FEED)
    delta.sql("delete from {t} where id = 142")
    assert file_difference(delta.table("t"), before + 3, before + 5).feed is None  # on since its middle
    assert checked(view).feeds == ()


@night
def test_a_feed_that_was_vacuumed_is_not_needed(delta: DeltaSandbox, spark: SparkSession) -> None:
    """The files of the versions are still there, and give the same change."""
    delta.deletion_vectors = False
    delta.source("t", SCHEMA, ROWS)
    delta.sql(FEED)
    view = delta.view("select id, name from t join (select 1 k, 'one' name) using (k)")
    checked(view)
    delta.sql("delete from {t} where id = 8")
    delta.remove("t/_change_data")
    assert checked(view).change_rows == 1
