"""Plans that cannot be built wrong, and errors and reports as plain data."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deltafold.algebra.errors import DeltafoldError, Refusal, RefusedError
from deltafold.algebra.plan import (
    Aggregate,
    Column,
    Expand,
    Filter,
    Generate,
    GroupwiseOp,
    Item,
    Join,
    JoinKind,
    Opaque,
    Plan,
    Reference,
    SourceRead,
    StateRead,
    Union,
    Unsupported,
    Values,
)
from deltafold.algebra.results.report import Description, Report, StateDescription
from deltafold.algebra.traversal import replace_children, source_names, walk
from tests.compiler.plans import K2, NAME, D, K, Q, T, V, call, grouped, opaque, project, renamed, where

FOUND = Column("found", "boolean")


def explode(column: str) -> Opaque:
    return Opaque(f"explode({column})", "int", frozenset({column}))


UNARY = [
    project(T, K),
    where(T, "k > 1"),
    grouped(T, (K,), call("s", "sum", V)),
    Generate(T, explode("k"), True, (Column("e", "int"),)),
]


TWICE = (("K", K), ("Q", K))
OTHER = Column("other", "int")
ELSEWHERE = Reference(OTHER)
EQUALS = ((Reference(K), Reference(K2), False),)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda: SourceRead("t", TWICE), "source t has several columns named k"),
        (lambda: StateRead("state_1", (K, K)), "state_1 has several columns named k"),
        (lambda: Values((K, K), "values"), "several columns named k"),
        (lambda: project(T, K, renamed(Q, "k")), "a projection has several columns named k"),
        (lambda: project(T, Item(K, ELSEWHERE)), "a projection uses columns its input lacks: other"),
        (lambda: Filter(T, opaque("other > 1")), "a filter uses columns its input lacks: other"),
        (lambda: Generate(T, explode("other"), False, (OTHER,)), "a generator uses columns its input lacks: other"),
        (lambda: Generate(T, explode("k"), False, (OTHER, OTHER)), "a generator has several columns named other"),
        (lambda: Expand(T, ((Reference(K),), (ELSEWHERE,)), (OTHER,)), "uses columns its input lacks: other"),
        (lambda: Expand(T, ((Reference(K), Reference(Q)),), (OTHER,)), "argument 2"),
        (lambda: Union((T, D)), "different numbers of columns"),
        (
            lambda: Join(left=T, right=project(T, Q), kind="inner", condition=None),
            "both sides of a join have columns named q",
        ),
        (
            lambda: Join(left=T, right=D, kind="inner", condition=opaque("k = other")),
            "a join uses columns its input lacks: other",
        ),
        (
            lambda: Join(left=T, right=D, kind="inner", condition=None, parts=(opaque("k = other"),)),
            "a join uses columns its input lacks: other",
        ),
        (
            lambda: Join(left=D, right=T, kind="inner", condition=None, keys=EQUALS),
            "a join uses columns its input lacks: k",
        ),
        (lambda: Join(left=T, right=D, kind="existence", condition=None), "existence"),
        (lambda: Join(left=T, right=D, kind="semi", condition=None, exists=OTHER), "existence"),
        (lambda: Aggregate(T, (K2,), (call("n", "count", NAME),)), "an aggregate uses columns its input lacks: k2, na"),
        (lambda: Aggregate(T, (K,), (call("k", "count", Q),)), "an aggregate has several columns named k"),
        (
            lambda: GroupwiseOp(child=T, kind="window", keys=(OTHER,), columns=T.columns, text="rank()"),
            "a window uses columns its input lacks: oth",
        ),
    ],
)
def test_a_wrong_plan_cannot_be_built(make: Callable[[], Plan], fault: str) -> None:
    """A pass that loses or repeats a column fails where it does so, not in Spark, or in a wrong answer."""
    with pytest.raises(ValueError, match=fault):
        make()


def test_a_column_may_recur_as_it_is() -> None:
    """Union branches may read one input twice, Pandas functions get their key twice, EXCEPT ALL repeats whole rows."""
    assert Union((T, T)).columns == T.columns
    assert project(T, K, K, V).columns == (K, K, V)
    assert Generate(T, explode("k"), False, (K, OTHER)).columns == (Q, V, K, OTHER)


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("inner", (*T.columns, *D.columns)),
        ("full", (*T.columns, *D.columns)),
        ("semi", T.columns),
        ("anti", T.columns),
        ("existence", (*T.columns, FOUND)),
    ],
)
def test_columns_of_joins(kind: JoinKind, columns: tuple[Column, ...]) -> None:
    """The tested side of a semi join contributes no columns."""
    exists = FOUND if kind == "existence" else None
    assert Join(left=T, right=D, kind=kind, condition=None, exists=exists).columns == columns


@pytest.mark.parametrize("plan", UNARY, ids=lambda plan: type(plan).__name__)
def test_the_same_node_over_another_input(plan: Plan) -> None:
    """Passes rebuild plans bottom-up and change nothing else."""
    assert replace_children(plan, plan.children) == plan
    other = where(T, "v")
    assert replace_children(plan, (other,)).children == (other,)


def test_the_same_node_over_several_inputs() -> None:
    """The inputs of joins, unions and unsupported nodes stay in order."""
    for plan in (
        Join(left=T, right=D, kind="inner", condition=None),
        Union((T, T)),
        Unsupported(kind="X", text="X", reason="operator", subject="X", children=(T, D), columns=(K,)),
    ):
        assert replace_children(plan, plan.children[::-1]).children == plan.children[::-1]
    assert replace_children(T, ()) is T


def test_walk_yields_inputs_first_and_left_before_right() -> None:
    """States are numbered in this order."""
    join = Join(left=where(T, "k"), right=D, kind="inner", condition=None)
    assert [type(node).__name__ for node in walk(join)] == ["SourceRead", "Filter", "SourceRead", "Join"]
    assert source_names(Union((join, join))) == ("t", "d")


def test_handles_do_not_count_for_equality() -> None:
    """Spark's objects differ in every process; a plan does not."""
    one, other = (Opaque("k + 1", "int", frozenset({"k"}), handle) for handle in (object(), object()))
    assert one == other and repr(one) == repr(other) and "object" not in repr(one)


def test_refusals_are_complete_sentences() -> None:
    """node, because and instead are all in the message, and the first one's in attributes."""
    error = RefusedError((Refusal("rand()", "it varies", "use a hash"), Refusal("LIMIT", "it depends", "drop it")))
    assert isinstance(error, DeltafoldError)
    assert str(error).startswith("rand() cannot be maintained incrementally: it varies. Instead: use a hash.\nLIMIT")
    assert (error.node, error.because, error.instead) == ("rand()", "it varies", "use a hash")


def test_reports_survive_json() -> None:
    """Other processes read them; fields of a later release are ignored."""
    report = Report(
        view="v",
        epoch=2,
        generation=1,
        verdict="applied",
        sentence="v: ...",
        versions={"t": (None, 3)},
        phases={"merge": 0.5},
        paths={"state_1": "merge"},
    )
    assert Report.from_json(report.to_json()) == report
    assert Report.from_json(report.to_json()[:-1] + ', "later": 1}') == report
    described = Description(
        name="v",
        fingerprint="f",
        mode="incremental",
        states=(StateDescription("s", ("k",), ("k",)),),
        columns=(("k", "int"),),
        explain="",
        sources=("t",),
    )
    assert Description.from_json(described.to_json()) == described
    earlier = described.to_json().replace('"mode"', '"verdict"')
    assert Description.from_json(earlier) == described  # as earlier releases stored it
    assert Q in T.columns
