"""`repeat`: a loop over relations, which becomes `fixpoint` or `iterate` over views of its rows.

| `repeat v = init step body` | becomes |
| --- | --- |
| `limit n`, body a bag of init's rows, or of pairs (row, true) | exactly n steps |
| a tuple of names and a tuple of bags, `limit n` | exactly n steps of all together |
| no limit, body `select distinct x from x in (v union …)` | the least set with the rows of init and of body |
| `loops: {v: {key: …, residual: …}}`, or error and contraction | until a step changes the numbers by no more |

A flag that is computed is refused: `iterate` stops by a measured residual. The papers define repeat(F, n, X) as Fⁿ(X).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltafold.algebra.sqltext import quoted
from deltafold.language.mrql import relations
from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.frames import Frame
from deltafold.language.mrql.rows.scope import Scope, describe
from deltafold.language.mrql.rows.types import Type
from deltafold.language.mrql.rows.values import FrameRows, RecordValue, RelationValue, ScalarValue, Value
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.spans import Span
from deltafold.language.mrql.syntax.tree import Node


@dataclass(frozen=True, kw_only=True)
class RepeatLoop:
    """A loop of a program.

    names: the views of its answers; step_views: the views that its steps read; starts, steps: their SQL; least: whether
    it is a least fixpoint; options: the arguments of `iterate`.
    """

    names: tuple[str, ...]
    step_views: tuple[str, ...]
    starts: tuple[str, ...]
    steps: tuple[str, ...]
    least: bool
    options: Mapping[str, Any]


def translate_repeat(node: T.Repeat, scope: Scope) -> tuple[RepeatLoop, Value]:
    """Translate a repeat to a loop and the value of the whole expression. Raises QueryError."""
    if scope.elements or scope.frame.columns:
        raise node.span.error(
            "a repeat cannot read a row of a select around it. Define it by a name of its own, and read that."
        )
    starts = _loop_collections(node.start, len(node.names), scope)
    types = tuple(_row_type(start, scope, node.start.span) for start in starts)
    types = _widen_types(node, types, scope)
    options = _iterate_options(node, scope)
    step_views = tuple(scope.fresh.fresh(name) for name in node.names)
    bodies = _translate_body(node, step_views, types, scope)
    if not options and not _is_closure(node):
        name = node.names[0]
        closure = f"`select distinct x from x in ({name} union …)`"
        raise node.span.error(f"a repeat without limit may never end. Add `limit n`, or write its step as {closure}.")
    names = tuple(scope.fresh.fresh(name) for name in node.names)

    def select_all(collections: Sequence[RelationValue], span: Span) -> tuple[str, ...]:
        return tuple(_select_loop_rows(*pair, scope, span) for pair in zip(collections, types, strict=True))

    loop = RepeatLoop(
        names=names,
        step_views=step_views,
        starts=select_all(starts, node.start.span),
        steps=select_all(bodies, node.body.span),
        least=not options,
        options=options,
    )
    answers = tuple(_from_view(name, type_) for name, type_ in zip(names, types, strict=True))
    return loop, answers[0] if len(answers) == 1 else RecordValue(None, answers)


def _loop_collections(node: Node, count: int, scope: Scope) -> tuple[RelationValue, ...]:
    """Return the collections that a loop starts with, or that a step gives: one, or one for each name."""
    value = scope.at(scope.frame.child()).value(node)
    values = value.parts if count > 1 and isinstance(value, RecordValue) else (value,)
    if len(values) != count:
        raise node.span.error(f"expected a tuple of {count} collections, found {describe(value, scope)}. Write one.")
    return tuple(relations.lift(collection, scope, node.span) for collection in values)


def _row_type(relation: RelationValue, scope: Scope, span: Span) -> Type:
    """Return the type of a relation's rows."""
    frame = scope.frame.child()
    type_ = v.type_of(scope.at(frame).inside(relation.add_to(frame).value, span))
    assert type_ is not None
    return type_


def _widen_types(node: T.Repeat, types: tuple[Type, ...], scope: Scope) -> tuple[Type, ...]:
    """Return the types that rows of the start and of the step have in common."""
    views = tuple(scope.fresh.fresh("given") for _ in types)
    body_types = [_row_type(body, scope, node.body.span) for body in _translate_body(node, views, types, scope)]
    common = [t.common_type(start, body) for start, body in zip(types, body_types, strict=True)]
    widened = tuple(type_ for type_ in common if type_ is not None)
    if len(widened) < len(types):
        start = ", ".join(map(t.write_type, types))
        step = ", ".join(map(t.write_type, body_types))
        raise node.body.span.error(f"the repeat starts with rows {start}, and its step gives {step}. Cast them.")
    return widened


