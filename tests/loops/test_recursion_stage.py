"""Recursion as a stage of a view: limits, damage, parts, rollback, views around it, and what a round takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import DeltafoldError, NotConvergedError, StateError
from deltafold.api import Report, View, fixpoint
from tests.loops.cases import DISTINCT_PATHS, PATHS, UNION, reach
from tests.loops.queries import parity
from tests.night import every, night
from tests.sandbox import DeltaSandbox, MemorySandbox, Sandbox, as_asked, checked, confirm, rows

EDGES = [(1, 2), (2, 3), (3, 1), (3, 4), (4, 4), (4, 5), (1, 2), (None, 6), (5, None), (7, 8), (8, 7)]
BELOW_AND_ABOVE = """
with recursive r(x) as (
  select x from starts where x > 0
  union select e.b from r join (select a, b from edges group by a, b) e on r.x = e.a
  where e.b is not null and not exists (select 1 from starts s where s.x = -e.b))
select x % 2 odd, count(*) n, max(x) greatest from r group by x % 2
"""


def declare_graph(sandbox: Sandbox, edges: list[Any] | None = None, starts: tuple[int, ...] = (1,)) -> None:
    sandbox.source("edges", "a int, b int", EDGES if edges is None else edges)
    sandbox.source("starts", "x int", [(x,) for x in starts])


def refreshed(view: View) -> Report:
    """Refresh; what the test says of the rows, and the comparison with Spark's batch in its end, are the check."""
    with as_asked(view):
        return view.refresh()


def table(view: View, loop: str = "loop_1") -> Path:
    """The folder of a loop's table."""
    return Path(view.path).parent / loop


def test_a_cycle_goes_with_its_last_entry(sandbox: MemorySandbox) -> None:
    """1 → 2 → 3 → 1 hold each other up; what is left is what a start reaches."""
    declare_graph(sandbox)
    view = sandbox.view(reach)
    refreshed(view)
    sandbox.sql("delete from {starts} where true")
    sandbox.sql("insert into {starts} values (7)")
    report = checked(view)
    assert rows(view) == [(7,), (8,)]
    assert report.rounds["loop_1"]["insert"] and report.rounds["loop_1"]["retract"]


@night
def test_a_parallel_edge_changes_only_counts(sandbox: MemorySandbox) -> None:
    """One of two equal edges goes: the row keeps a derivation, so nothing moves and no round is made."""
    declare_graph(sandbox)
    view = sandbox.view(reach)
    refreshed(view)
    kept = [edge for edge in EDGES if edge != (1, 2)]
    sandbox.insert("edges", "a int, b int", [*kept, (1, 2)], "overwrite")
    report = refreshed(view)
    assert not report.rounds and report.paths["loop_1"] != "first load"
    sandbox.insert("edges", "a int, b int", kept, "overwrite")
    assert sum(map(len, checked(view).rounds["loop_1"].values())) > 0
    assert rows(view) == [(1,)]


def test_a_round_is_one_job(sandbox: MemorySandbox) -> None:
    """Protects from jobs for each row, level or side input, and from a frontier that is sent by a job of its own."""
    declare_graph(sandbox, [(0, n) for n in range(1, 100)], (0,))
    view, reports = sandbox.view(reach), list[Report]()
    view.refresh()
    for edges in ("(1, 500)", "(2, 600), (600, 601), (601, 602), (602, 603)"):
        sandbox.sql(f"insert into {{edges}} values {edges}")
        reports.append(view.refresh())
    few, many = (sum(map(len, report.rounds["loop_1"].values())) for report in reports)
    assert (few, many) == (1, 4)
    assert reports[1].jobs - reports[0].jobs <= many - few
    confirm(view)


@night
def test_distinct_of_the_step_leaves_the_start_as_it_is(sandbox: MemorySandbox) -> None:
    """DISTINCT in the term of UNION ALL removes no copies of the anchor's rows."""
    declare_graph(sandbox, [(1, 2), (1, 2), (2, 3)], (1, 1, 2))
    view = sandbox.view(DISTINCT_PATHS)
    checked(view)
    assert rows(view) == [(1,), (1,), (2,), (2,), (3,), (3,)]
    sandbox.sql("insert into {starts} values (1), (2)")
    checked(view)
    assert rows(view) == [(1,), (1,), (1,), (2,), (2,), (2,), (3,), (3,)]
    sandbox.sql("delete from {starts} where x = 1")
    checked(view)
    assert rows(view) == [(2,), (2,), (3,)]


