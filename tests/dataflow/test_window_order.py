"""Windows that look back: the rows of a partition before its first changed one are neither compared nor computed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.plan import GroupwiseOp
from deltafold.dataflow import window_order
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.dataflow.pruning import reach
from deltafold.dataflow.window_order import find_order
from tests.night import every
from tests.sandbox import MemorySandbox, Step, checked

pytestmark = pytest.mark.parametrize("reads", ["small"], indirect=True)  # the tests choose the tuning themselves

ANY_NUMBER, BEHIND = "any number", "rows behind"
READS_ROWS: Mapping[str, int | str] = {
    "sum(v) over (partition by k order by at rows between 6 preceding and current row)": 6,
    "max(s) over (partition by k order by at rows between 9 preceding and 2 preceding)": 9,
    "min(v) over (partition by k order by at rows current row)": 0,
    "avg(v) over (partition by k order by at range current row)": 0,
    "lag(v, 3) over (partition by k order by at)": 3,
    "lag(v, 2, v) over (partition by k order by at)": 2,
    "lead(v, -2) over (partition by k order by at)": 2,
    "lag(v) ignore nulls over (partition by k order by at)": ANY_NUMBER,
    "lead(v, -2) ignore nulls over (partition by k order by at)": ANY_NUMBER,
    "sum(v) over (partition by k order by at)": ANY_NUMBER,
    "count(v) over (partition by k order by at rows between unbounded preceding and 3 preceding)": ANY_NUMBER,
    "sum(v) over (partition by k order by at range between 5 preceding and current row)": ANY_NUMBER,
    "row_number() over (partition by k order by at)": ANY_NUMBER,
    "rank() over (partition by k order by at)": ANY_NUMBER,
    "dense_rank() over (partition by k order by at)": ANY_NUMBER,
    "nth_value(v, 2) over (partition by k order by at)": ANY_NUMBER,
    "first_value(v) over (partition by k order by at)": ANY_NUMBER,
    "lead(v) over (partition by k order by at)": BEHIND,
    "lag(v, -1) over (partition by k order by at)": BEHIND,
    "sum(v) over (partition by k order by at rows between 2 preceding and 1 following)": BEHIND,
    "sum(v) over (partition by k order by at rows between unbounded preceding and unbounded following)": BEHIND,
    "sum(v) over (partition by k order by at range between 5 preceding and 1 following)": BEHIND,
    "sum(v) over (partition by k order by at range between 5 preceding and 3 preceding)": BEHIND,
    "sum(v) over (partition by k)": BEHIND,
    "ntile(3) over (partition by k order by at)": BEHIND,
    "percent_rank() over (partition by k order by at)": BEHIND,
    "cume_dist() over (partition by k order by at)": BEHIND,
}
ORDERS = (
    "at", "at desc", "at nulls last", "at desc nulls first", "at, v desc", "at desc, s", "d, at", "v + 1, at", "k, at",
)  # fmt: skip
INPUTS = (
    "t",
    "(select t.k, t.at, t.d, t.v, u.s from t left join u on t.s = u.s)",
    "(select t.k, t.at, t.d, u.v, t.s from t join u on t.v = u.v)",
)


def windows_of(lowered: mock.MagicMock) -> list[GroupwiseOp]:
    """Return the operators that were computed over rows."""
    return [call.args[1] for call in lowered.call_args_list]


@pytest.mark.parametrize("function", every(4, READS_ROWS))
def test_rows_that_are_read(sandbox: MemorySandbox, function: str) -> None:
    """Protects from a function that reads behind its row, or further back, than it is taken for."""
    sandbox.source("t", "k int, at int, v int, s string", [(i % 2, i, i, f"s{i}") for i in range(9)])
    lowered = mock.patch.object(Lowering, "key_local", autospec=True, side_effect=Lowering.key_local)
    with lowered as spy:
        checked(sandbox.view(f"select k, at, v, {function} w from t"))
    orders = {find_order(node) for node in windows_of(spy)}
    expected = READS_ROWS[function]
    if expected == BEHIND:
        assert None in orders
    else:
        rows = {order and (ANY_NUMBER if order.rows is None else order.rows) for order in orders}
        assert rows - {None} == {expected}  # a window that gives all peers the value of one has no order


def random_rows(rng: random.Random, number: int) -> list[tuple[object, ...]]:
    """Rows of few keys, with ties and NULLs in the order."""
    return [
        (
            rng.choice([0, 1, 2, None]),
            rng.choice([None, *range(12)]),
            rng.choice([0.0, -0.0, 1.5, float("nan"), None, 7.25]),
            rng.choice([None, *range(8)]),
            f"s{rng.randrange(6)}",
        )
        for _ in range(number)
    ]


def random_steps(rng: random.Random) -> list[Step]:
    """Changes at the end of the order, at its start, and anywhere."""
    at = rng.randrange(12)
    return rng.sample(
        [
            ("insert", "t", random_rows(rng, 3)),
            ("insert", "t", [(k, 11 + rng.randrange(3), 9.0, rng.randrange(8), "new") for k in (0, 1)]),
            ("delete", "t", f"at >= {at}"),
            ("delete", "t", f"k = 1 and at = {at}"),
            ("update", "t", {"v": "v + 1"}, f"at = {at}"),
            ("update", "t", {"at": f"at + {rng.choice([-3, 4])}"}, f"k = 2 and at > {at}"),
            ("update", "t", {"d": "d + 1"}, f"at = {at}"),
            ("delete", "u", f"v = {rng.randrange(8)}"),
            ("insert", "u", [(rng.randrange(8), f"s{rng.randrange(6)}")]),
            ("delete", "t", f"at is null and k = {rng.randrange(3)}"),
        ],
        2,
    )


@pytest.mark.parametrize("seed", every(12, range(60)))
def test_random_windows(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Protects from rows that a change reaches and that are not compared: ties, NULLs, both directions, all frames."""
    rng = random.Random(seed)
    monkeypatch.setattr(window_order, "LONG_FRAME", rng.choice([0, 4]))
    sandbox.source("t", "k int, at int, d double, v int, s string", random_rows(rng, 40))
    sandbox.source("u", "v int, s string", [(i % 8, f"s{i % 6}") for i in range(9)])
    sandbox.tune(prune_above_bytes=0, **rng.choice([{}, {"broadcast_rows": 0, "broadcast_bytes": 0}]))
    looking_back = [text for text, rows in READS_ROWS.items() if rows != BEHIND]
    chosen = rng.sample(looking_back, 2) + ([rng.choice([*READS_ROWS])] if rng.random() < 0.3 else [])
    order = rng.choice(ORDERS)
    functions = [text if "range between" in text else text.replace("by at", f"by {order}") for text in chosen]
    shown = rng.choice(["k, at, d, v, s", "k, v, s", "at, k", "v", "k as n, at as m, d, at as o"])
    named = ", ".join(f"{text} w{i}" for i, text in enumerate(functions))
    query = f"select {shown}, {named} from {rng.choice(INPUTS)}"
    if rng.random() < 0.3:
        query = f"select * from ({query}) where length(string(w0)) > 1 or w1 is null"
    view = sandbox.view(query)
    checked(view)
    for _ in range(3):
        sandbox.do(*random_steps(rng))
        checked(view)