def _translate_body(
    node: T.Repeat, views: Sequence[str], types: Sequence[Type], scope: Scope
) -> tuple[RelationValue, ...]:
    """Return the result of a step, by the views of the rows that it reads, without flags."""
    names = {name: _from_view(view, type_) for name, view, type_ in zip(node.names, views, types, strict=True)}
    inner = scope.binding(names)
    collections = _loop_collections(node.body, len(node.names), inner)
    match collections:
        case (rows,):
            ends_by_residual = node.names[0] in scope.definitions.loops
            return (_remove_flag(rows, types[0], inner, node.body, may_be_false=ends_by_residual),)
        case _:
            return collections


def _remove_flag(body: RelationValue, type_: Type, scope: Scope, node: Node, *, may_be_false: bool) -> RelationValue:
    """Return the rows of a step; of pairs with a flag, the first parts. may_be_false: whether it may be computed."""
    frame = scope.frame.child()
    row = body.add_to(frame).value
    pair = isinstance(row, RecordValue) and row.names is None and len(row.parts) == 2
    if not pair or not isinstance(row, RecordValue) or v.type_of(row.parts[1]) != t.BOOL:
        return body
    whole = v.type_of(scope.at(frame).inside(row, node.span))
    if whole is not None and t.common_type(type_, whole) is not None:
        return body
    flag = row.parts[1]
    if not (isinstance(flag, ScalarValue) and flag.sql == "true") and not may_be_false:
        raise node.span.error(
            "a repeat cannot end by a flag that its step computes from the rows. Write true as the flag, with "
            "`limit n`, or end the repeat by a residual: loops: {name: {key: …, residual: 1e-4}}."
        )

    def add_to(below: Frame) -> FrameRows:
        value = body.add_to(below).value
        assert isinstance(value, RecordValue)
        return FrameRows(value.parts[0])

    return RelationValue(add_to)


def _from_view(name: str, type_: Type) -> RelationValue:
    """Return the rows of a view of a loop's rows, each time under names of their own."""
    columns = relations.output_column_names(type_)
    items = type_.items if isinstance(type_, t.Record | t.Tuple) and type_.items else (type_,)

    def add_to(frame: Frame) -> FrameRows:
        fresh = tuple(frame.names.fresh(column) for column in columns)
        shown = ", ".join(f"{quoted(column)} AS {new}" for column, new in zip(columns, fresh, strict=True))
        frame.add(lambda: f"(SELECT {shown} FROM {name})", fresh)
        parts = tuple(v.unpack(new, item) for new, item in zip(fresh, items, strict=True))
        if isinstance(type_, t.Record):
            return FrameRows(RecordValue(type_.names, parts, type_.positional))
        return FrameRows(RecordValue(None, parts) if isinstance(type_, t.Tuple) and type_.items else parts[0])

    return RelationValue(add_to)


def _select_loop_rows(relation: RelationValue, type_: Type, scope: Scope, span: Span) -> str:
    """Return the SELECT of rows as they are in a loop: cast to its type, without an order."""

    def add_to(frame: Frame) -> FrameRows:
        inside = scope.at(frame).inside(relation.add_to(frame).value, span)
        return FrameRows(v.convert(inside, type_))

    return relations.answer(RelationValue(add_to), scope.at(scope.frame.child()), span)


def _iterate_options(node: T.Repeat, scope: Scope) -> Mapping[str, Any]:
    """Return when a loop ends, as arguments of `iterate`; empty for a least fixpoint."""
    options = next((scope.definitions.loops[name] for name in node.names if name in scope.definitions.loops), None)
    limit = None if node.limit is None else _step_limit(node.limit, scope)
    if options is not None:
        return options if limit is None else {**options, "limit": limit}
    return {} if limit is None else {"times": limit}


def _step_limit(node: Node, scope: Scope) -> int:
    """Return the number of a limit: an integer, or `toInt(args[i])`."""
    match node:
        case T.Literal(value=int(number)):
            return number
        case T.FunctionCall(name="toInt" | "toLong", arguments=(argument,)):
            value = scope.value(argument)
            if isinstance(value, ScalarValue) and value.sql.strip("'").isdigit():
                return int(value.sql.strip("'"))
        case _:
            pass
    raise node.span.error("the limit of a repeat is a constant. Write a number, or toInt(args[0]).")


def _is_closure(node: T.Repeat) -> bool:
    """Return whether a body is `select distinct x from x in (v union …)`, so that a step never removes a row."""
    match node.names, node.body:
        case (name,), T.Select(distinct=True, head=head, bindings=(binding,), where=None, group=None, order=None):
            sides = _union_sides(binding.domain)
            return head == binding.pattern and binding.is_generator and T.Name(node.span, name) in sides
        case _:
            return False


def _union_sides(node: Node) -> list[Node]:
    """Return the sides of unions."""
    match node:
        case T.SetOperation(operation="union", left=left, right=right) | T.Binary(operator="+", left=left, right=right):
            return [*_union_sides(left), *_union_sides(right)]
        case _:
            return [node]
