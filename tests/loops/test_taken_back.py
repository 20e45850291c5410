"""Epochs that fail by themselves after they have written a part of their tables are taken back."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.errors import DeltafoldWarning, EvaluationError, NotConvergedError, StateError
from deltafold.algebra.program import LoopState
from deltafold.refresh.stages.recursion import LoopResult, LoopStage
from deltafold.view import View
from tests.crash.points import Killed, watched
from tests.night import night
from tests.sandbox import DeltaSandbox, MemorySandbox, Sandbox, checked, confirm, rows

pytestmark = pytest.mark.usefixtures("files_in_order")

TWO_LOOPS = """with recursive
    a(n) as (select dst from t where src = 1 union select t.dst from a join t on a.n = t.src),
    b(n) max recursion level 3 as (select dst from t where src = 1 union select t.dst from b join t on b.n = t.src)
    select n, 'a' name from a union all select n, 'b' from b"""
"""The first loop is written before the second fails."""
HAVING = "select k, count(*) c from t group by k having 10 / sum(b) > -100"
"""The state is written before the answer is computed."""


def put(sandbox: Sandbox, columns: str, *files: Sequence[tuple[int, ...]]) -> None:
    """Write some rows to each file."""
    for file in files:
        sandbox.write("t", sandbox.spark.createDataFrame(list(file), columns).coalesce(1))


def put_edges(sandbox: Sandbox, *files: Sequence[tuple[int, ...]]) -> None:
    put(sandbox, "src int, dst int", *files)


def with_one_above(sandbox: Sandbox) -> tuple[View, View]:
    """Return the view of two loops, and one that reads it."""
    view = sandbox.view(TWO_LOOPS)
    sandbox.warehouse.source("v", view)
    return view, sandbox.view("select name, count(*) c from v group by name", "above")


def path(first: int, last: int) -> list[tuple[int, ...]]:
    return [(node, node + 1) for node in range(first, last)]


def check_back_and_on(sandbox: Sandbox) -> None:
    """A refresh that fails in its middle, twice; then one after a correction; then the way back."""
    put_edges(sandbox, [(1, 2)])
    sandbox.declare("t")
    view, above = with_one_above(sandbox)
    checked(above)
    before = rows(view)
    put_edges(sandbox, path(2, 7))
    for epoch in (2, 3):
        with pytest.raises(NotConvergedError, match=r"view v: recursion loop_2: .* MAX RECURSION LEVEL\)\.$"):
            (view if epoch == 2 else above).refresh()
        status, last = view.status(), view.history()[-1]
        assert (status.unfinished, status.epoch, last.verdict, last.epoch) == (None, epoch, "taken back", epoch)
        assert len(view.history()) == 2, "of several in a row the last one stays"
        assert rows(view) == before and view.verify().ok
    assert "epoch 3 taken back, as it failed: the view is as before it" in view.history()[-1].sentence
    sandbox.sql("delete from {t} where src = 4")
    report = checked(above)
    assert report.below[0].epoch == 4 and report.below[0].verdict == "applied"
    confirm(view)
    assert rows(view) == [(n, name) for n in (2, 3, 4) for name in "ab"]
    sandbox.sql("delete from {t} where src = 3")
    checked(above)
    view.rollback(3)
    assert rows(view) == before
    checked(above)
    confirm(view)


def test_a_loop_that_fails_after_another(sandbox: MemorySandbox) -> None:
    """The view could only be rebuilt: each refresh repeated the epoch, whatever came later."""
    check_back_and_on(sandbox)


@night
def test_a_loop_that_fails_after_another_on_delta(delta: DeltaSandbox) -> None:
    check_back_and_on(delta)


@night
def test_a_first_load_that_fails_in_its_middle(sandbox: MemorySandbox) -> None:
    """There is no epoch before it: the next refresh begins another generation."""
    put_edges(sandbox, path(1, 9))
    sandbox.declare("t")
    view, above = with_one_above(sandbox)
    with pytest.raises(NotConvergedError):
        view.refresh()
    with pytest.raises(NotConvergedError):
        above.refresh()
    sandbox.sql("delete from {t} where src = 4")
    assert checked(above).below[0].epoch == 1
    confirm(view)
    put_edges(sandbox, [(2, 9)])
    checked(view)
    other = sandbox.view(TWO_LOOPS, "other")  # whose query is mended, not the source
    put_edges(sandbox, path(4, 9))
    with pytest.raises(NotConvergedError):
        other.refresh()
    checked(sandbox.view(TWO_LOOPS.replace("level 3", "level 9"), "other"))


@night
def test_a_rebuild_that_fails_in_its_middle(delta: DeltaSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The generation before goes on, also where the rebuild was killed first."""
    put_edges(delta, [(1, 2)])
    delta.declare("t")
    view = delta.view(TWO_LOOPS)
    checked(view)
    put_edges(delta, path(2, 9))
    for killed in (False, True):
        if killed:
            with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
                patched.setattr(LoopStage, "run", lambda *_: 1 / 0)
                view.rebuild()
        with warnings.catch_warnings(), pytest.raises(NotConvergedError):
            warnings.simplefilter("ignore", DeltafoldWarning)
            (view.refresh if killed else view.rebuild)()
        status = view.status()
        assert (status.unfinished, status.generation) == (None, 1) and rows(view) == [(2, "a"), (2, "b")]
        view.maintain()
    delta.sql("delete from {t} where src = 4")
    assert (checked(view).epoch, view.status().generation) == (3, 1)
    assert view.rebuild().verdict == "rebuilt"
    confirm(view)


