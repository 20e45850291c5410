"""Plans that cannot be wrong, and programs, errors and reports as plain data."""

from __future__ import annotations

import pytest

from incremental.algebra.errors import DeltafoldError, Refusal, RefusedError
from incremental.algebra.plan import Aggregate, Column, Generate, Join, Opaque, Plan, Union, Unsupported
from incremental.algebra.report import Description, Report, StateDescription
from incremental.algebra.traversal import replace_children, source_names, walk
from tests.compiler.plans import K2, NAME, D, K, Q, T, V, call, grouped, opaque, project, where

FOUND = Column("found", "boolean")
UNARY = [
    project(T, K),
    where(T, "k > 1"),
    grouped(T, (K,), call("s", "sum", V)),
    Generate(T, opaque("explode(k)", "int"), True, (Column("e", "int"),)),
]


def test_aggregate_refuses_columns_its_input_lacks() -> None:
    """A pass that loses a column fails where it does so, not in Spark."""
    with pytest.raises(ValueError, match="k2, name"):
        Aggregate(T, (K2,), (call("n", "count", NAME),))


def test_union_refuses_inputs_of_different_widths() -> None:
    """Columns of a union are matched by position."""
    with pytest.raises(ValueError, match="different numbers"):
        Union((T, D))


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
def test_columns_of_joins(kind: str, columns: tuple[Column, ...]) -> None:
    """Tested sides give no columns."""
    assert Join(T, D, kind, None, exists=FOUND if kind == "existence" else None).columns == columns  # type: ignore


@pytest.mark.parametrize("plan", UNARY, ids=lambda plan: type(plan).__name__)
def test_the_same_node_over_another_input(plan: Plan) -> None:
    """Passes rebuild plans bottom-up and change nothing else."""
    assert replace_children(plan, plan.children) == plan
    other = where(T, "v")
    assert replace_children(plan, (other,)).children == (other,)


def test_the_same_node_over_several_inputs() -> None:
    """The sides of joins, unions and foreign nodes stay in order."""
    for plan in (Join(T, D, "inner", None), Union((T, T)), Unsupported("X", "X", "operator", "X", (T, D), (K,))):
        assert replace_children(plan, plan.children[::-1]).children == plan.children[::-1]
    assert replace_children(T, ()) is T


def test_walk_gives_inputs_first_and_left_before_right() -> None:
    """States are numbered in this order."""
    join = Join(where(T, "k"), D, "inner", None)
    assert [type(node).__name__ for node in walk(join)] == ["SourceRead", "Filter", "SourceRead", "Join"]
    assert source_names(Union((join, join))) == ("t", "d")


def test_handles_are_no_part_of_equality() -> None:
    """The fingerprint and golden tests must not see Spark's objects."""
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
    report = Report("v", 2, 1, "applied", "v: ...", {"t": (None, 3)}, phases={"merge": 0.5}, paths={"state_1": "merge"})
    assert Report.from_json(report.to_json()) == report
    assert Report.from_json(report.to_json()[:-1] + ', "later": 1}') == report
    described = Description(
        "v", "f", "incremental", (StateDescription("s", ("k",), ("k",)),), (("k", "int"),), "", ("t",)
    )
    assert Description.from_json(described.to_json()) == described
    assert Q in T.columns
