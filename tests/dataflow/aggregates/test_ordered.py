"""Windows, top-k and aggregates without a merge: touched partitions and groups are recomputed."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.errors import RefusedError
from deltafold.api import Policy
from tests.night import every, night
from tests.replay import Recording, record
from tests.sandbox import DeltaSandbox, MemorySandbox, Step, checked, rows

FIRST = [(1, 1, "a"), (1, 2, "a"), (1, 2, "b"), (2, 2, "a"), (None, 5, None)]
HISTORY: tuple[tuple[Step, ...], ...] = (
    (("insert", "t", [(1, 3, "c"), (2, 2, "b"), (3, 1, None)]), ("delete", "t", "v = 5")),
    (("delete", "t", "v = 2"), ("update", "t", {"k": "2"}, "k = 1 and v = 1")),
    (("copy", "t", "true"), ("insert", "t", [(None, 1, "x"), (None, 1, "y")])),
    (("delete", "t", "k is not null"),),
)
WINDOWS = (
    "select k, v, row_number() over (partition by k order by v) n from t",
    "select k, rank() over (partition by k order by v desc) r, dense_rank() over (partition by k order by v) d from t",
    "select k, v, lag(v) over (partition by k order by v) p, sum(v) over (partition by k order by v) s from t",
    "select k, v, avg(v) over (partition by k order by v rows between 1 preceding and current row) a from t",
    "select k, v, s from t qualify row_number() over (partition by k order by v desc) <= 2",
    "select v, first_value(s) over (partition by k order by v rows between 1 preceding and 1 following) f from t",
    "select k, v, sum(v) over () total, row_number() over (order by v) n from t",
    "select k, max(n) m from (select k, row_number() over (partition by k, s order by v) n from t) group by k",
    "select k, ntile(2) over (partition by k order by v) n, percent_rank() over (partition by k order by v) p from t",
)
OVER_STATES = (  # whose columns are given as SQL, of which Spark must know the types before it orders them
    "select k, sum(v) s from t group by k order by s desc limit 2",
    "select *, rank() over (order by s) r from (select k, sum(v) s from t group by k)",
)
LIMITS = (
    "select k, v, s from t order by v limit 2",
    "select k, v from t order by v desc, k limit 3 offset 1",
    "select count(*) n from (select v from t order by v limit 3)",
    "from t |> aggregate count(*) n group by s |> order by n desc, s |> limit 2",
    "select * from (select * from t order by v limit 3) limit 2",
    "select * from (select * from t order by v desc limit 3) order by k limit 2",
    "select s, k + v w from (select * from (select * from t order by v desc limit 4) order by k) limit 2",
)
UNMERGED = (
    "select k, percentile(v, 0.5) p, median(v) m, sum(v) s from t group by k",
    "select k, collect_list(s) l, collect_set(v) c, mode(v) m from t group by k",
    "select listagg(s, ',') within group (order by s) l, approx_percentile(v, 0.5) a from t",
    "select k, count(distinct v) d, percentile(distinct v, 0.5) p from t group by k",
    "select k, skewness(v) w, kurtosis(v) u from t group by k",
    "select k, first(s) f, last(v) l, any_value(s) a from t group by k",
    "select k, collect_list(named_struct('v', v, 's', s)) nested, max(struct(v, s)) top from t group by k",
)


@pytest.fixture(scope="module")
def history(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return record(spark, tmp_path_factory.mktemp("history"), {"t": ("k int, v int, s string", FIRST)}, HISTORY)


@pytest.mark.parametrize("query", [*OVER_STATES, *every(12, [*WINDOWS, *LIMITS, *UNMERGED])])
def test_touched_partitions_and_groups(sandbox: MemorySandbox, history: Recording, query: str) -> None:
    """A partition that grows, shrinks, moves, empties and comes again; equal values at every edge."""
    history.check(sandbox, query)


@night
def test_a_histogram(delta: DeltaSandbox) -> None:
    """On Delta alone: how Spark merges its bins depends on the files, and one file a change has one answer."""
    delta.sources({"t": ("k int, v int, s string", FIRST)})
    view = delta.another("select k, histogram_numeric(v, 3) h from t group by k")
    checked(view)
    delta.do(*HISTORY[0])
    checked(view)


WITHIN = {
    "lateral": "select c.id, o.v from c, lateral (select v from o where o.cid = c.id order by day desc limit 1) o",
    "lateral with offset": (
        "select c.id, o.v, o.s from c, lateral (select * from o where cid = c.id order by day limit 2 offset 1) o"
    ),
    "scalar": (
        "select id, (select s from o where cid = id order by day limit 1) s, "
        "(select s from o where cid > id order by day, v desc limit 1) t, "
        "(select v from o order by day desc limit 1) u from c"
    ),
    "aggregates": (
        "select id, (select collect_list(v) from o where cid = id) l, (select first(v) + max(day) from o "
        "where cid = id) f, (select max_by(s, day) from o where cid = id) m, (select min_by(v, day) from o) n from c"
    ),
    "IN and EXISTS": (
        "select id from c where id in (select v from o order by day limit 3) "
        "or id in (select cid from o where v = (select v from o order by day desc limit 1)) "
        "or exists (select 1 from (select v, row_number() over (order by day) n from o) where v = id and n = 3)"
    ),
    "a common table": "with x as (select * from o order by day) select v, s from x limit 3",
    "a filter between": "select v, s from (select * from o order by day) where v > 1 limit 2",
    "pipes": "from o |> order by day |> where v < 3 |> select cid, v, s |> limit 2",
    "below a group": "select sum(v) n from (select id, (select v from o where cid = id order by day limit 1) v from c)",
}
TIED = [(1, 1, 2, "b"), (1, 1, 1, "c"), (1, 0, 3, "a"), (2, 5, 2, "x"), (2, 5, 3, "y"), (2, 4, 1, "z"), (1, 1, 3, "d")]


@pytest.mark.parametrize("case", every(12, WITHIN))
def test_ties_within_queries_are_settled(sandbox: MemorySandbox, case: str) -> None:
    """The same rows in another order are the same answer, of the view and of the batch query."""
    answers: list[list[tuple[Any, ...]]] = []
    for number, o in enumerate((TIED, TIED[::-1])):
        box = sandbox.beside(str(number)).sources(
            {"c": ("id int", [(1,), (2,), (3,)]), "o": ("cid int, day int, v int, s string", o)}
        )
        view = box.another(WITHIN[case])
        checked(view)
        answers.append(rows(view))
    assert answers[0] == answers[1]


@night
def test_the_order_of_a_correlated_limit_is_kept(sandbox: MemorySandbox) -> None:
    """Spark forgets it where the query does not show what it orders by."""
    sandbox.sources({"c": ("id int", [(1,), (2,)]), "o": ("cid int, day int, v int, s string", TIED)})
    view = sandbox.another(WITHIN["lateral"])
    checked(view)
    assert rows(view) == [(1, 1), (2, 2)]
    sandbox.do(("delete", "o", "v < 3"), ("insert", "o", [(1, 7, 9, "e"), (2, 3, 8, "w")]))
    checked(view)
    assert rows(view) == [(1, 9), (2, 3)]


@night
def test_choices_of_what_cannot_be_ordered(sandbox: MemorySandbox) -> None:
    """Among equal orders a map is taken by its sorted entries, whatever the order of its keys and of the rows."""
    query = """select k, map_entries(max_by(m, ts)) hi, map_entries(min_by(m, ts) filter (where ts < 9)) lo,
        max_by(ts, v, 2) top, to_json(max_by(map('m', m['a']), v)) j from t group by k"""
    data = [
        (1, 1, 1, {"a": "x"}), (1, 1, 2, {"b": "x"}), (1, 1, 2, {"a": "y"}), (1, 0, 3, {"z": "z"}), (1, 7, 2, None),
        (2, 2, 1, None), (2, 2, 1, {"c": "x"}), (3, None, 1, {"d": "x"}),
    ]  # fmt: skip
    answers: list[list[tuple[Any, ...]]] = []
    for number, given in enumerate((data, data[::-1])):
        box = sandbox.beside(str(number)).sources({"t": ("k int, ts int, v int, m map<string,string>", given)})
        view = box.another(query)
        checked(view)
        box.do(("delete", "t", "ts = 7 or ts = 0"), ("insert", "t", [(3, 2, 2, {"e": "x"}), (3, 2, 1, {"f": "x"})]))
        checked(view)
        answers.append(rows(view))
    assert answers[0] == answers[1]
    assert [(r[0], r[1]) for r in answers[0]] == [(1, [("b", "x")]), (2, [("c", "x")]), (3, [("f", "x")])]


@night
def test_lists_of_distinct_values(sandbox: MemorySandbox) -> None:
    """They come in their own order where the query names none."""
    data = [(1, "b"), (1, "a"), (1, "b"), (1, None), (1, "c"), (2, "z"), (2, "y")]
    for number, given in enumerate((data, data[::-1])):
        box = sandbox.beside(str(number)).sources({"t": ("k int, s string", given)})
        view = box.another("select k, listagg(distinct s, ',') l, listagg(s) m from t group by k")
        checked(view)
        assert rows(view) == [(1, "a,b,c", "abbc"), (2, "y,z", "yz")]


@night
def test_peers_stay_in_a_range_frame(sandbox: MemorySandbox) -> None:
    """Whichever of them is the first, all have the same frame and so the same value, and that is one of Spark's."""
    data = [(1, 1, None, "b"), (1, 1, 5, "a"), (1, 2, None, "c"), (1, 2, 7, "c"), (1, 2, None, "d"), (2, 1, None, "e")]
    query = """
        select k, d, x, s, first_value(x) ignore nulls over w f, nth_value(s, 2) over w n, last_value(s) over w z,
            collect_list(s) over w l, listagg(s) over w t, any_value(s) over w a, first_value(s) over w o,
            first_value(s) over (partition by k order by d range between current row and unbounded following) g,
            last_value(x) ignore nulls over (
                partition by k order by d range between current row and unbounded following) y,
            collect_list(s) over (partition by k order by d range between current row and current row) h
        from t window w as (partition by k order by d)"""
    answers: list[list[tuple[Any, ...]]] = []
    for number, given in enumerate((data, data[::-1])):
        box = sandbox.beside(str(number)).sources({"t": ("k int, d int, x int, s string", given)})
        view = box.another(query)
        checked(view)
        answers.append(rows(view))
        found = {(r.k, r.d): r for r in view.answer().collect()}
        assert [(found[each].f, found[each].y) for each in ((1, 1), (1, 2), (2, 1))] == [(5, 7), (5, 7), (None, None)]
        assert len({repr((r[0], r[1], r[4:])) for r in answers[-1]}) == 3, "peers have the same values"
        assert sorted(found[1, 1].l) == ["a", "b"] and sorted(found[1, 2].l) == ["a", "b", "c", "c", "d"]
        assert found[1, 2].t == "".join(found[1, 2].l) and found[1, 1].n == found[1, 1].l[1] == found[1, 1].z
        assert sorted(found[1, 2].h) == ["c", "c", "d"] and found[1, 2].g == found[1, 2].h[0]
        box.do(("delete", "t", "x = 5"), ("insert", "t", [(1, 2, 9, "a")]))
        checked(view)
    assert answers[0] == answers[1]