@pytest.mark.filterwarnings("ignore::deltafold.algebra.errors.DeltafoldWarning")
def test_chunks_that_fail_in_their_middle(sandbox: MemorySandbox) -> None:
    """A first load in chunks could never be finished."""
    put(sandbox, "k int, b int", [(2, 1)], [(1, 1)], [(1, -1)], [(1, 5)], [(3, 1)])
    sandbox.declare("t")
    view = sandbox.view(HAVING)
    for step in (view.refresh, view.rebuild):
        with pytest.warns(DeltafoldWarning, match="chunk . of 5 fails by itself"):
            step(chunk=1)
        confirm(view)
    put(sandbox, "k int, b int", [(4, 1)], [(4, -1)], [(4, 2)], [(1, 1)])
    report = checked(view, chunk=1)
    assert report.versions["t"] == (4, 8), report.sentence
    put(sandbox, "k int, b int", [(5, 1)], [(5, -1)])
    with pytest.warns(DeltafoldWarning), pytest.raises(EvaluationError, match="Division by zero"):
        view.refresh(chunk=1)
    put(sandbox, "k int, b int", [(5, 1)], [(2, 1)])
    checked(view)


@night
def test_a_chunk_in_which_a_python_function_fails(sandbox: MemorySandbox) -> None:
    quotient = F.udf(lambda a, b: a / b, "double")
    put(sandbox, "k int, b int", [(1, 1)])
    sandbox.declare("t")
    view = sandbox.view(lambda t: t.groupBy("k").agg(quotient(F.count("*"), F.sum("b")).alias("q")))
    checked(view)
    put(sandbox, "k int, b int", [(1, -1)], [(1, -1)])
    with pytest.warns(DeltafoldWarning, match="chunk 1 of 2 fails by itself"):
        checked(view, chunk=1)