@night
def test_many_levels_from_nothing(sandbox: MemorySandbox) -> None:
    """Candidates that the driver does not hold are put together after some levels: the last one is still read."""
    declare_graph(sandbox, [(n, n + 1) for n in range(12)], (0,))
    sandbox.tune(local_bytes=0, local_rows=0)
    view = sandbox.view(reach)
    checked(view)
    assert len(rows(view)) == 13


@night
def test_negation_and_aggregates_around_a_loop(sandbox: MemorySandbox) -> None:
    """Below, within the step beside it, and above; all inputs change at once."""
    declare_graph(sandbox)
    view = sandbox.view(BELOW_AND_ABOVE)
    checked_against(view, sandbox)
    sandbox.insert("starts", "x int", [(1,), (3,), (-4,)], "overwrite")
    sandbox.sql("delete from {edges} where b = 3 or b is null")
    sandbox.sql("insert into {edges} values (2, 5), (5, 9), (1, 4)")
    checked_against(view, sandbox)
    sandbox.insert("starts", "x int", [(-5,), (2,)], "overwrite")
    checked_against(view, sandbox)
    confirm(view)


def checked_against(view: View, sandbox: Sandbox) -> None:
    """Refresh and compare with the definition in plain Python."""
    refreshed(view)
    edges, starts = (
        [tuple(row) for row in sandbox.read(f"select * from {{{n}}}").collect()] for n in ("edges", "starts")
    )
    known = {x for (x,) in starts if x > 0}
    closed = {-x for (x,) in starts}
    while new := {b for a, b in edges if a in known and b is not None and b not in closed} - known:
        known |= new
    found = {(odd, len(group), max(group)) for odd in (0, 1) if (group := [x for x in known if x % 2 == odd])}
    assert set(rows(view)) == found


@night
def test_mutual_recursion(sandbox: MemorySandbox) -> None:
    """Two sets that define each other are one loop over a tagged union."""
    sandbox.source("edges", "src int, dst int", [(1, 2), (2, 3), (3, 4)])
    sandbox.source("starts", "node int", [(1,)])
    view = sandbox.view(parity)
    refreshed(view)
    assert rows(view) == [(1, "even"), (2, "odd"), (3, "even"), (4, "odd")]
    sandbox.sql("insert into {edges} values (3, 1)")
    refreshed(view)
    assert len(rows(view)) == 8
    sandbox.sql("delete from {edges} where src = 2")
    checked(view)
    assert rows(view) == [(1, "even"), (2, "odd")]


@night
def test_a_loop_above_a_loop(sandbox: MemorySandbox) -> None:
    """The second starts from the answer of the first, and reads it beside its step."""
    declare_graph(sandbox)

    def twice(edges: DataFrame, starts: DataFrame) -> DataFrame:
        first = fixpoint(starts, lambda r: r.join(edges, r.x == edges.a).select("b"))
        back = fixpoint(starts, lambda r: r.join(edges, r.x == edges.b).select("a"))
        return first.intersect(back)

    view = sandbox.view(twice)
    refreshed(view)
    assert rows(view) == [(1,), (2,), (3,)]
    sandbox.sql("delete from {edges} where a = 3 and b = 1")
    checked(view)
    assert rows(view) == [(1,)]


@pytest.mark.parametrize("limit", every(2, [5, 4]))
def test_the_level_limit_is_exact(sandbox: MemorySandbox, limit: int) -> None:
    """Five levels have rows: allowed at 5, refused at 4, when first loaded and when an edge makes the fifth."""
    query = PATHS.replace("r(x) as", f"r(x) max recursion level {limit} as")
    declare_graph(sandbox, [(1, 2), (2, 3), (3, 4)])
    view = sandbox.view(query)
    refreshed(view)
    sandbox.sql("insert into {edges} values (4, 5)")
    if limit == 5:
        refreshed(view)
        assert rows(view) == [(1,), (2,), (3,), (4,), (5,)]
        return
    before = rows(view)
    with pytest.raises(NotConvergedError, match="more than 4 levels"):
        view.refresh()
    assert rows(view) == before
    with pytest.raises(DeltafoldError, match="more than 4 levels"):
        sandbox.another(query).refresh()
    sandbox.sql("delete from {edges} where a = 2")
    checked(view)


@night
def test_a_cycle_that_comes_and_goes_in_one_refresh_ends(sandbox: MemorySandbox) -> None:
    """Of a bag: a → b goes, b and c begin to point at each other; the levels meet and cancel instead of rising."""
    declare_graph(sandbox, [(1, 2)])
    view = sandbox.view(PATHS)
    refreshed(view)
    sandbox.insert("edges", "a int, b int", [(2, 3), (3, 2)], "overwrite")
    checked(view)
    assert rows(view) == [(1,)]


