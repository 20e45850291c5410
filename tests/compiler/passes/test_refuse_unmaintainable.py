"""Whatever cannot be maintained is refused before data is touched, with node, reason and way out."""

from __future__ import annotations

import pytest

from deltafold.algebra.errors import Refusal, RefusedError
from deltafold.algebra.plan import (
    Column,
    GroupwiseOp,
    Item,
    Join,
    JoinKind,
    Plan,
    SourceRead,
    Undetermined,
    Union,
    Unsupported,
)
from deltafold.compiler.compile import compile_query
from deltafold.compiler.draft import Publish
from deltafold.compiler.passes.refuse_unmaintainable import find_refusals
from tests.compiler.plans import D, K, Q, T, V, call, draft, grouped, opaque, project, where

MAP = Column("m", "map<int,int>")
PEERS: Undetermined = "peers at a frame's edge"


@pytest.mark.parametrize("kind", ["inner", "left", "single", "right", "full", "semi", "anti", "existence"])
def test_no_join_is_refused(kind: JoinKind) -> None:
    """Whichever side changes."""
    exists = Column("found", "boolean") if kind == "existence" else None
    assert not find_refusals(Join(left=T, right=D, kind=kind, condition=opaque("k = k2"), exists=exists))


@pytest.mark.parametrize(
    ("plan", "node"),
    [
        (
            GroupwiseOp(child=T, kind="window", keys=(K,), columns=T.columns, text="last_value(v)", undetermined=PEERS),
            "last_value(v)",
        ),
        (
            GroupwiseOp(
                child=T, kind="limit", keys=(), columns=T.columns, text="limit 3", undetermined="limit without order"
            ),
            "limit 3",
        ),
        (grouped(SourceRead("m", (("m", MAP),)), (MAP,)), "column m"),
        (
            Unsupported(
                kind="Sample", text="Sample", reason="operator", subject="Sample", children=(T,), columns=T.columns
            ),
            "Sample",
        ),
    ],
    ids=["peers", "limit without order", "map as a key", "unsupported"],
)
def test_refused_nodes(plan: Plan, node: str) -> None:
    """A node without a rule is found anywhere in the plan."""
    first = find_refusals(Union((plan, plan)))[0]
    assert first.node.startswith(node)
    assert first.because and first.instead


INTERVAL = Column("i", "interval day to second")


@pytest.mark.parametrize(
    ("type_", "remedy"),
    [
        ("interval year to month", "extract"),
        ("interval", "extract"),
        ("time(6)", "STRING"),
        ("string collate utf8_lcase", "cast it to STRING"),
        ("void", "cast it"),
        ("array<void>", "cast it"),
        ("map<string, array<interval day>>", "extract"),
        ("STRUCT<a: INT, `time: x`: INTERVAL DAY>", "extract"),
        ("geometry(4326)", "st_asbinary"),
    ],
)
@pytest.mark.parametrize("publish", ["auto", "table"])
def test_answers_that_no_table_can_store(type_: str, remedy: str, publish: Publish) -> None:
    """Refused before anything is written: the refresh would fail later, and no policy would help."""
    answer = Column("span", type_)
    plan = project(grouped(T, (K,), call("n", "count", V)), K, Item(answer, opaque("n", type_)))
    with pytest.raises(RefusedError) as refused:
        compile_query(draft(plan, K, (answer, "Span"), publish=publish))
    (reason,) = refused.value.refusals
    assert reason.node in ("column Span", "an untyped NULL") and "even if it is recomputed" in reason.because
    assert remedy in reason.instead


@pytest.mark.parametrize(
    "type_",
    [
        "STRUCT<interval: INT, `interval day`: INT, time: TIMESTAMP_NTZ COMMENT 'a <time>, it\\'s `void'>",
        "map<string,array<decimal(38,18)>>",
        "variant",
        "binary",
    ],
)
def test_answers_that_a_table_can_store(type_: str) -> None:
    """Field names are not types."""
    answer = Column("span", type_)
    plan = project(grouped(T, (K,), call("n", "count", V)), K, Item(answer, opaque("n", type_)))
    assert compile_query(draft(plan, K, answer)).states


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
def test_states_that_no_table_can_store(plan: Plan, node: str) -> None:
    """The stored columns count, even if the answer does not show them."""
    (found,) = find_refusals(plan)
    assert (found.node, "interval day to second" in found.because) == (node, True)
    counted = grouped(SourceRead("m", (("i", INTERVAL),)), (), call("n", "count", INTERVAL))
    assert not find_refusals(counted)


def test_every_reason_is_given_at_once() -> None:
    """A user who fixes one reason must not find the next one afterwards."""
    plan = Join(
        left=GroupwiseOp(child=T, kind="limit", keys=(), columns=T.columns, text="LIMIT 3", undetermined=PEERS),
        right=Unsupported(kind="X", text="X", reason="operator", subject="X", children=(D,), columns=D.columns),
        kind="full",
        condition=None,
    )
    with pytest.raises(RefusedError) as refused:
        compile_query(draft(plan, K, refusals=(Refusal("rand()", "it varies", "use a hash"),)))
    error = refused.value
    assert [r.node for r in error.refusals] == ["rand()", "LIMIT 3", "X"]
    assert (error.node, error.because, error.instead) == ("rand()", "it varies", "use a hash")
    assert len(str(error).splitlines()) == 3


def test_maintainable_queries_are_not_refused() -> None:
    """Ordered limits, windows, aggregates with and without a merge."""
    inner = grouped(where(T, "v > 0"), (K, Q), call("s", "sum", V), call("n", "percentile", V))
    assert not find_refusals(grouped(inner, (K,), call("m", "max", Column("s", "bigint"))))
    assert not find_refusals(GroupwiseOp(child=T, kind="window", keys=(K,), columns=T.columns, text="row_number()"))