def test_choices_over_windows(sandbox: MemorySandbox) -> None:
    """What has an order of its own is settled by that, within the frame that the query says."""
    query = """select k, d, s,
        max_by(s, v) over (partition by k order by d) m, mode(s) over (partition by k order by d) o,
        min_by(s, v) over (partition by k order by d range between 1 preceding and current row) n,
        listagg(s, ',') within group (order by v) over (partition by k) l, median(d) over (partition by k) e from t"""
    data = [(1, 1, 3, "b"), (1, 1, 3, "a"), (1, 2, 3, "c"), (1, 2, 1, "z"), (1, 4, 1, "y"), (2, 1, 1, "x")]
    answers: list[list[tuple[Any, ...]]] = []
    for number, given in enumerate((data, data[::-1])):
        box = sandbox.beside(str(number)).sources({"t": ("k int, d int, v int, s string", given)})
        view = box.another(query)
        checked(view)
        answers.append(rows(view))
    assert answers[0] == answers[1]
    assert answers[0][0] == (1, 1, "a", "b", "a", "a", "y,z,a,b,c", 2.0)


def test_only_touched_partitions_are_computed(sandbox: MemorySandbox) -> None:
    """The change of a window over many partitions is as small as the partitions that changed."""
    sandbox.source("t", "k int, v int", [(k, v) for k in range(50) for v in range(4)])
    view = sandbox.view("select k, v, row_number() over (partition by k order by v desc) n from t")
    checked(view)
    sandbox.sql("insert into {t} values (7, 9)")
    assert checked(view).change_rows == 9  # five rows of the partition come, four go


