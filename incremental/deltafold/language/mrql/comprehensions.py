"""`select … from … where …` (the table of generators in docs/mrql.md).

The generators are read into one frame from left to right, the conditions go above, and Catalyst makes joins of them. A
select without group, order and distinct adds nothing of its own to the frame that reads it.
"""

from __future__ import annotations

from deltafold.language.mrql import arrays, groups, patterns, relations
from deltafold.language.mrql.patterns import Bound
from deltafold.language.mrql.rows.frames import FRAME_COLUMN, SUBQUERY, Frame
from deltafold.language.mrql.rows.scope import Scope
from deltafold.language.mrql.rows.values import FrameRows, GroupedValues, Order, RelationValue, Value
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.tree import Node


def translate_select(select: T.Select, scope: Scope) -> Value:
    """Translate a select: to a relation if a generator is one, else to an array, or a value of a group's rows."""
    binding = select.bindings[0]
    first = scope.value(binding.domain)
    if binding.each and isinstance(first, GroupedValues) and (found := groups.select_over_group(select, first, scope)):
        return found
    if not (binding.each and isinstance(first, RelationValue)) and (
        array := arrays.select_arrays(select, first, scope)
    ):
        return array
    base = RelationValue(lambda frame: add_select(select, scope, frame), select.order is not None)
    if select.distinct:
        base = relations.distinct(base, scope, select.span)
    if select.order is not None and select.order.limit is not None:
        return relations.first_rows(base, limit(select.order.limit, scope), scope, select.span)
    return base


def limit(node: Node, scope: Scope) -> str:
    """Return the number of a limit, which is the same for all rows."""
    sql, type_ = scope.pack(node)
    if SUBQUERY in sql or FRAME_COLUMN.search(sql):
        raise node.span.error("a limit is a constant. Write a number, or an element of `args`.")
    return arrays.cast_limit(sql, type_, node)


def add_select(select: T.Select, scope: Scope, frame: Frame) -> FrameRows:
    """Add the rows of a select to a frame, before distinct and limit."""
    rows = frame if select.group is None else frame.child()
    inner, bound = read_generators(select.bindings, scope.at(rows))
    if select.where is not None:
        filter_rows(select.where, inner)
    if select.group is not None:
        inner = groups.group_rows(select.group, inner, bound)
        if select.group.having is not None:
            filter_rows(select.group.having, inner)
    value, order = inner.value(select.head), list[Order]()
    for key in select.order.keys if select.order else ():
        node, descending = arrays.split_direction(key)
        order.append(Order(inner.pack(node)[0], descending))
    if inner.frame is not frame:
        if select.distinct or order:
            value = inner.inside(value, select.head.span)
        frame.absorb(inner.frame)
    return FrameRows(value, tuple(order))


def read_generators(bindings: tuple[T.Binding, ...], scope: Scope) -> tuple[Scope, Bound]:
    """Read generators into the scope's frame."""
    bound = Bound()
    for binding in bindings:
        value = scope.value(binding.domain)
        if binding.each:
            value = relations.lift(value, scope, binding.domain.span).add_to(scope.frame).value
        else:
            value = scope.once(value)
        before = len(bound.conditions)
        bound = patterns.bind(binding.pattern, value, scope, bound)
        for condition in bound.conditions[before:]:
            scope.frame.filter(condition)
        scope = scope.binding(bound.names)
    return scope, bound


def filter_rows(node: Node, scope: Scope) -> None:
    """Keep the rows for which a condition is true."""
    if isinstance(node, T.Binary) and node.operator == "and":
        filter_rows(node.left, scope)
        filter_rows(node.right, scope)
    else:
        scope.frame.filter(scope.condition(node))
