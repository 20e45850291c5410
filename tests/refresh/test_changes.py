"""A query, a function, a setting or a source's column that is another one than when the state was built."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import ChangedQueryError, StateError, UsageError
from deltafold.api import Delta, View
from deltafold.refresh import incremental_refresh
from deltafold.store.snapshot import LastAnswer
from tests.night import night
from tests.sandbox import MemorySandbox, checked, confirm, rows

QUERY = "select k, sum(x) s from (select k, v + 1 as x from t where v < 100) q group by k"
ZONE = "spark.sql.session.timeZone"


def refusal(view: View) -> str:
    """Why a view is not refreshed."""
    with pytest.raises(ChangedQueryError) as found:
        view.refresh()
    return str(found.value)


def test_a_setting_that_changes_between_two_refreshes(sandbox: MemorySandbox) -> None:
    """Also of a view that is open: rows of before and after would stand in two time zones."""
    sandbox.source("t", "v bigint", [(1_714_593_600,)])
    view = sandbox.view("select date(timestamp_seconds(v)) d, count(*) n from t group by date(timestamp_seconds(v))")
    view.refresh()
    sandbox.sql("insert into {t} values (1714597200)")
    zone = sandbox.spark.conf.get(ZONE)
    sandbox.spark.conf.set(ZONE, "Asia/Tokyo")
    try:
        assert f"setting {ZONE} changed from {zone} to Asia/Tokyo" in refusal(view)
    finally:
        sandbox.spark.conf.set(ZONE, str(zone))
    assert checked(view).verdict == "applied"


def test_legacy_settings_reach_the_tasks_of_a_refresh(sandbox: MemorySandbox) -> None:
    """Spark parses such dates only under the legacy policy: the tasks of a small change had the default one."""
    policy = "spark.sql.legacy.timeParserPolicy"
    sandbox.source("t", "day string, v int", [("2024-1-5", 1), ("2024-01-05", 2)])
    sandbox.spark.conf.set(policy, "LEGACY")
    try:
        day = "to_date(day, 'yyyy-MM-dd')"
        view = sandbox.view(f"select {day} d, sum(v) s, max({day}) m from t group by {day}")
        view.refresh()
        sandbox.sql("insert into {t} values ('2024-1-6', 3), ('2024-1-5', 4)")
        sandbox.sql("delete from {t} where v = 2")
        assert checked(view).verdict == "applied"
        assert [(str(row.d), row.s) for row in view.answer().orderBy("d").collect()] == [
            ("2024-01-05", 5),
            ("2024-01-06", 3),
        ]
    finally:
        sandbox.spark.conf.unset(policy)


def test_the_difference_is_said(sandbox: MemorySandbox) -> None:
    """In the terms of the query, and not of fingerprints; a state of an older release has none to tell."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    checked(sandbox.view(QUERY))
    changed = sandbox.view(QUERY.replace("v < 100", "v < 200").replace("sum(x) s", "max(x) s"))
    assert refusal(changed).splitlines() == [
        "view v: the query, or a column that it reads, changed since the state was built. Rebuild the view "
        "(on_change: rebuild does it by itself), or restore what changed.",
        "  answer column: - s bigint",
        "  answer column: + s int",
        "  - group by k: sum(x)",
        "  + group by k: max(x)",
        "  - filter (v < 100)",
        "  + filter (v < 200)",
    ]
    zone = sandbox.spark.conf.get(ZONE)
    sandbox.spark.conf.set(ZONE, "Asia/Tokyo")
    sandbox.spark.conf.set("spark.sql.legacy.sizeOfNull", "false")
    assert refusal(sandbox.view(QUERY)).splitlines()[1:] == [
        f"  setting {ZONE} changed from {zone} to Asia/Tokyo",
        "  setting spark.sql.legacy.sizeOfNull changed from not set to false",
    ]
    sandbox.spark.conf.unset("spark.sql.legacy.sizeOfNull")
    sandbox.spark.conf.set(ZONE, str(zone))
    for file in (sandbox.folder / "warehouse" / "views" / "v" / "journal").glob("query-*"):
        file.unlink()
    assert "the release that built the state did not record it" in refusal(changed)
    assert checked(sandbox.view(QUERY)).verdict == "nothing to do"
    assert "+ filter (v < 200)" in refusal(changed)


