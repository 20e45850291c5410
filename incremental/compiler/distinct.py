"""Compiler pass: DISTINCT aggregates become group-bys one level down (DESIGN section 5, count distinct).

    γ k; f(distinct d), g(x)   →   γ k; f(d'), g(x')  over  π k, NULL, x (R)  ∪  π k, d, NULL (γ k, d (R))

Every branch has the same groups, and every aggregate ignores NULL, so each sees only the rows of its own branch.
In: any plan. Out: a plan whose aggregates are not DISTINCT, unless one of them has no merge of its own.
"""

from __future__ import annotations

from dataclasses import replace

from incremental.algebra.monoids.family import infer_function_monoid
from incremental.algebra.plan import Aggregate, Call, Column, Item, Plan, Project, Reference, Scalar, Sql, Union
from incremental.algebra.traversal import replace_children


def expand_distinct(plan: Plan) -> Plan:
    """The plan without DISTINCT aggregates."""
    plan = replace_children(plan, tuple(expand_distinct(child) for child in plan.children))
    match plan:
        case Aggregate(calls=calls) if any(call.distinct for call in calls) and all(
            infer_function_monoid(call) is not None for call in calls
        ):
            return split(plan)
        case _:
            return plan


def split(node: Aggregate) -> Plan:
    """One branch for the plain aggregates, one for each set of distinct arguments, grouped together."""
    groups = list(dict.fromkeys(call.arguments for call in node.calls if call.distinct))
    plain = tuple(dict.fromkeys(c for call in node.calls if not call.distinct for c in call.arguments))
    if not plain and len(groups) == 1 and all(call.distinct for call in node.calls):
        inner = deduplicated(node, groups[0])
        return replace(node, child=inner, calls=tuple(replace(c, distinct=False, handle=None) for c in node.calls))
    branches = ([plain] if any(not call.distinct for call in node.calls) else []) + groups
    layout = [
        (b, column, Column(f"{column.name}_of_{b}", column.type)) for b, cs in enumerate(branches) for column in cs
    ]

    def branch(number: int) -> Plan:
        rows = node.child if branches[number] is plain else deduplicated(node, branches[number])
        items = [Item(key, Reference(key)) for key in node.keys]
        for owner, column, renamed in layout:
            scalar: Scalar = Reference(column) if owner == number else Sql("NULL", column.type)
            items.append(Item(renamed, scalar))
        return Project(rows, tuple(items))

    def moved(call: Call) -> Call:
        owner = len(branches) - len(groups) + groups.index(call.arguments) if call.distinct else 0
        names = {column: renamed for b, column, renamed in layout if b == owner}
        return replace(call, arguments=tuple(names[c] for c in call.arguments), distinct=False, handle=None)

    union = Union(tuple(branch(number) for number in range(len(branches))))
    return Aggregate(union, node.keys, tuple(moved(call) for call in node.calls))


def deduplicated(node: Aggregate, arguments: tuple[Column, ...]) -> Plan:
    """The distinct values of the arguments in each group."""
    columns = tuple(dict.fromkeys(node.keys + arguments))
    return Aggregate(Project(node.child, tuple(Item(c, Reference(c)) for c in columns)), columns, ())
