"""Everything that cannot be maintained is refused before data is touched, with node, reason and way out."""

from __future__ import annotations

import pytest

from incremental.algebra.errors import RefusedError
from incremental.algebra.plan import Column, Foreign, Join, JoinKind, KeyLocal, Plan, Source
from incremental.compiler.compile import compiled
from incremental.compiler.refuse import refusals
from tests.compiler.plans import D, K, Q, T, V, call, grouped, opaque, where

MAP = Column("m", "map<int,int>")
PEERS = "among peers of its order any may be the last"


@pytest.mark.parametrize("kind", ["inner", "left", "single", "right", "full", "semi", "anti", "existence"])
def test_no_join_is_refused(kind: JoinKind) -> None:
    """Whichever side changes."""
    exists = Column("found", "boolean") if kind == "existence" else None
    assert not refusals(Join(T, D, kind, opaque("k = k2"), exists=exists))


@pytest.mark.parametrize(
    ("plan", "node"),
    [
        (KeyLocal(T, "window", (K,), T.columns, "last_value(v)", PEERS), "last_value(v)"),
        (KeyLocal(T, "limit", (), T.columns, "limit 3", "without an order nobody knows"), "limit 3"),
        (grouped(Source("m", (("m", MAP),)), (MAP,)), "column m"),
        (Foreign("UnionLoop", "UnionLoop", "no rule", "rewrite it", (T,), T.columns), "UnionLoop"),
    ],
    ids=["peers", "limit without order", "map as a key", "foreign"],
)
def test_refused_nodes(plan: Plan, node: str) -> None:
    """No node without a rule gets through, wherever it stands."""
    first = refusals(where(plan, "k"))[0]
    assert first.node.startswith(node)
    assert first.because and first.instead


def test_every_reason_is_given_at_once() -> None:
    """A user who mends one reason must not find the next one after it."""
    plan = Join(
        KeyLocal(T, "limit", (), T.columns, "LIMIT 3", PEERS),
        Foreign("X", "X", "no", "y", (D,), D.columns),
        "full",
        None,
    )
    with pytest.raises(RefusedError) as refused:
        compiled(plan, ((K, "k"),), "f", [("rand()", "it gives another value each time", "a hash")], frozenset())
    error = refused.value
    assert [r.node for r in error.refusals] == ["rand()", "LIMIT 3", "X"]
    assert (error.node, error.because, error.instead) == ("rand()", "it gives another value each time", "a hash")
    assert len(str(error).splitlines()) == 3


def test_what_is_maintained_is_not_refused() -> None:
    """Ordered limits, windows, aggregates with and without a merge."""
    inner = grouped(where(T, "v > 0"), (K, Q), call("s", "sum", V), call("n", "percentile", V))
    assert not refusals(grouped(inner, (K,), call("m", "max", Column("s", "bigint"))))
    assert not refusals(KeyLocal(T, "window", (K,), T.columns, "row_number()"))
