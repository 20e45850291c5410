"""Check plans in their constructors: a pass that loses or confuses columns fails there, and not later in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from deltafold.algebra.plan.expressions import Column, Item, Scalar

if TYPE_CHECKING:
    from deltafold.algebra.plan.nodes import Join, Plan


def check_unique(node: str, columns: Sequence[Column]) -> None:
    """Raise ValueError for a node that has two columns of one name."""
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        repeated = dict.fromkeys(name for name in names if names.count(name) > 1)
        raise ValueError(f"{node} has several columns named {', '.join(repeated)}")


def check_used(node: str, scalars: Iterable[Scalar | Column], *inputs: Plan) -> None:
    """Raise ValueError for a node that uses columns which its inputs lack."""
    known = {column.name for child in inputs for column in child.columns}
    used = (scalar.columns if not isinstance(scalar, Column) else {scalar.name} for scalar in scalars)
    if missing := sorted(frozenset[str]().union(*used) - known):
        raise ValueError(f"{node} uses columns its input lacks: {', '.join(missing)}")


def check_projection(items: Sequence[Item], child: Plan) -> None:
    """Raise ValueError for a projection that gives two values one name, or uses columns that its input lacks."""
    check_unique("a projection", [item.column for item in dict.fromkeys(items)])
    check_used("a projection", [item.scalar for item in items], child)


def check_join(join: Join) -> None:
    """Raise ValueError for a join whose sides share a name, or whose conditions use other columns."""
    right = {column.name for column in join.right.columns}
    if shared := dict.fromkeys(column.name for column in join.left.columns if column.name in right):
        raise ValueError(f"both sides of a join have columns named {', '.join(shared)}")
    check_used("a join", join.conjuncts, join.left, join.right)
    check_used("a join", [left for left, _, _ in join.keys], join.left)
    check_used("a join", [right for _, right, _ in join.keys], join.right)
    if (join.exists is None) == (join.kind == "existence"):
        raise ValueError("an existence join, and no other, has a column that records the existence")