@night
def test_an_error_that_may_pass_is_not_taken_back(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch is finished by the next refresh; the error says how to leave it."""
    put_edges(sandbox, path(1, 3))
    sandbox.declare("t")
    view = sandbox.view(TWO_LOOPS)
    checked(view)
    put_edges(sandbox, [(1, 7)])

    run = LoopStage.run

    def fail_in_second(stage: LoopStage, loop: LoopState) -> LoopResult:
        if loop.name == "loop_2":
            raise StateError("the disk is full.")
        return run(stage, loop)

    with monkeypatch.context() as patched:
        patched.setattr(LoopStage, "run", fail_in_second)
        with pytest.raises(
            StateError, match=r"Remove the cause and .* correct the source and roll the view back to epoch 1"
        ):
            view.refresh()
    assert view.status().unfinished == 2
    assert checked(view).verdict == "resumed"


def refresh_at_random(sandbox: Sandbox, seed: int, refreshes: int) -> Counter[str]:
    """Change numbers at random, sums of zero among them, with chunks of a file and without; count what became of it.

    A refresh fails where a group's sum is zero, and nowhere else, whatever failed before.
    """
    chance, seen, known = random.Random(seed), Counter[str](), list[tuple[int, ...]]([(0, 1)])
    put(sandbox, "k int, b int", known)
    sandbox.declare("t")
    view = sandbox.view(HAVING)
    for _ in range(refreshes):
        for _ in range(chance.randint(1, 4)):
            if chance.random() < 0.8:
                keys = [chance.randint(0, 3) for _ in range(chance.randint(1, 3))]
                file = [(key, chance.choice((-2, -1, 1, 1, 2, 3))) for key in keys]
                put(sandbox, "k int, b int", file)
                known += file
            else:
                gone = chance.randint(0, 3)
                sandbox.sql(f"delete from {{t}} where k = {gone}")
                known = [row for row in known if row[0] != gone]
        sums = Counter[int]()
        for k, b in known:
            sums[k] += b
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", DeltafoldWarning)
            try:
                view.refresh(chunk=1 if chance.random() < 0.7 else None)
            except EvaluationError:
                assert not all(sums.values()), f"seed {seed}"
                seen["failed"] += 1
                continue
        assert all(sums.values()), f"seed {seed}"
        assert Counter(rows(view)) == Counter(Counter(k for k, _ in known).items()), f"seed {seed}"
        seen["warned" if any(issubclass(each.category, DeltafoldWarning) for each in warned) else "passed"] += 1
    return seen


@night
def test_sums_of_zero(sandbox: MemorySandbox) -> None:
    assert len(refresh_at_random(sandbox, 1, 10)) == 3


@night
@pytest.mark.timeout(3600)
def test_many_sums_of_zero(spark: SparkSession, tmp_path: Path) -> None:
    seen = Counter[str]()
    for seed in range(16):
        kind = MemorySandbox if seed < 12 else DeltaSandbox
        seen += refresh_at_random(kind(spark, tmp_path / str(seed)), seed, 12)
    assert min(seen["failed"], seen["warned"]) > 10, seen


def kill_failing(sandbox: Sandbox, at: int) -> bool:
    """Kill refreshes that fail in their middle at one of their writes; return whether they came there."""
    put_edges(sandbox, [(1, 2)])
    sandbox.declare("t")
    checked(sandbox.view(TWO_LOOPS))
    sandbox.view(TWO_LOOPS).rebucket(2)
    put_edges(sandbox, path(2, 9))

    def refresh(view: View) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeltafoldWarning)
            view.refresh()

    reached = True
    with watched(at):
        try:
            refresh(sandbox.view(TWO_LOOPS))
        except Killed:
            pass
        except NotConvergedError:
            reached = False
    sandbox.warehouse = sandbox.opened(tuning=sandbox.warehouse.tuning)
    sandbox.declare("t")
    view = sandbox.view(TWO_LOOPS)
    with pytest.raises(NotConvergedError):
        refresh(view)
    assert rows(view) == [(2, "a"), (2, "b")] and view.verify().ok
    sandbox.sql("delete from {t} where src = 4")
    refresh(view)
    confirm(view)
    put_edges(sandbox, [(2, 9)])
    checked(view)
    return reached


@night
def test_a_kill_while_an_epoch_is_taken_back(sandbox: MemorySandbox) -> None:
    assert kill_failing(sandbox, 9)


@night
@pytest.mark.timeout(3600)
def test_kills_at_each_write_while_an_epoch_is_taken_back(spark: SparkSession, tmp_path: Path) -> None:
    for kind in (MemorySandbox, DeltaSandbox):
        at = 0
        while kill_failing(kind(spark, tmp_path / kind.__name__ / str(at)), at):
            at += 1
        assert at > 9
