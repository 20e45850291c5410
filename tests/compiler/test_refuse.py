"""Everything that cannot be maintained is refused before data is touched, with node, reason and way out."""

from __future__ import annotations

import pytest

from incremental.algebra.errors import RefusedError
from incremental.algebra.plan import Column, Foreign, Join, JoinKind, KeyLocal, Plan
from incremental.compiler.compile import compiled
from incremental.compiler.refuse import RECOMPUTE, refusals
from tests.compiler.plans import NAME, D, K, Q, T, V, call, grouped, opaque, where

NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("kind", "invariant", "refused"),
    [
        (kind, invariant, kind not in allowed)
        for invariant, allowed in {
            (): (),
            ("d",): ("inner", "left", "semi", "anti", "existence"),
            ("t",): ("inner", "right"),
            ("t", "d"): ("inner", "left", "right", "full", "semi", "anti", "existence"),
        }.items()
        for kind in ("inner", "left", "right", "full", "semi", "anti", "existence")
    ],
)
def test_joins_are_linear_in_the_side_whose_rows_are_never_tested(
    kind: JoinKind, invariant: tuple[str, ...], refused: bool
) -> None:
    """An outer, semi or anti join is linear in its preserved side only, and only if the other side stands still."""
    exists = Column("found", "boolean") if kind == "existence" else None
    join = Join(T, D, kind, opaque("k = k2"), exists=exists)
    found = refusals(join, frozenset(invariant))
    assert bool(found) == refused
    if refused:
        assert found[0].node == f"{kind} join on k = k2"
        assert "can change" in found[0].because and "invariant" in found[0].instead and RECOMPUTE in found[0].instead


def test_join_of_sides_without_sources_is_no_join_of_changes() -> None:
    """A side of constants never changes."""
    from incremental.algebra.plan import Values

    assert not refusals(Join(T, Values((NAME,), "VALUES"), "left", None), NONE)


@pytest.mark.parametrize(
    ("plan", "node"),
    [
        (KeyLocal(T, "window", (K,), T.columns, "row_number() OVER (PARTITION BY k)"), "window row_number()"),
        (KeyLocal(T, "limit", (), T.columns, "GlobalLimit 3"), "GlobalLimit 3"),
        (grouped(T, (K,), call("p", "percentile", V)), "percentile(v)"),
        (grouped(T, (K,), call("c", "collectlist", V), call("s", "sum", Column("q", "interval day"))), "collectlist"),
        (Foreign("UnionLoop", "UnionLoop", "no rule", "rewrite it", (T,), T.columns), "UnionLoop"),
    ],
    ids=["window", "limit", "percentile", "collect_list", "foreign"],
)  # fmt: skip
def test_refused_nodes(plan: Plan, node: str) -> None:
    """No node without a rule gets through, wherever it stands."""
    first = refusals(where(plan, "k"), NONE)[0]
    assert first.node.startswith(node)
    assert first.because and RECOMPUTE in first.instead


def test_every_reason_is_given_at_once() -> None:
    """A user who mends one reason must not find the next one after it."""
    plan = Join(KeyLocal(T, "limit", (), T.columns, "LIMIT 3"), D, "full", None)
    with pytest.raises(RefusedError) as refused:
        compiled(plan, ((K, "k"),), "f", [("rand()", "it gives another value each time", "a hash")], NONE)
    error = refused.value
    assert [r.node for r in error.refusals] == ["rand()", "LIMIT 3", "full join"]
    assert (error.node, error.because, error.instead) == ("rand()", "it gives another value each time", "a hash")
    assert len(str(error).splitlines()) == 3


def test_what_this_release_maintains_is_not_refused() -> None:
    """The slice itself."""
    inner = grouped(where(T, "v > 0"), (K, Q), call("s", "sum", V), call("n", "count", V, distinct=True))
    assert not refusals(grouped(inner, (K,), call("m", "max", Column("s", "bigint"))), NONE)
