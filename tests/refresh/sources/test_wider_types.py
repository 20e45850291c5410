"""Columns of a source that get wider types: a view goes on where its answer is the same, and says why otherwise.

Each view is compared with Spark's batch answer, after old rows were removed and rows beyond the old range were added.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from deltafold.algebra.errors import ChangedQueryError
from deltafold.api import View
from deltafold.refresh.stages import program_run
from tests.night import night, sampled
from tests.refresh.test_changes import refusal
from tests.sandbox import DeltaSandbox, MemorySandbox, Sandbox, checked, confirm

WHOLE: list[Any] = [-5, 0, 7, 300, None]
DECIMALS: list[Any] = [Decimal("1.50"), Decimal("-3.25"), Decimal("999.99"), None]
FLOATS: list[Any] = [0.5, 0.10000000149011612, float("nan"), -0.0, 3e38, None]
DATES: list[Any] = [date(2020, 1, 1), date(2021, 2, 3), None]
# the types, values of the first, and values that only the second has
PAIRS: dict[tuple[str, str], tuple[list[Any], list[Any]]] = {
    ("smallint", "int"): (WHOLE, [40000, -70000]),
    ("smallint", "bigint"): (WHOLE, [1 << 40, -(1 << 33)]),
    ("int", "bigint"): (WHOLE, [1 << 40, -(1 << 33)]),
    ("int", "double"): (WHOLE, [0.25, 1e20]),
    ("int", "decimal(12,2)"): (WHOLE, [Decimal("123456789.01")]),
    ("float", "double"): (FLOATS, [0.1, 1e100]),  # squares of larger ones are INF or NaN by the order of rows
    ("decimal(5,2)", "decimal(12,2)"): (DECIMALS, [Decimal("123456789.01")]),
    ("decimal(5,2)", "decimal(12,4)"): (DECIMALS, [Decimal("12345678.0123")]),
    ("decimal(12,2)", "decimal(30,2)"): (DECIMALS, [Decimal("12345678901234567890.01")]),
    ("date", "timestamp_ntz"): (DATES, [datetime(2020, 1, 1, 12, 30)]),
}
DAY = [("int", "bigint")]  # with some queries
SUM = "select k, sum(v) s, avg(v) a, count(v) n from t group by k"
SAME, COPIED = "same", "copied"
ANSWER, VALUE = "a wider type changes the answer: ", "a wider type changes more than the width: "
# what becomes of a view when INT becomes BIGINT
OF_ALL: dict[str, str] = {
    "select k, count(*) n, count(v) c from t group by k": SAME,
    "select k, count(distinct v) n from t group by k": COPIED,
    "select v, count(*) n from t group by v": ANSWER,
    "select count(*) n from t group by v": COPIED,
    "select k, count(*) n from t group by rollup (k, v)": COPIED,
    "select k, max(v) m, min(v) l from t group by k": ANSWER,
    "select k, count(*) n from t group by k having max(v) > min(v)": COPIED,
    "select k, max_by(k, v) m from t group by k": COPIED,
    "select k, cast(max(v) as string) m from t group by k": COPIED,
    "select k, size(collect_list(v)) n from t group by k": VALUE,
    "select k, v from t": ANSWER,
    "select k, cast(v as string) s from t": SAME,
    "select k from t where v >= (select max(v) from t)": COPIED,
    "select k, rank() over (partition by k order by v) r from t": SAME,
    "select k, count(*) over (partition by v) r from t": SAME,
    "select k, max(v) over (partition by k) is null r from t": SAME,
    "select k from t order by v, k limit 3": SAME,
    "select a.k, b.k l from t a join t b on a.v = b.v and a.k < b.k": SAME,
    "select k, coalesce(v, v) is null n, case when v in (v) then 'a' else 'b' end c from t": SAME,
    "select k, hash(v) h from t": VALUE,
    "select k, size(array(v)) n from t": VALUE,
    "select k, if(k > 1, v, null) is null n from t": SAME,
    "select k, count(*) filter (where v is not null) n from t group by k": SAME,
}
OF_NUMBERS: dict[str, str] = {
    "select k, sum(v) s, avg(v) a from t group by k": COPIED,
    "select k, cast(sum(v) as bigint) s from t where abs(v) < 1e9 group by k": COPIED,
    "select k, sum(v * 2L) s from t group by k": SAME,
    "select k, stddev(v) s from t group by k": VALUE,
    "select k, median(v) m from t group by k": VALUE,
    "select k from t where v > 1 or v in (7, 300) or v = '5'": SAME,
    "select t.k, d.x from t join d on t.v = d.w": SAME,
    "select k from t where v in (select w from d)": SAME,
    "select w from d where not exists (select 1 from t where t.v = d.w)": SAME,
    "select k, sum(v) over (partition by k) r from t": SAME,
    "select k, case when v > 1 then v else 0 end > 5 c from t": SAME,
    "select k, count(*) n from t where v + v > 3 and -v < 9 group by k": SAME,
    "select k from t where v = 7 union all select w from d": SAME,
    "select cast(v as string) v from (select v from t union all select x from d)": SAME,
    "select count(*) n from (select v from t union select w from d) group by v": VALUE,
    "select k, cast(v as int) i from t where v between -9 and 9000": SAME,
    "select cast(v as int) i, count(*) n from t where v between -9 and 9000 group by cast(v as int)": SAME,
}
# by day, one query of each effect, and a join
BY_DAY = (
    "select k, count(distinct v) n from t group by k",
    "select k, max(v) m, min(v) l from t group by k",
    "select k, hash(v) h from t",
    "select a.k, b.k l from t a join t b on a.v = b.v and a.k < b.k",
    "select k, sum(v) s, avg(v) a from t group by k",
)
OF_DATES: dict[str, str] = {
    "select k, year(v) y, count(*) n from t where v >= '2020-01-01' group by k, year(v)": SAME,
    "select k, datediff(v, date'2020-01-01') n from t where v < date'2021-01-01'": SAME,
}


def prepared(sandbox: Sandbox, pair: tuple[str, str]) -> None:
    values = PAIRS[pair][0]
    sandbox.source("t", f"k int, v {pair[0]}", [(number % 3, value) for number, value in enumerate(values * 2)])
    sandbox.source("d", "w int, x bigint", [(7, 1), (1, 2), (300, 3)])


def widen(sandbox: Sandbox, pair: tuple[str, str]) -> None:
    """Overwrite the table with the wider type, without some old rows, and add rows beyond the old range."""
    kept = "where k <> 1 or v is null"  # the largest of a group, among others, is removed
    rows = sandbox.read(f"select k, cast(v as {pair[1]}) v from {{t}} {kept}")
    sandbox.write("t", sandbox.spark.createDataFrame(rows.collect(), rows.schema), "reshape")
    sandbox.insert("t", f"k int, v {pair[1]}", [(k, value) for k in (1, 5) for value in PAIRS[pair][1]])


def effect(view: View) -> str:
    """What a wider type does to a view."""
    try:
        report = view.refresh()
    except ChangedQueryError as refused:
        line = str(refused).splitlines()[-1].strip()
        return line[: line.index(": ") + 2]
    return SAME if report.generation == 1 else COPIED


@pytest.mark.parametrize("pair", sampled(PAIRS, lambda pair: pair in DAY, " to ".join))
def test_a_wider_type(sandbox: MemorySandbox, pair: tuple[str, str], long: bool) -> None:
    """Every query goes on to Spark's answer, or is refused with a reason and then rebuilt; no state is read anew."""
    every_query = OF_ALL | (OF_DATES if pair[0] == "date" else OF_NUMBERS)
    expected = every_query if long else {query: every_query[query] for query in BY_DAY}
    prepared(sandbox, pair)
    views = {sandbox.another(query): query for query in expected}
    for view in views:
        view.refresh()
    widen(sandbox, pair)
    found = {query: effect(view) for view, query in views.items()}
    for view, query in views.items():
        if found[query] in (ANSWER, VALUE):
            view = sandbox.view(query, view.name, on_change="rebuild")
            view.refresh()
        confirm(view)
    sandbox.sql("delete from {t} where k = 5 or k = 2")
    for view in views:
        checked(sandbox.view(view.query, view.name, on_change="rebuild"))
    if pair == ("int", "bigint"):
        assert found == expected
    if pair[0] == "date":
        assert {query: found[query] for query in OF_DATES} == OF_DATES


