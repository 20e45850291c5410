"""A change read from the change data feed is the difference of the files, whatever was done to the table between."""

from __future__ import annotations

import tempfile
from hashlib import sha256
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from deltafold.lake.version_diff import SourceVersions, by_snapshots, file_difference
from tests.properties.test_feed import weighed
from tests.sandbox import DeltaSandbox

DEAR = 12
# v by its text, since 0.0 equals -0.0
IDENTITY = ["k", "cast(v as string) as v"]
WHERE = st.sampled_from(["k < 2", "k = 3", "v = 0", "isnan(v)", "v is null", "k = 1 and v > 0"])
MERGE = """
    merge into {t} using (select 1 k, 0.0D v union all select 9, 1.0D) s on {t}.k = s.k and {t}.v <=> s.v
    when matched then update set v = -s.v when not matched then insert (k, v, note) values (s.k, s.v, 'merged')"""
RENAME = "alter table {t} rename column"
REPLACE = """
    create or replace table {t} using delta tblproperties (delta.enableChangeDataFeed = true,
    delta.enableDeletionVectors = false, delta.columnMapping.mode = 'name') as select k, v, note from {t} where k > 1"""
PROPERTY = "alter table {t} set tblproperties ("
statements = st.one_of(
    st.just(
        ["insert into {t} select k, v, note from values (1, 0.0D, 'a'), (1, 0.0D, 'a'), (2, null, 'b') r(k, v, note)"]
    ),
    st.just(["insert into {t} values (3, double('NaN'), null), (1, -0.0D, 'a'), (3, 2.5D, 'c')"]),
    WHERE.map(lambda where: [f"delete from {{t}} where {where}"]),
    st.tuples(st.sampled_from(["-v", "v", "0.0D", "double('NaN')", "v + 1"]), WHERE).map(
        lambda change: [f"update {{t}} set v = {change[0]} where {change[1]}"]
    ),
    st.just([MERGE]),
    st.just(["optimize {t}"]),
    st.just(["restore {1}"]),
    st.just(["restore {3}"]),
)
rare = st.sampled_from(
    [
        [f"{PROPERTY}delta.enableChangeDataFeed = false)", "delete from {t} where k = 1"],
        [f"{PROPERTY}delta.enableChangeDataFeed = true)"],
        ["alter table {t} add column more int", "delete from {t} where k = 2"],
        [f"{RENAME} note to n", "delete from {t} where k = 3", f"{RENAME} n to note"],
        ["alter table {t} drop column note", "delete from {t} where k = 2", "alter table {t} add column note string"],
        [REPLACE],
        [f"{PROPERTY}delta.enableDeletionVectors = true)", "delete from {t} where k = 1"],
    ]
)  # fmt: skip
histories = st.lists(st.one_of(statements, statements, statements, rare), min_size=3, max_size=6)


@settings(max_examples=max(1, settings().max_examples // DEAR))
@example([["delete from {t} where k = 1"], ["update {t} set v = -v where v = 0"]])
@given(histories)
def test_the_feed_is_the_difference_of_the_files(spark: SparkSession, history: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        delta = DeltaSandbox(spark, Path(folder))
        delta.deletion_vectors = False
        rows = [(k % 4, [0.0, -0.0, None, float("nan"), 1.5][k % 5], "x" * 40) for k in range(40)] * 2
        delta.source("t", "k int, v double, note string", rows)
        delta.sql(f"{PROPERTY}delta.enableChangeDataFeed = true, delta.columnMapping.mode = 'name')")
        begun = version_of(delta)
        for statement in (statement for step in history for statement in step):
            if statement.startswith("restore"):
                back = max(begun, version_of(delta) - int(statement[9]))
                delta.sql(f"restore table {{t}} to version as of {back}")
            else:
                delta.sql(statement)
        table, last = delta.table("t"), version_of(delta)
        read = [file_difference(table, version, last) for version in range(begun, last)]
        by_feed = [change for change in read if change.feed is not None]
        if history == [["delete from {t} where k = 1"], ["update {t} set v = -v where v = 0"]]:
            assert len(by_feed) == 2
        wanted = [by_snapshots(SourceVersions(change.before, change.after)) for change in by_feed]
        bags = weighed([change.frame(["k", "v"], consolidate=False) for change in (*by_feed, *wanted)], IDENTITY)
        for number, change in enumerate(by_feed):
            one, other = ({row: n for row, n in bag.items() if n} for bag in (bags[number], bags[number + len(wanted)]))
            assert one == other, f"from {change.before and change.before.version}"


def test_a_change_that_is_marked_as_none_is_read_from_files(delta: DeltaSandbox) -> None:
    """Protects from rows that stay: Delta leaves a commit with `dataChange` false out of the feed, whatever it does."""
    delta.deletion_vectors = False
    delta.source("t", "k int, v string", [(k, sha256(bytes([k])).hexdigest()) for k in range(256)])
    delta.sql(f"{PROPERTY}delta.enableChangeDataFeed = true)")
    begun = version_of(delta)
    kept = delta.table("t").at(begun).where("k > 0")
    kept.write.format("delta").mode("overwrite").option("dataChange", "false").save(delta.table("t").path)
    delta.sql("insert into {t} values (300, 'more')")
    delta.sql("update {t} set v = 'changed' where k = 7")
    table, last = delta.table("t"), version_of(delta)
    changes = [file_difference(table, version, last) for version in range(begun, last)]
    assert [change.feed is not None for change in changes] == [False, True, True]
    wanted = [by_snapshots(SourceVersions.of(table, version, last)) for version in range(begun, last)]
    bags = weighed([change.frame(["k", "v"], consolidate=True) for change in (*changes, *wanted)], ["k", "v"])
    assert bags[: len(changes)] == bags[len(changes) :]
    assert sorted((k, weight) for (k, _), weight in bags[0].items()) == [(0, -1), (7, -1), (7, 1), (300, 1)]


def version_of(delta: DeltaSandbox) -> int:
    version = delta.table("t").version()
    assert version is not None
    return version
