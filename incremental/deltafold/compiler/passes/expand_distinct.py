"""Pass: rewrite DISTINCT aggregates as group-bys one level down (count distinct) (D-007).

    γ k; f(distinct d), g(x)   →   γ k; f(d'), g(x')  over  π k, NULL, x (R)  ∪  π k, d, NULL (γ k, d (R))

Every branch of the union has the same groups, and every aggregate ignores NULL, so each aggregate reads only the rows
of its own branch. A group-by in which some aggregate does not merge is left as it is.
"""

from __future__ import annotations

from dataclasses import replace

from deltafold.algebra.monoids.family import infer_function_monoid
from deltafold.algebra.plan import Aggregate, Call, Column, Item, Loop, Plan, Project, Reference, Scalar, Sql, Union
from deltafold.algebra.traversal import pass_columns, replace_children
from deltafold.compiler.draft import Draft
from deltafold.compiler.loops.steps import rewrite_side_inputs


def expand_distinct(draft: Draft) -> Draft:
    """Return the query without DISTINCT aggregates, except those beside an aggregate that does not merge."""
    return draft.with_plan(_rewrite(draft.plan))


def _rewrite(plan: Plan) -> Plan:
    if isinstance(plan, Loop):  # Spark evaluates the parts of a step that read the loop, by its own expressions
        step = rewrite_side_inputs(plan.step, plan.name, _rewrite)
        return replace(plan, init=_rewrite(plan.init), step=step)
    plan = replace_children(plan, tuple(map(_rewrite, plan.children)))
    match plan:
        case Aggregate(calls=calls) if any(call.distinct for call in calls) and _all_merge(calls):
            return _expand(plan)
        case _:
            return plan


def _all_merge(calls: tuple[Call, ...]) -> bool:
    return all(infer_function_monoid(call) is not None for call in calls)


def _expand(node: Aggregate) -> Plan:
    """Return one branch for the plain aggregates and one for each set of distinct arguments, grouped together."""
    groups = list(dict.fromkeys(call.arguments for call in node.calls if call.distinct))
    plain = tuple(dict.fromkeys(c for call in node.calls if not call.distinct for c in call.arguments))
    if not plain and len(groups) == 1 and all(call.distinct for call in node.calls):
        inner = _deduplicate(node, groups[0])
        return replace(node, child=inner, calls=tuple(replace(c, distinct=False, handle=None) for c in node.calls))
    branches = ([plain] if any(not call.distinct for call in node.calls) else []) + groups
    layout = [
        (number, column, Column(f"{column.name}_of_{number}", column.type))
        for number, columns in enumerate(branches)
        for column in columns
    ]

    def branch(number: int) -> Plan:
        rows = node.child if branches[number] is plain else _deduplicate(node, branches[number])
        items = [*pass_columns(node.keys)]
        for owner, column, renamed in layout:
            scalar: Scalar = Reference(column) if owner == number else Sql("NULL", column.type)
            items.append(Item(renamed, scalar))
        return Project(rows, tuple(items))

    def over_branch(call: Call) -> Call:
        owner = len(branches) - len(groups) + groups.index(call.arguments) if call.distinct else 0
        names = {column: renamed for number, column, renamed in layout if number == owner}
        return replace(call, arguments=tuple(names[c] for c in call.arguments), distinct=False, handle=None)

    union = Union(tuple(branch(number) for number in range(len(branches))))
    return Aggregate(union, node.keys, tuple(over_branch(call) for call in node.calls))


def _deduplicate(node: Aggregate, arguments: tuple[Column, ...]) -> Plan:
    """Return the distinct values of the arguments in each group."""
    columns = tuple(dict.fromkeys(node.keys + arguments))
    return Aggregate(Project(node.child, pass_columns(columns)), columns, ())