def test_a_function_with_another_body(sandbox: MemorySandbox) -> None:
    """By its name; what stands around it is no change."""

    def by(clean: Callable[[Any], Any]) -> Callable[[DataFrame], DataFrame]:
        return lambda t: t.select(F.udf(clean)("v").alias("c")).groupBy("c").count()

    def clean(value: Any) -> Any:  # pyright: ignore[reportRedeclaration]
        return value % 2

    first = by(clean)

    def clean(value: Any) -> Any:  # pyright: ignore[reportRedeclaration]
        """The same, further down."""
        return (
            value % 2
        )  # fmt: skip

    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    checked(sandbox.view(first))
    assert checked(sandbox.view(by(clean))).verdict == "nothing to do"

    def clean(value: Any) -> Any:  # pyright: ignore[reportRedeclaration]
        return value % 3

    assert refusal(sandbox.view(by(clean))).splitlines()[1:] == ["  Python function clean changed"]


@pytest.mark.parametrize(
    ("query", "alike"),
    [
        (
            QUERY,
            "-- all\nSELECT k,\n  sum(y) AS s\nFROM (SELECT k, v+1 y FROM t WHERE v<100) AS r GROUP BY k",
        ),
        (
            "select max(n) hi from (select k % 2 as m, count(*) as n from t group by k % 2) q",
            "with c as (select k % 2 as parity, count(1) as number from t group by 1) select max(number) as hi from c",
        ),
    ],
)
def test_names_and_looks_are_no_change(sandbox: MemorySandbox, query: str, alike: str) -> None:
    """Nor are names within a query, though a state has columns that are named by them."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2), (3, 3)])
    checked(sandbox.view(query))
    sandbox.sql("insert into {t} values (3, 4), (4, 4)")
    report = checked(sandbox.view(alike))
    assert (report.verdict, report.generation, report.epoch) == ("applied", 1, 2)
    sandbox.sql("delete from {t} where k = 3")
    assert checked(sandbox.view(query)).epoch == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("from_json(s, 'x date', map('dateFormat', 'd')).x", "from_json(s, 'x date', map('dateFormat', 'M')).x"),
        ("from_csv(s, 'x int', map('sep', ';')).x", "from_csv(s, 'x int', map('sep', ',')).x"),
        ("to_csv(struct(s, k), map('sep', ';'))", "to_csv(struct(s, k), map('sep', ','))"),
        ("approx_count_distinct(k, 0.05)", "approx_count_distinct(k, 0.01)"),
        ("percentile_cont(0.1) within group (order by k)", "percentile_cont(0.1) within group (order by k desc)"),
    ],
)  # fmt: skip
def test_what_sparks_own_text_leaves_out(sandbox: MemorySandbox, one: str, other: str) -> None:
    """Options that Spark does not print are part of the query, and tell two expressions of one query apart."""
    sandbox.source("t", "k int, s string", [(1, "1;2")])
    views = [sandbox.view(f"select s, {what} c from t group by s, k") for what in (one, other)]
    assert views[0].description().fingerprint != views[1].description().fingerprint


def test_two_expressions_that_print_alike(sandbox: MemorySandbox) -> None:
    sandbox.source("t", "s string", [("1;2",)])
    both = [f"sum(from_csv(s, 'x int, y int', map('sep', '{sep}')).y)" for sep in (";", ",")]
    view = sandbox.view(f"select {both[0]} a, {both[1]} b from t")
    checked(view)
    assert rows(view) == [(2, None)]


def test_rebuilt_by_policy(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new generation beside the old one, which readers keep until the switch; the report says why."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2), (2, 3)])
    nested = "select k, count(*) n from (select k, v from t group by k, v) q group by k having count(*) > 0"
    old = sandbox.view(nested)
    checked(old)
    sandbox.sql("insert into {t} values (2, 7)")
    before = [(1, 1), (2, 2)]
    new = sandbox.view("select k, v, count(*) n from t group by k, v", on_change="rebuild")
    assert rows(new) == before
    with pytest.raises(ChangedQueryError, match="Rebuild the view before it is verified"):
        new.verify()
    with monkeypatch.context() as crash:
        crash.setattr(incremental_refresh.Incremental, "run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            new.refresh()
    assert rows(new) == before == rows(old)
    report = checked(new)
    assert (report.verdict, report.generation, report.epoch) == ("resumed", 2, 1)
    assert "changed since the state was built" in report.sentence
    assert "answer column: + v int" in report.because
    sandbox.sql("delete from {t} where k = 1")
    assert (checked(new).verdict, new.history()[-1].because) == ("applied", ())
    report = checked(sandbox.view(nested, on_change="rebuild"))
    assert (report.verdict, report.generation, report.because[0]) == ("rebuilt", 3, "answer column: - v int")
    with pytest.raises(UsageError, match=r"view v: unknown on_change 'shout'. Use refuse or rebuild"):
        sandbox.view(nested, on_change="shout")


def test_a_view_below_is_rebuilt_by_its_own_policy(sandbox: MemorySandbox) -> None:
    """What reads it gets the difference of its two answers."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2), (2, 3)])

    def above(query: str, on_change: Any) -> View:
        warehouse = sandbox.opened()
        warehouse.source("t", Delta(sandbox.path("t")))
        warehouse.source("low", warehouse.view("low", query, on_change=on_change))
        return warehouse.view("high", "select sum(s) total, count(*) n from low")

    sums, most = (f"select k, {what}(v) s from t where v > 0 group by k" for what in ("sum", "max"))
    most = most.replace("max(v)", "cast(max(v) as bigint)")
    first = above(sums, "refuse")
    first.refresh()
    with pytest.raises(ChangedQueryError, match="view low: the query"):
        above(most, "refuse").refresh()
    changed = above(most, "rebuild")
    report = changed.refresh()
    assert [(each.view, each.verdict, each.generation) for each in report.below] == [("low", "rebuilt", 2)]
    assert rows(changed) == [(4, 2)]
    assert changed.verify().ok