def as_source(view: View) -> View:
    view.warehouse.source(view.name, view)
    return view


def test_delta_widens_a_type_in_place(delta: DeltaSandbox, long: bool) -> None:
    """Files of the narrow type stay, and rows in them are deleted; by night with a refresh at each of two types."""
    delta.sql(
        f"create table delta.`{delta.path('t')}` (k int, v smallint, f float, d date) using delta tblproperties ("
        "'delta.enableTypeWidening' = 'true', 'delta.enableDeletionVectors' = 'true', "
        "'delta.feature.timestampNtz' = 'supported')"
    )
    delta.sql("insert into {t} select id % 3, id, id / 4, date_add(date'2020-01-01', int(id)) from range(20)")
    delta.declare("t")
    queries = {
        "select k, count(*) n, sum(v) s, sum(f) f from t where v > 2 and d > date'2020-01-03' group by k": (1, 2),
        "select n, count(*) c from (select v, count(*) n from t group by v) group by n": (2, 3),
        "select k, row_number() over (partition by k order by v desc, f, d) r from t": (1, 1),
    }
    chosen = [*queries.items()][: None if long else 1]
    views = {delta.another(query): generations for query, generations in chosen}
    for view in views:
        checked(view)
    types = {0: ("int", 70000), 1: ("bigint", 1 << 40)}
    for step in types if long else (1,):
        type_, value = types[step]
        delta.sql(f"alter table {{t}} alter column v type {type_}")
        if step:
            delta.sql("alter table {t} alter column f type double")
            delta.sql("alter table {t} alter column d type timestamp_ntz")
        delta.sql(f"delete from {{t}} where v in ({3 + step}, {9 + step})")
        delta.sql(f"insert into {{t}} values (1, {value}, 0.1, date'2021-01-01'), (2, -{value}, 0.25, null)")
        for view, generations in views.items():
            assert checked(view).generation == generations[step], view.query
        if step or long:
            delta.sql(f"delete from {{t}} where v = {12 + step}")
            for view in views:
                assert checked(view).verdict == "applied"


