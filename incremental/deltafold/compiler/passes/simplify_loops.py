"""Pass: simplify the steps of relational loops.

| kind | rule |
| --- | --- |
| set, best | δ (R) → R, and l ⋉ r → π l (l ⋈ r), under linear operators alone: duplicates are only counted |
| levels | δ on top of the step becomes `distinct`: each row once in a level |
"""

from __future__ import annotations

from dataclasses import replace

from deltafold.algebra.plan import Aggregate, Join, Loop, Plan, Project, Reference
from deltafold.algebra.traversal import pass_columns, replace_children
from deltafold.compiler.draft import Draft
from deltafold.compiler.loops.steps import linear_inputs, reads_loop


def simplify_loops(draft: Draft) -> Draft:
    """Return the query with the steps of its loops over linear operators, as far as they can be."""
    return draft.with_plan(_rewrite(draft.plan))


def _rewrite(plan: Plan) -> Plan:
    plan = replace_children(plan, tuple(map(_rewrite, plan.children)))
    match plan:
        case Loop(kind="set" | "best"):
            return replace(plan, step=_without_duplicate_removal(plan.step, plan.name))
        case Loop(kind="levels"):
            return _distinct_levels(plan)
        case _:
            return plan


def _without_duplicate_removal(plan: Plan, name: str) -> Plan:
    """Return a part of a step that stands under linear operators alone, without DISTINCT and semi joins on the loop."""
    if not reads_loop(plan, name):
        return plan
    match plan:
        case Aggregate(child=child, keys=keys, calls=()):
            return _without_duplicate_removal(Project(child, pass_columns(keys)), name)
        case Join(kind="semi", left=left) if reads_loop(plan.right, name):
            return _without_duplicate_removal(Project(replace(plan, kind="inner"), pass_columns(left.columns)), name)
        case _:
            pairs = zip(plan.children, linear_inputs(plan), strict=True)
            children = (_without_duplicate_removal(child, name) if linear else child for child, linear in pairs)
            return replace_children(plan, tuple(children))


def _distinct_levels(loop: Loop) -> Loop:
    below = loop.step
    names = [column.name for column in loop.step.columns]
    while isinstance(below, Project) and all(isinstance(item.scalar, Reference) for item in below.items):
        chosen = {item.column.name: item.scalar.columns for item in below.items}
        names = [next(iter(chosen[name])) for name in names]
        below = below.child
    if not isinstance(below, Aggregate) or below.calls or {key.name for key in below.keys} != set(names):
        return loop
    by_name = {key.name: key for key in below.keys}
    return replace(loop, step=Project(below.child, pass_columns(by_name[name] for name in names)), distinct=True)
