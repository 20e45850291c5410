"""A tree of inner joins is one product, and each input's change is joined with the others in a good order."""

from __future__ import annotations

from deltafold.algebra.plan import Column, Join, Opaque, Plan, Project, Reference, SourceRead
from deltafold.algebra.product import flatten_joins
from tests.compiler.plans import project, where


def source(name: str) -> SourceRead:
    return SourceRead(name, ((name, Column(name, "int")), (f"{name}_v", Column(f"{name}_v", "int"))))


A, B, C, D = (source(name) for name in "abcd")


def equal(left: Plan, right: Plan, one: str, other: str, null_safe: bool = False) -> Join:
    sides = Opaque(one, "int", frozenset({one})), Opaque(other, "int", frozenset({other}))
    condition = Opaque(f"{one} = {other}", "boolean", frozenset({one, other}))
    return Join(
        left=left, right=right, kind="inner", condition=condition, keys=((*sides, null_safe),), parts=(condition,)
    )


REFERENCES = {column.name: Reference(column) for plan in (A, B, C) for column in plan.columns}


def keyed(left: Plan, right: Plan, one: str, other: str) -> Join:
    return Join(
        left=left, right=right, kind="inner", condition=None, keys=((REFERENCES[one], REFERENCES[other], False),)
    )


CHAIN = equal(equal(equal(A, B, "a", "b"), C, "b_v", "c"), D, "c_v", "d")


def order(plan: Plan, start: int) -> list[int]:
    return [step.position for step in flatten_joins(plan).steps(start)]


def test_a_change_is_joined_with_its_neighbours_first() -> None:
    """Two inputs without a common condition would be a cross product."""
    assert flatten_joins(CHAIN).inputs == (A, B, C, D)
    assert [order(CHAIN, start) for start in range(4)] == [[1, 2, 3], [0, 2, 3], [1, 0, 3], [2, 1, 0]]


def test_every_condition_is_tested_once() -> None:
    """As soon as all of its columns are known."""
    for start in range(4):
        tested = [c.text for step in flatten_joins(CHAIN).steps(start) for c in step.conditions]
        assert sorted(tested) == ["a = b", "b_v = c", "c_v = d"]


def test_an_implied_equality_connects() -> None:
    """Only where none is stated: b is all that a and c are compared with."""
    product = flatten_joins(keyed(keyed(A, B, "a", "b"), C, "b", "c"))
    assert [step.implied for step in product.steps(1)] == [(), ()]
    assert product.steps(0)[1].implied == ()
    filtered = flatten_joins(keyed(keyed(A, B, "a", "b"), where(C, "c > 0"), "b", "c"))
    first, second = filtered.steps(0)
    assert [first.position, second.position] == [2, 1]
    assert first.implied == first.equalities == ((REFERENCES["a"], REFERENCES["c"]),)
    assert second.implied == ()


def test_equalities_follow_through_columns_alone() -> None:
    """The text of an expression does not say all that Spark evaluates."""
    opaque = equal(equal(A, B, "a", "b"), C, "b", "c")
    assert [step.implied for step in flatten_joins(opaque).steps(0)] == [(), ()]
    assert order(opaque, 0) == [1, 2]


def test_filtered_inputs_go_first() -> None:
    """Of those that an equality connects: they keep fewer rows of the term."""
    star = equal(equal(equal(A, B, "a", "b"), C, "a_v", "c"), where(D, "d_v > 0"), "a", "d")
    assert [order(star, start) for start in range(4)] == [[3, 1, 2], [0, 3, 2], [0, 3, 1], [0, 1, 2]]


def test_filters_and_narrowing_projections_are_flattened() -> None:
    """Spark's own rules insert them between the joins."""
    inner = where(project(equal(A, B, "a", "b"), *A.columns, B.columns[1]), "a_v > b_v")
    found = flatten_joins(equal(inner, C, "b_v", "c"))
    assert found.inputs == (A, B, C)
    assert [c.text for c in found.steps(2)[-1].conditions] == ["a = b", "a_v > b_v"]


def test_a_computing_projection_is_an_input() -> None:
    """Its columns are not those of the inputs."""
    computed = Project(equal(A, B, "a", "b"), (*project(A, A.columns[0]).items,))
    assert len(flatten_joins(equal(computed, C, "a", "c")).inputs) == 3
    sums = project(equal(A, B, "a", "b"), *A.columns)
    other = Project(sums, (*sums.items[:1], sums.items[1].__class__(Column("x", "int"), Reference(A.columns[1]))))
    assert flatten_joins(equal(other, C, "x", "c")).inputs == (other, C)


def test_outer_joins_are_inputs() -> None:
    """They do not commute with the others."""
    left = Join(left=A, right=B, kind="left", condition=None)
    assert flatten_joins(equal(left, C, "a", "c")).inputs == (left, C)


def test_null_safe_equalities_connect_without_a_range() -> None:
    """A range of keys would drop the rows whose key is NULL."""
    step = flatten_joins(equal(A, B, "a", "b", null_safe=True)).steps(0)[0]
    assert step.equalities == () and len(step.conditions) == 1


def test_no_condition_at_all() -> None:
    """A cross product follows the query's order."""
    plan = Join(left=Join(left=A, right=B, kind="inner", condition=None), right=C, kind="inner", condition=None)
    assert order(plan, 1) == [0, 2]
    assert all(step.conditions == () for step in flatten_joins(plan).steps(1))