@night
def test_a_large_part_of_a_loop_is_computed_from_nothing(sandbox: MemorySandbox) -> None:
    """What is published is the difference of the two answers, and the report says how."""
    declare_graph(sandbox, [(n, n + 1) for n in range(10)], (0,))
    sandbox.tune(restart_rows=3)
    view = sandbox.view(reach)
    refreshed(view)
    sandbox.sql("delete from {edges} where a = 3")
    assert checked(view).paths["loop_1"] == "computed from nothing"
    assert len(rows(view)) == 4


@night
def test_damage_is_found(sandbox: MemorySandbox) -> None:
    """Somebody changed the table of a loop: a count would fall below none."""
    declare_graph(sandbox)
    view = sandbox.view(reach)
    checked(view)
    sandbox.lake.written_by_others(sandbox.spark, str(table(view))).update({"__rows": "1L"}, "__rows > 1")  # type: ignore[attr-defined]
    sandbox.insert("edges", "a int, b int", [], "overwrite")
    with pytest.raises(StateError, match=r"rows that its journal does not know.* Rebuild the view"):
        view.refresh()


@night
def test_chunks_end_where_one_epoch_does(sandbox: MemorySandbox) -> None:
    """A first load and a change that come in parts: each is an epoch with rounds of its own."""
    declare_graph(sandbox, [(1, 2), (2, 3)])
    for edge in [(3, 4), (4, 1), (4, 9)]:
        sandbox.insert("edges", "a int, b int", [edge])
    view = sandbox.view(UNION)
    report = view.refresh(chunk=101)
    assert report.epoch > 2
    confirm(view)
    sandbox.sql("delete from {edges} where a = 4")
    sandbox.insert("edges", "a int, b int", [(2, 7), (7, 8)])
    view.refresh(chunk=101)
    confirm(view)
    assert rows(view) == [(1,), (2,), (3,), (4,), (7,), (8,)]


@night
def test_back_and_forward_again(sandbox: MemorySandbox) -> None:
    """A rollback and a rebuild take the loop's table with them."""
    declare_graph(sandbox)
    view, answers = sandbox.view(reach), dict[int, Any]()
    for epoch, change in enumerate(["", "delete from {edges} where a = 3", "insert into {edges} values (1, 7)"], 1):
        if change:
            sandbox.sql(change)
        refreshed(view)
        answers[epoch] = rows(view)
    view.rollback(2)
    assert rows(view) == answers[2]
    refreshed(view)
    assert rows(view) == answers[3]
    view.rebuild()
    confirm(view)
    sandbox.sql("delete from {edges} where a = 7")
    checked(view)


@night
def test_views_below_and_above(sandbox: MemorySandbox) -> None:
    """A loop over a view's answer, and a view over a loop's."""
    declare_graph(sandbox)
    low = sandbox.view("select a, b, count(*) n from edges group by a, b having count(*) < 3", "low")
    sandbox.warehouse.source("low", low)
    middle = sandbox.view(UNION.replace("join edges", "join low"), "middle")
    sandbox.warehouse.source("middle", middle)
    top = sandbox.view("select e.b, count(*) n from edges e left anti join middle m on e.b = m.x group by e.b", "top")
    refreshed(top)
    sandbox.sql("insert into {edges} values (1, 2), (1, 7)")
    refreshed(top)
    sandbox.sql("delete from {edges} where a = 3")
    checked(top)


@night
def test_large_inputs_on_delta(delta: DeltaSandbox) -> None:
    """Delta's MERGE of touched buckets, and a changed answer through a state above the loop."""
    declare_graph(delta)
    delta.tune(rewrite_files=0, bucket_bytes=1, buckets=3, local_bytes=0, local_rows=0)
    view = delta.view(lambda edges, starts: reach(edges, starts).groupBy((F.col("x") % 2).alias("odd")).count())
    refreshed(view)
    delta.sql("delete from {edges} where a = 3")
    delta.sql("insert into {edges} values (3, 7), (8, null)")
    assert checked(view).paths["loop_1"] == "merge"


@night
def test_all_candidates_of_a_key_are_in_one_bucket(sandbox: MemorySandbox) -> None:
    """Levels of one row are judged together, so the hash is of the row without its level."""
    declare_graph(sandbox)
    sandbox.tune(bucket_bytes=1, buckets=3)
    view = sandbox.view(reach)
    checked(view)
    stored = sandbox.lake.table(sandbox.spark, str(table(view)))
    found = stored.at(stored.version() or 0)
    name = next(column for column in found.columns if not column.startswith("__"))
    assert found.groupBy(name).agg(F.count_distinct("__bucket").alias("n")).where("n > 1").isEmpty()
