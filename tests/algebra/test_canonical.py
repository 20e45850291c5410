"""The canonical text behind fingerprints and digests is the one that released versions wrote.

canonical.json was written by the code of 2026-11-23, from the dataclasses' own `repr`, and by that of 2026-11-24 for
loops ("recursion" keeps the text of the refused query that it was before). It is never regenerated: a difference means
that every warehouse would be told that its queries changed.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deltafold.algebra.canonical import digest_text, fingerprint_text
from deltafold.algebra.loops import LoopState, SideInput
from deltafold.algebra.monoids.family import infer_monoid
from deltafold.algebra.monoids.kinds import store_answer
from deltafold.algebra.plan import (
    Aggregate,
    Call,
    Column,
    Expand,
    Filter,
    Generate,
    Given,
    GroupwiseOp,
    Item,
    Join,
    Loop,
    Opaque,
    Plan,
    Project,
    Reference,
    SourceRead,
    Sql,
    StateRead,
    Tolerance,
    Union,
    Unsupported,
    UnsupportedReason,
    Values,
)

RELEASED = json.loads(Path(__file__).with_name("canonical.json").read_text())
K, V, N, K2 = Column("k", "int"), Column("v", "double"), Column("n", "bigint"), Column("k2", "int")
T = SourceRead("t", (("K", K), ("V", V)))


def opaque(text: str, type_: str, *columns: str) -> Opaque:
    return Opaque(text, type_, frozenset(columns), "handle")


def unsupported(reason: UnsupportedReason, kind: str, subject: str = "", text: str = "", detail: str = "") -> Plan:
    return Unsupported(
        kind=kind, text=text or kind, reason=reason, subject=subject, children=(T,), columns=(K,), detail=detail
    )


COUNT = Call(
    column=N,
    function="count",
    arguments=(V,),
    text="count(v)",
    buffers=(Column("b", "bigint"),),
    answer=opaque("b", "bigint", "b"),
    distinct=True,
    mode="legacy",
    handle="handle",
)
EXPLODED = Generate(T, opaque("explode(k)", "int", "k"), True, (Column("e", "int"),))
MATCH = opaque("(k = k2)", "boolean", "k", "k2")
WINDOWED = (*T.columns, Column("f", "double"))
EXPANDED = (Column("k_2", "int"), Column("v_2", "double"))
ONE, GIVEN = Project(T, (Item(K, Reference(K)),)), Given("loop_1", (K2,))
PLANS: dict[str, Plan] = {
    "aggregate": Aggregate(T, (K,), (COUNT,)),
    "expanded": Expand(T, ((Reference(K), opaque("NULL", "double")),), EXPANDED),
    "limited": GroupwiseOp(
        child=EXPLODED,
        kind="limit",
        keys=(),
        columns=T.columns,
        text="limit 3",
        undetermined="limit without order",
        handle=("node",),
    ),
    "windowed": GroupwiseOp(
        child=T,
        kind="window",
        keys=(K,),
        columns=WINDOWED,
        text="first(v)",
        undetermined="peers at a frame's edge",
        handle=("node",),
    ),
    "grouped": GroupwiseOp(child=T, kind="group function", keys=(K,), columns=T.columns, text="f(v)"),
    "joined": Join(
        left=Filter(T, opaque("(k > 1)", "boolean", "k")),
        right=Project(T, (Item(K2, Reference(K)),)),
        kind="inner",
        condition=MATCH,
        keys=((Reference(K), Reference(K2), False),),
        exists=None,
        parts=(MATCH,),
    ),
    "found": Join(
        left=T,
        right=Values((Column("one", "int"),), "values (one)", "leaf"),
        kind="existence",
        condition=None,
        exists=Column("found", "boolean"),
    ),
    "union": Union((T, T)),
    "state": StateRead("state_1", (K,)),
    "operator": unsupported("operator", "Sample", "Sample"),
    "subquery": unsupported("subquery", "Window", "Window", detail="x"),
    "undeclared source": unsupported("undeclared source", "LogicalRDD"),
    "join type": unsupported("join type", "Join", "LEFT NEW"),
    "subquery in a limit": unsupported("subquery in a limit", "GlobalLimit"),
    "recursion": Loop(
        name="loop_1", kind="levels", init=ONE, step=GIVEN, columns=(K,), limit=100, detail="UnionLoop #0"
    ),
    "fixpoint": Loop(
        name="loop_1",
        kind="best",
        init=T,
        step=Given("loop_1", (K2, V)),
        columns=T.columns,
        limit=1000,
        keys=(K,),
        keep="least",
    ),
    "iteration": Loop(
        name="loop_1",
        kind="converged",
        init=T,
        step=Given("loop_1", (K2, V)),
        columns=T.columns,
        limit=100,
        keys=(K,),
        tolerance=Tolerance("mean", error=1e-4, contraction=0.85),
    ),
}
# by function and types of arguments, with the number of buffers of Spark's aggregate
BUFFERS = {
    "count(int)": 1, "sum(int)": 1, "sum(bigint)": 1, "sum(decimal(12,2))": 2, "sum(double)": 1, "average(double)": 2,
    "average(int)": 2, "min(int)": 1, "max(string)": 1, "minby(int, int)": 2, "maxby(int, int)": 2,
    "bitandagg(int)": 1, "bitoragg(int)": 1, "bitxoragg(int)": 1, "stddevsamp(int)": 3, "stddevsamp(double)": 3,
    "covsample(double, double)": 4, "corr(double, double)": 6,
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_fingerprint_text(name: str) -> None:
    """Protects a view from a rebuild because a class, a field or a sentence was renamed."""
    assert fingerprint_text((PLANS[name],)) == RELEASED["plans"][name]


def test_every_kind_of_node_is_pinned() -> None:
    """A new kind of node needs a canonical text before its first release."""
    assert {type(plan) for plan in PLANS.values()} | {SourceRead, Filter, Project, Values, Generate, Given} == {
        *Plan.__args__
    }
    assert PLANS.keys() == RELEASED["plans"].keys()


def test_digest_text() -> None:
    """A digest follows the content of the states below it, not their names."""
    written_by_a_pass = Expand(T, ((Reference(K), Sql("NULL", "double")),), EXPANDED)
    assert digest_text((written_by_a_pass,), {}) == RELEASED["digest of expanded"]
    assert digest_text((PLANS["state"],), {"state_1": "abc"}) == RELEASED["digest of state"]
    side = SideInput(Given("loop_1_side_1", (V,)), T)
    loop = LoopState(name="", kind="set", init=ONE, step=GIVEN, sides=(side,), columns=(K,), keys=(), limit=1000)
    assert digest_text((loop,), {}) == RELEASED["digest of loop"]


@pytest.mark.parametrize("case", BUFFERS)
def test_accumulators(case: str) -> None:
    """Protects the reuse of states by a changed query."""
    function, _, types = case.removesuffix(")").partition("(")
    text = digest_text(infer_monoid(function, tuple(types.split(", ")), "ansi", BUFFERS[case]), {})
    line = f"{json.dumps(case)}: {json.dumps(text)}"
    assert text == RELEASED["accumulators"].get(case), f"if this is a new one, add to canonical.json: {line}"


def test_recomputed_answers() -> None:
    assert digest_text(store_answer("array<int>"), {}) == RELEASED["accumulators"]["recomputed"]