@night
def test_other_buckets(sandbox: MemorySandbox) -> None:
    """The state is kept, and goes on in them."""
    sandbox.source("t", "k int, v double", [(k, k / 4) for k in range(20)])
    views = [
        sandbox.view("select k % 7 m, sum(v) s, min(v) lo from t group by k % 7", "grouped"),
        sandbox.view("select k, v from t where v > 1", "bag"),
    ]
    for view in views:
        checked(view)
    sandbox.sql("delete from {t} where k = 13")
    for view in views:
        report = view.rebucket(3)
        assert (report.verdict, report.generation) == ("rebucketed", 2)
        confirm(view)
        buckets = {partition.value for partition in LastAnswer(view.store).table.partitions(0)}
        assert buckets <= {"0", "1", "2"} and len(buckets) > 1
        assert checked(view).generation == 2
    sandbox.sql("insert into {t} values (6, 0.25), (99, 99)")
    for view in views:
        checked(view)
    with pytest.raises(UsageError, match="in 3 buckets already"):
        views[0].rebucket(3)
    with pytest.raises(UsageError, match="cannot be stored in 0 buckets"):
        views[0].rebucket(0)


def test_tables_of_another_release(sandbox: MemorySandbox) -> None:
    """A state whose columns are others is not merged into, and a journal from later is said to be that."""
    sandbox.source("t", "k int, v int", [(1, 1)])
    view = sandbox.view(QUERY)
    checked(view)
    sandbox.sql("insert into {t} values (1, 2)")
    sandbox.sql("alter table {state} add column __s_new bigint", state=view.path)
    with pytest.raises(StateError, match=r"state_1 of view v has other columns than this release keeps \(__s_new\)"):
        view.refresh()
    assert view.rebuild().generation == 2
    file = next(iter(sorted((sandbox.folder / "warehouse" / "views" / "v" / "journal").glob("g00002*"))))
    told = json.loads(file.read_text())
    told["intent"]["later"] = True
    file.write_text(json.dumps(told))
    with pytest.raises(StateError, match="was written by a newer Deltafold than this one"):
        view.refresh()
