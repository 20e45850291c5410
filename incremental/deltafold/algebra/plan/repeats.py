"""Find the inputs that occur several times in the plans of a program, so that their change is computed once.

Inputs are the same if they are equal plans, columns included: a pass made them of one plan of the query (the branches
of expand_distinct, say). What the query itself reads twice has columns of other names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from deltafold.algebra.plan import GroupwiseOp, Join, Plan
from deltafold.algebra.traversal import walk


def find_repeats(plans: Sequence[Plan]) -> frozenset[Plan]:
    """Return the largest inputs that occur several times and join or rank rows; a cheaper one is computed each time."""
    found = Counter(node for plan in plans for node in walk(plan) if _is_dear(node))
    return frozenset(node for plan in plans for node in _largest(plan, found))


def _largest(plan: Plan, found: Counter[Plan]) -> Iterator[Plan]:
    """Yield the inputs of a plan that occur several times, without what is within them alone."""
    if found[plan] > 1:
        yield plan
        return
    for child in plan.children:
        yield from _largest(child, found)


def _is_dear(plan: Plan) -> bool:
    """Return whether computing the change of a plan takes more than reading changed rows."""
    return any(isinstance(node, Join | GroupwiseOp) for node in walk(plan))