@night
def test_dropped_duplicates_keep_one_whole_row(sandbox: MemorySandbox) -> None:
    """Values of different rows must not be mixed."""
    sandbox.sources({"t": ("k int, v int, s string", [(1, 1, "z"), (1, 2, "a"), (2, 1, None)])})

    def query(t: DataFrame) -> DataFrame:
        return t.dropDuplicates(["k"])

    view = sandbox.another(query)
    checked(view)
    assert rows(view) == [(1, 1, "z"), (2, 1, None)]
    sandbox.do(("delete", "t", "v = 1"))
    checked(view)
    assert rows(view) == [(1, 2, "a")]


@night
def test_pandas_functions_of_groups(sandbox: MemorySandbox) -> None:
    """Spark runs them on touched groups alone."""
    sandbox.sources({"t": ("k int, v double, s string", [(1, 1.0, "a"), (1, 3.0, "b"), (2, 5.0, "c")])})

    def middle_of(v: pd.Series) -> float:
        return float(v.median())

    middle: Any = F.pandas_udf(middle_of, "double")  # type: ignore[call-overload]

    def demeaned(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(v=rows.v - rows.v.mean())

    def aggregated(t: DataFrame) -> DataFrame:
        return t.groupBy("k").agg(middle("v").alias("m"))

    def applied(t: DataFrame) -> DataFrame:
        return t.groupBy("k").applyInPandas(demeaned, "k int, v double, s string")

    views = [sandbox.another(aggregated), sandbox.another(applied)]
    more: Step = ("insert", "t", [(1, 8.0, "x"), (3, 1.0, "y")])
    for step in (None, more, ("delete", "t", "k = 2")):
        if step:
            sandbox.do(step)
        for view in views:
            checked(view)


@pytest.mark.parametrize(
    ("query", "because"),
    [
        ("select k from t limit 1", "without an order"),
        ("select k from (select k from t order by v) group by k limit 1", "without an order"),
        ("select last_value(s) over (order by v range between 1 preceding and 1 following) l from t", "among peers"),
        ("select k from t tablesample (50 percent)", "files and partitions"),
        ("select k from t tablesample (50 percent) repeatable (7)", "files and partitions"),
        ("select k from t where v in (select v from t tablesample (2 rows))", "without an order"),
    ],
)
def test_what_is_not_determined_is_refused(sandbox: MemorySandbox, query: str, because: str) -> None:
    """Recomputing it cannot help: another run gives other rows, and no check would ever say that they are equal."""
    sandbox.source("t", "k int, v int, s string", [(1, 1, "a")])
    policies: tuple[Policy, ...] = ("incremental", "auto", "definition")
    for policy in policies:
        with pytest.raises(RefusedError, match=because):
            sandbox.another(query, policy=policy).refresh()
