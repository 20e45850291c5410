"""The passes of loops on hand-made plans: where a step reads its loop, what it becomes, and how levels are carried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deltafold.algebra.loops import LEVEL
from deltafold.algebra.plan import (
    Column,
    Expand,
    Filter,
    Generate,
    Given,
    GroupwiseOp,
    Join,
    JoinKind,
    Loop,
    Opaque,
    Plan,
    Project,
    Reference,
    Sql,
    StateRead,
    Union,
)
from deltafold.algebra.traversal import walk
from deltafold.compiler.loops.stages import add_levels, loop_stage
from deltafold.compiler.loops.steps import nonlinear_nodes, refuse_reads
from deltafold.compiler.passes.simplify_loops import simplify_loops
from deltafold.compiler.passes.split_states import split_states
from deltafold.compiler.plan_text import node_text
from tests.compiler.plans import K2, NAME, D, K, T, call, draft, grouped, opaque, project, where

R = Given("loop_1", (Column("r", "int"),))
S = Given("loop_1", (Column("s", "int"),))
EDGES = project(T, K, Column("q", "int"))
ONE = project(T, K)


def loop(step: Plan, kind: str = "set", **options: object) -> Loop:
    return Loop(name="loop_1", kind=kind, init=ONE, step=step, columns=(Column("n", "int"),), limit=100, **options)  # type: ignore[arg-type]


def over(plan: Plan, column: str = "q") -> Project:
    """One integer column of a plan."""
    return project(plan, next(c for c in plan.columns if c.name == column))


JOINED = over(
    Join(
        left=R,
        right=EDGES,
        kind="inner",
        condition=opaque("r = k"),
        keys=((Reference(R.columns[0]), Reference(K), False),),
    )
)


@pytest.mark.parametrize(
    ("plan", "linear"),
    [
        (JOINED, True),
        (where(R, "r"), True),
        (Union((R, S)), True),
        (Generate(R, Opaque("explode(r)", "int", frozenset({"r"})), False, (Column("g", "int"),)), True),
        (Expand(R, ((Reference(R.columns[0]),),), (Column("x", "int"),)), True),
        (grouped(R, R.columns), False),
        (GroupwiseOp(child=R, kind="window", keys=R.columns, columns=R.columns, text="rank()"), False),
        (over(grouped(JOINED, (Column("q", "int"),), call("n", "count"))), False),
    ],
)
def test_linear_operators(plan: Plan, linear: bool) -> None:
    assert (not list(nonlinear_nodes(plan, "loop_1"))) == linear


@pytest.mark.parametrize(
    ("kind", "left", "right"),
    [
        ("inner", True, True), ("left", True, False), ("single", True, False), ("semi", True, False),
        ("anti", True, False), ("existence", True, False), ("right", False, True), ("full", False, False),
    ],
)  # fmt: skip
def test_sides_of_joins(kind: JoinKind, left: bool, right: bool) -> None:
    """A row of the loop that only hides or completes other rows would be taken back when more are found."""
    exists = Column("found", "boolean") if kind == "existence" else None
    for side, (one, other) in ((left, (R, EDGES)), (right, (EDGES, R))):
        assert (
            not list(nonlinear_nodes(Join(left=one, right=other, kind=kind, condition=None, exists=exists), "loop_1"))
        ) == side


def test_distinct_and_semi_joins_of_a_set() -> None:
    """Under linear operators duplicates are only counted; under others they stay."""
    semi = Join(left=EDGES, right=R, kind="semi", condition=opaque("k = r"))
    found = simplify_loops(draft(loop(over(grouped(project(semi, Column("q", "int")), (Column("q", "int"),)))))).plan
    assert isinstance(found, Loop)
    assert not list(nonlinear_nodes(found.step, "loop_1"))
    assert [node.kind for node in walk(found.step) if isinstance(node, Join)] == ["inner"]
    counted = loop(over(grouped(grouped(R, R.columns), R.columns, call("n", "count")), "r"))
    assert simplify_loops(draft(counted)).plan == counted


FIXED = over(where(Union((over(D, "k2"), JOINED)), "k2"), "k2")


def test_a_fixed_branch_has_the_level_of_init() -> None:
    """A step gives its rows in the first round after init; it stands wherever a union does."""
    found, _ = levels_of(FIXED)
    (union,) = (node for node in walk(found) if isinstance(node, Union))
    fixed, reading = union.children
    assert isinstance(fixed, Project) and fixed.items[-1].scalar == Sql("0", "int") and fixed.child == over(D, "k2")
    assert union.columns[-1] == fixed.columns[-1] and reading.columns[-1].name.startswith(LEVEL)
    assert loop_stage(loop(FIXED), lambda plan: plan).has_fixed_rows
    assert not loop_stage(loop(Union((JOINED, R))), lambda plan: plan).has_fixed_rows


def test_a_fixed_branch_gives_rows_in_every_level() -> None:
    (refusal,) = refuse_reads(loop(FIXED, "levels"), node_text)
    assert "every round" in refusal.because


def test_distinct_on_top_of_levels() -> None:
    found = simplify_loops(draft(loop(grouped(JOINED, JOINED.columns), "levels"))).plan
    assert isinstance(found, Loop) and found.distinct and not list(nonlinear_nodes(found.step, "loop_1"))
    below = loop(over(Join(left=grouped(R, R.columns), right=EDGES, kind="inner", condition=None)), "levels")
    assert simplify_loops(draft(below)).plan == below and list(refuse_reads(below, node_text))


def levels_of(step: Plan, kind: str = "set") -> tuple[Project, list[str]]:
    """The levelled step, and the expressions that combine or raise levels, from below."""
    found = add_levels(loop(step, kind))
    assert isinstance(found, Project) and found.columns[-1] == Column(LEVEL, "int")
    assert all(node.columns[-1].name.startswith(LEVEL) for node in walk(found) if isinstance(node, Given))
    scalars = [item.scalar.text for node in walk(found) if isinstance(node, Project) for item in node.items]
    return found, [text for text in scalars if "(" in text or "+" in text]


def test_levels_of_one_side() -> None:
    _, texts = levels_of(JOINED)
    assert texts == ["__level_1 + 1"]


def test_levels_of_two_sides() -> None:
    """A set takes the greater level; the sum of levels joins rows of one level alone."""
    both = over(Join(left=R, right=S, kind="inner", condition=opaque("r = s")), "s")
    _, texts = levels_of(both)
    assert texts == ["greatest(__level_1, __level_2)", "__level_3 + 1"]
    found, texts = levels_of(both, "levels")
    assert texts == ["__level_1 + 1"]
    assert [node.condition.text for node in walk(found) if isinstance(node, Filter)] == ["__level_1 = __level_2"]


def test_levels_of_branches() -> None:
    """Every branch has the level last, also where it stood between other columns."""
    found, _ = levels_of(Union((JOINED, R, over(Join(left=S, right=D, kind="left", condition=None), "s"))))
    (union,) = (node for node in walk(found) if isinstance(node, Union))
    assert all(child.columns[-1].name.startswith(LEVEL) for child in union.children)


def test_levels_through_every_linear_operator() -> None:
    exploded = Generate(R, Opaque("explode(r)", "int", frozenset({"r"})), True, (Column("g", "int"),))
    expanded = Expand(over(exploded, "g"), ((Reference(Column("g", "int")),),), (Column("x", "int"),))
    found, _ = levels_of(over(Join(left=where(expanded, "x"), right=D, kind="anti", condition=None), "x"))
    assert [column.name for column in found.columns] == ["x", LEVEL]


def test_a_stage_cuts_its_side_inputs() -> None:
    """The greatest parts that do not read the loop, with their states before it."""
    side = grouped(EDGES, (K,), call("top", "max", Column("q", "int"), type_="int"))
    step = over(Join(left=R, right=side, kind="inner", condition=opaque("r = k")), "top")
    found = split_states(draft(loop(step)))
    assert [stage.name for stage in found.stages] == ["state_1", "loop_1"]
    (stage,) = (each for each in found.stages if each not in found.states)
    assert [each.plan for each in stage.sides] == [StateRead("state_1", side.columns)]  # type: ignore[union-attr]
    assert found.plan == StateRead("loop_1", (Column("n", "int"),))


def test_another_use_of_a_loop_reads_the_same_stage() -> None:
    one = loop(JOINED)
    two = replace(one, columns=(Column("n_2", "int"),))
    found = split_states(draft(Join(left=one, right=two, kind="inner", condition=opaque("n = n_2"))))
    assert [stage.name for stage in found.stages] == ["loop_1"]
    assert isinstance(found.plan, Join) and [c.name for c in found.plan.columns] == ["n", "n_2"]


def test_refused_constructions() -> None:
    """A pass that loses a column fails where it does so."""
    with pytest.raises(ValueError, match=r"the step of loop_1 has the columns .*, not n int"):
        loop(Join(left=R, right=EDGES, kind="inner", condition=None))
    with pytest.raises(ValueError, match="the step of loop_1 reads name string, not n int"):
        loop(over(Join(left=Given("loop_1", (NAME,)), right=EDGES, kind="inner", condition=None)))
    with pytest.raises(ValueError, match="loop_1 of kind best has no key"):
        loop(JOINED, "best", keep="least")
    with pytest.raises(ValueError, match="keep belongs to kind best"):
        loop(JOINED, "set", keep="least")


def test_side_input_that_is_a_whole_source() -> None:
    stage = loop_stage(
        loop(over(Join(left=R, right=D, kind="inner", condition=opaque("r = k2")), "k2")), lambda plan: plan
    )
    assert [side.plan for side in stage.sides] == [D] and stage.sides[0].given.columns == (K2, NAME)