@night
def test_create_or_replace(delta: DeltaSandbox) -> None:
    delta.source("t", "k int, v int", [(k % 3, k) for k in range(9)])
    same, copied = delta.another("select k, count(v) n from t where v > 1 group by k"), delta.another(SUM)
    for view in (same, copied):
        checked(view)
    delta.sql(
        "create or replace table {t} using delta as select k, v * 1000000000 v from (select k, bigint(v) v from {t})"
    )
    assert (checked(same).generation, checked(copied).generation) == (1, 2)


def test_states_are_copied_and_sources_are_not_read(sandbox: MemorySandbox) -> None:
    """Without `on_change`, since the answer is the same; nothing that came since is missed."""
    prepared(sandbox, ("int", "bigint"))
    view = sandbox.view(SUM)
    checked(view)
    widen(sandbox, ("int", "bigint"))
    report = checked(view)
    assert (report.verdict, report.generation, report.epoch) == ("applied", 2, 2)
    assert "before it, epoch 1 was rebuilt, state_1 reused" in report.sentence
    assert "column v of source t changed from int to bigint" in report.because
    assert "the answer is the same, and the states get wider types" in report.because


@pytest.mark.parametrize("moment", ["_state", *(pytest.param(moment, marks=night) for moment in ("_view", "all"))])
def test_a_crash(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """In the copy or after it: what is left is computed from the versions with the narrow type."""
    prepared(sandbox, ("int", "bigint"))
    joined = f"({SUM}) q join d on q.k = d.w - 6"
    two_states = f"select s, count(*) c from {joined} group by s having s <> 1"
    query = f"select q.k, s, x from {joined}" if moment == "_view" else two_states
    checked(sandbox.view(query))
    widen(sandbox, ("int", "bigint"))
    original = getattr(program_run.Run, moment)

    def crash(run: Any, *arguments: Any) -> Any:
        if moment == "all" and run._epoch.initial:
            return original(run, *arguments)
        if moment == "_state" and arguments[0].name == "state_1":
            return original(run, *arguments)
        return 1 / 0

    with monkeypatch.context() as patch:
        patch.setattr(program_run.Run, moment, crash)
        with pytest.raises(ZeroDivisionError):
            sandbox.view(query).refresh()
    sandbox.warehouse = sandbox.opened()
    for name in ("t", "d"):
        sandbox.declare(name)
    view = sandbox.view(query)
    assert checked(view).generation == 2
    sandbox.sql("delete from {t} where k = 2")
    assert checked(view).verdict == "applied"


@night
def test_chunks(sandbox: MemorySandbox) -> None:
    prepared(sandbox, ("smallint", "int"))
    view = sandbox.view(SUM)
    checked(view)
    widen(sandbox, ("smallint", "int"))
    assert checked(view, chunk=1).generation == 1
    sandbox.insert("t", "k int, v int", [(8, 80000)])
    sandbox.insert("t", "k int, v int", [(8, 80000)])
    checked(view, chunk=1)


def test_a_chain(sandbox: MemorySandbox) -> None:
    """The view below gets another generation, or goes on; the one above takes in the difference of its answers."""
    prepared(sandbox, ("int", "bigint"))
    below = [as_source(sandbox.view(SUM, "sums")), as_source(sandbox.view("select k from t where v > 1", "some"))]
    above = sandbox.view("select s > 0 p, count(*) n from sums join some on sums.k = some.k group by s > 0", "above")
    checked(above)
    widen(sandbox, ("int", "bigint"))
    report = checked(above)
    assert (report.verdict, report.generation) == ("applied", 1)
    for each in below:
        confirm(each)


def test_a_view_below_gets_a_wider_answer(sandbox: MemorySandbox) -> None:
    prepared(sandbox, ("int", "bigint"))
    as_source(sandbox.view("select k, max(v) m from t group by k", "below", on_change="rebuild"))
    above = sandbox.view("select m, count(*) n from below where m > 1 group by m having count(*) > 0", "above")
    counted = sandbox.view("select count(*) n from below where m > 1", "counted")
    for view in (above, counted):
        checked(view)
    widen(sandbox, ("int", "bigint"))
    assert checked(counted).generation == 1
    assert "m becomes bigint (it was int)" in refusal(above)
    assert checked(sandbox.view(above.query, "above", on_change="rebuild")).generation == 2


def test_narrowed_again(sandbox: MemorySandbox) -> None:
    """The view has read values that the narrower type does not have: on_change decides, and a recompute goes on."""
    prepared(sandbox, ("int", "bigint"))
    query = "select k, count(*) n from t where v > 2 group by k"
    view, recomputed = sandbox.view(query), sandbox.another(query, policy="definition")
    for each in (view, recomputed):
        checked(each)
    widen(sandbox, ("int", "bigint"))
    for each in (view, recomputed):
        checked(each)
    sandbox.write("t", sandbox.spark.createDataFrame([(1, 1), (2, 5)], "k int, v int"), "reshape")
    assert refusal(view).splitlines()[-1].strip() == "column v of source t changed from bigint to int"
    report = checked(sandbox.view(query, on_change="rebuild"))
    assert (report.verdict, report.because) == ("rebuilt", ("column v of source t changed from bigint to int",))
    assert checked(recomputed).generation == 1


@night
def test_an_earlier_version(sandbox: MemorySandbox) -> None:
    """A version with the narrow type can be asked for, also after a rollback to an epoch at one."""
    prepared(sandbox, ("int", "bigint"))
    view = sandbox.view("select k, count(*) n from t where v > 2 group by k")
    version = sandbox.table("t").version()
    checked(view)
    widen(sandbox, ("int", "bigint"))
    checked(view)
    view.rollback(1)
    assert checked(view).verdict == "applied"
    assert view.refresh({"t": version or 0}).verdict == "applied"
    checked(view)


def test_recomputed(sandbox: MemorySandbox) -> None:
    """What is recomputed goes on wherever the answer has the same types, since nothing but the answer is stored."""
    prepared(sandbox, ("int", "bigint"))
    query = "select k, count(distinct v) + count(distinct hash(v)) n from t group by k"
    views = [sandbox.another(text, policy="definition") for text in ("select k, count(v) n from t group by k", query)]
    for view in views:
        checked(view)
    widen(sandbox, ("int", "bigint"))
    assert checked(views[0]).generation == 1
    assert "hash(v) may have another value for the wider type" in refusal(views[1])


def test_a_query_that_changes_too(sandbox: MemorySandbox) -> None:
    prepared(sandbox, ("int", "bigint"))
    checked(sandbox.view("select k, count(v) n from t group by k"))
    widen(sandbox, ("int", "bigint"))
    view = sandbox.view("select k, count(v) + 1 n from t group by k")
    assert "column v of source t changed from int to bigint" in refusal(view)
    checked(sandbox.view(view.query, on_change="rebuild"))


def test_a_text_is_another_number_as_a_double(sandbox: MemorySandbox) -> None:
    """Protects from constants that Java shows alike: '0.1' is not the same number as a FLOAT and as a DOUBLE."""
    sandbox.spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        sandbox.source("t", "k int, v float", [(1, 0.1), (2, 0.5)])
        view = sandbox.view("select k from t where v = '0.1'")
        checked(view)
        sandbox.insert("t", "k int, v double", [(1, 0.10000000149011612), (2, 0.5)], mode="reshape")
        with pytest.raises(ChangedQueryError, match=VALUE):
            view.refresh()
    finally:
        sandbox.spark.conf.set("spark.sql.ansi.enabled", "true")