def test_what_a_new_day_computes(sandbox: MemorySandbox, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    """Protects from windows over whole partitions, and their comparison, where a day was added at their end."""
    monkeypatch.setattr(window_order, "LONG_FRAME", 1)
    days, keys, before = 50, 4, 6
    sandbox.source("t", "k int, at int, v int", [(k, at, at * k) for k in range(keys) for at in range(days)])
    moving = f"sum(v) over (partition by k order by at rows between {before} preceding and current row)"
    view = sandbox.view(f"select k, at, {moving} w from t")
    checked(view)
    sandbox.do(("insert", "t", [(k, days, 1) for k in range(keys - 1)]))
    computed, compared = list[int](), list[int]()
    local, tail = Lowering.key_local, reach.KeyReach.tail

    def count(lowering: Lowering, relation: Relation) -> int:
        return lowering.frame(relation, []).count()

    def key_local(lowering: Lowering, node: GroupwiseOp, child: Relation) -> Relation:
        computed.append(count(lowering, child))
        return local(lowering, node, child)

    def rest(one: reach.KeyReach, side: Relation) -> Relation:
        compared.append(count(one.lowering, tail(one, side)))
        return tail(one, side)

    with (
        mock.patch.object(Lowering, "key_local", key_local),
        mock.patch.object(reach.KeyReach, "tail", rest),
    ):
        view.refresh()
    checked(view)
    assert computed == [(keys - 1) * (before + 1), (keys - 1) * before]
    assert compared == [keys - 1, 0]
