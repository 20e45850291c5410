"""Everything that cannot be maintained is refused before data is touched, with node, reason and way out."""

from __future__ import annotations

import pytest

from incremental.algebra.errors import RefusedError
from incremental.algebra.plan import (
    Column,
    GroupwiseOp,
    Item,
    Join,
    JoinKind,
    Plan,
    SourceRead,
    Undetermined,
    Unsupported,
)
from incremental.compiler.compile import compiled
from incremental.compiler.refuse import refusals
from incremental.compiler.strategy import Publish
from tests.compiler.plans import D, K, Q, T, V, call, grouped, opaque, project, where

MAP = Column("m", "map<int,int>")
PEERS: Undetermined = "peers at a frame's edge"


@pytest.mark.parametrize("kind", ["inner", "left", "single", "right", "full", "semi", "anti", "existence"])
def test_no_join_is_refused(kind: JoinKind) -> None:
    """Whichever side changes."""
    exists = Column("found", "boolean") if kind == "existence" else None
    assert not refusals(Join(T, D, kind, opaque("k = k2"), exists=exists))


@pytest.mark.parametrize(
    ("plan", "node"),
    [
        (GroupwiseOp(T, "window", (K,), T.columns, "last_value(v)", PEERS), "last_value(v)"),
        (GroupwiseOp(T, "limit", (), T.columns, "limit 3", "limit without order"), "limit 3"),
        (grouped(SourceRead("m", (("m", MAP),)), (MAP,)), "column m"),
        (Unsupported("UnionLoop", "UnionLoop", "recursion", "", (T,), T.columns), "UnionLoop"),
    ],
    ids=["peers", "limit without order", "map as a key", "foreign"],
)
def test_refused_nodes(plan: Plan, node: str) -> None:
    """No node without a rule gets through, wherever it stands."""
    first = refusals(where(plan, "k"))[0]
    assert first.node.startswith(node)
    assert first.because and first.instead


INTERVAL = Column("i", "interval day to second")


@pytest.mark.parametrize(
    ("type_", "says"),
    [
        ("interval year to month", "extract"),
        ("interval", "extract"),
        ("time(6)", "STRING"),
        ("string collate utf8_lcase", "UTF8_BINARY"),
        ("void", "cast it"),
        ("array<void>", "cast it"),
        ("map<string, array<interval day>>", "extract"),
        ("STRUCT<a: INT, `time: x`: INTERVAL DAY>", "extract"),
        ("geometry(4326)", "st_asbinary"),
    ],
)
@pytest.mark.parametrize("publish", ["auto", "table"])
def test_answers_that_no_table_can_hold(type_: str, says: str, publish: Publish) -> None:
    """Said before anything is written: the refresh would fail after it, and no policy would help."""
    answer = Column("span", type_)
    plan = project(grouped(T, (K,), call("n", "count", V)), K, Item(answer, opaque("n", type_)))
    with pytest.raises(RefusedError) as refused:
        compiled(plan, ((K, "k"), (answer, "Span")), "f", [], frozenset(), publish)
    (reason,) = refused.value.refusals
    assert reason.node in ("column Span", "a NULL without a type") and "recomputed or not" in reason.because
    assert says in reason.instead


@pytest.mark.parametrize(
    "type_",
    [
        "STRUCT<interval: INT, `interval day`: INT, time: TIMESTAMP_NTZ COMMENT 'a <time>, it\\'s `void'>",
        "map<string,array<decimal(38,18)>>",
        "variant",
        "binary",
    ],
)
def test_answers_that_a_table_can_hold(type_: str) -> None:
    """Names of fields are no types."""
    answer = Column("span", type_)
    plan = project(grouped(T, (K,), call("n", "count", V)), K, Item(answer, opaque("n", type_)))
    assert compiled(plan, ((K, "k"), (answer, "span")), "f", [], frozenset()).states


@pytest.mark.parametrize(
    ("plan", "node"),
    [
        (grouped(SourceRead("m", (("i", INTERVAL),)), (INTERVAL,)), "column i"),
        (grouped(SourceRead("m", (("i", INTERVAL),)), (), call("s", "max", INTERVAL, type_=INTERVAL.type)), "max(i)"),
        (grouped(SourceRead("m", (("i", INTERVAL),)), (), call("s", "sum", INTERVAL, type_=INTERVAL.type)), "sum(i)"),
        (grouped(SourceRead("m", (("i", INTERVAL),)), (), call("s", "maxby", INTERVAL, INTERVAL)), "maxby(i, i)"),
    ],
    ids=["key", "max", "sum", "order"],
)
def test_states_that_no_table_can_hold(plan: Plan, node: str) -> None:
    """What the state keeps counts, also where the answer shows something else of it."""
    (found,) = refusals(plan)
    assert (found.node, "interval day to second" in found.because) == (node, True)
    counted = grouped(SourceRead("m", (("i", INTERVAL),)), (), call("n", "count", INTERVAL))
    assert not refusals(counted)


def test_every_reason_is_given_at_once() -> None:
    """A user who mends one reason must not find the next one after it."""
    plan = Join(
        GroupwiseOp(T, "limit", (), T.columns, "LIMIT 3", PEERS),
        Unsupported("X", "X", "operator", "X", (D,), D.columns),
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
    assert not refusals(GroupwiseOp(T, "window", (K,), T.columns, "row_number()"))
