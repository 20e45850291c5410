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
from deltafold.language.mrql.program.answers import answer, output_column_names
from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.frames import Frame
from deltafold.language.mrql.rows.scope import Scope, describe
from deltafold.language.mrql.rows.types import Type
from deltafold.language.mrql.rows.values import FrameRows, RecordValue, RelationValue, ScalarValue, Value
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.spans import Span
from deltafold.language.mrql.syntax.tree import Node


@dataclass(frozen=True)
class RepeatLoop:
    """A loop of a program.

    names: the views of its answers; given: those that its steps read; starts, steps: their texts; least: whether it is
    a least set; options: the arguments of `iterate`.
    """

    names: tuple[str, ...]
    given: tuple[str, ...]
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
    starts = loop_collections(node.start, len(node.names), scope)
    types = tuple(row_type(start, scope, node.start.span) for start in starts)
    types = widen_types(node, types, scope)
    options = ending(node, scope)
    given = tuple(scope.fresh.fresh(name) for name in node.names)
    bodies = body_of(node, given, types, scope)
    least = not options
    if least and not is_closure(node):
        name = node.names[0]
        closure = f"`select distinct x from x in ({name} union …)`"
        raise node.span.error(f"a repeat without limit may never end. Add `limit n`, or write its step as {closure}.")
    names = tuple(scope.fresh.fresh(name) for name in node.names)
    start_texts = tuple(
        select_loop_rows(start, type_, scope, node.start.span) for start, type_ in zip(starts, types, strict=True)
    )
    steps = tuple(
        select_loop_rows(body, type_, scope, node.body.span) for body, type_ in zip(bodies, types, strict=True)
    )
    loop = RepeatLoop(names, given, start_texts, steps, least, options)
    answers = tuple(from_view(name, type_) for name, type_ in zip(names, types, strict=True))
    return loop, answers[0] if len(answers) == 1 else RecordValue(None, answers)


def loop_collections(node: Node, count: int, scope: Scope) -> tuple[RelationValue, ...]:
    """Return the collections that a loop starts with, or that a step gives: one, or one for each name."""
    value = scope.at(scope.frame.child()).value(node)
    values = value.parts if count > 1 and isinstance(value, RecordValue) else (value,)
    if len(values) != count:
        raise node.span.error(f"expected a tuple of {count} collections, found {describe(value, scope)}. Write one.")
    return tuple(relations.lift(each, scope, node.span) for each in values)


def row_type(relation: RelationValue, scope: Scope, span: Span) -> Type:
    """Return the type of a relation's rows."""
    frame = scope.frame.child()
    found = v.type_of(scope.at(frame).inside(relation.add_to(frame).value, span))
    assert found is not None
    return found


def widen_types(node: T.Repeat, types: tuple[Type, ...], scope: Scope) -> tuple[Type, ...]:
    """Return the types that rows of the start and of the step have in common."""
    given = tuple(scope.fresh.fresh("given") for _ in types)
    found = [row_type(body, scope, node.body.span) for body in body_of(node, given, types, scope)]
    common = [t.common_type(a, b) for a, b in zip(types, found, strict=True)]
    made = tuple(each for each in common if each is not None)
    if len(made) < len(types):
        shown = ", ".join(map(t.write_type, types)), ", ".join(map(t.write_type, found))
        raise node.body.span.error(f"the repeat starts with rows {shown[0]}, and its step gives {shown[1]}. Cast them.")
    return made


def body_of(node: T.Repeat, given: Sequence[str], types: Sequence[Type], scope: Scope) -> tuple[RelationValue, ...]:
    """Return the result of a step, by the views of the rows that it reads, without flags."""
    names = {name: from_view(view, type_) for name, view, type_ in zip(node.names, given, types, strict=True)}
    inner = scope.binding(names)
    found = loop_collections(node.body, len(node.names), inner)
    computed = node.names[0] in scope.definitions.loops
    return (flagless(found[0], types[0], inner, node.body, computed),) if len(found) == 1 else found


def flagless(body: RelationValue, type_: Type, scope: Scope, node: Node, computed: bool) -> RelationValue:
    """Return the rows of a step; of pairs with a flag, the first parts. computed: whether the flag may be false."""
    frame = scope.frame.child()
    row = body.add_to(frame).value
    pair = isinstance(row, RecordValue) and row.names is None and len(row.parts) == 2
    if not pair or not isinstance(row, RecordValue) or v.type_of(row.parts[1]) != t.BOOL:
        return body
    whole = v.type_of(scope.at(frame).inside(row, node.span))
    if whole is not None and t.common_type(type_, whole) is not None:
        return body
    flag = row.parts[1]
    if not (isinstance(flag, ScalarValue) and flag.sql == "true") and not computed:
        raise node.span.error(
            "a repeat cannot end by a flag that its step computes from the rows. Write true as the flag, with "
            "`limit n`, or end the repeat by a residual: loops: {name: {key: …, residual: 1e-4}}."
        )

    def add_to(below: Frame) -> FrameRows:
        value = body.add_to(below).value
        assert isinstance(value, RecordValue)
        return FrameRows(value.parts[0])

    return RelationValue(add_to)


def from_view(name: str, type_: Type) -> RelationValue:
    """Return the rows of a view of a loop's rows, each time under names of their own."""
    columns = output_column_names(type_)
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


def select_loop_rows(relation: RelationValue, type_: Type, scope: Scope, span: Span) -> str:
    """Return the SELECT of rows as they are in a loop: cast to its type, without an order."""

    def add_to(frame: Frame) -> FrameRows:
        inside = scope.at(frame).inside(relation.add_to(frame).value, span)
        return FrameRows(v.convert(inside, type_))

    return answer(RelationValue(add_to), scope.at(scope.frame.child()), span)


def ending(node: T.Repeat, scope: Scope) -> Mapping[str, Any]:
    """When a loop ends, as arguments of `iterate`; nothing for a least set."""
    asked = [scope.definitions.loops[name] for name in node.names if name in scope.definitions.loops]
    if asked:
        return {**asked[0], **({"limit": steps(node.limit, scope)} if node.limit is not None else {})}
    return {"times": steps(node.limit, scope)} if node.limit is not None else {}


def steps(node: Node, scope: Scope) -> int:
    """Return the number of a limit: an integer, or `toInt(args[i])`."""
    match node:
        case T.Literal(value=int(number)):
            return number
        case T.FunctionCall(name="toInt" | "toLong", arguments=(argument,)):
            found = scope.value(argument)
            if isinstance(found, ScalarValue) and found.sql.strip("'").isdigit():
                return int(found.sql.strip("'"))
        case _:
            pass
    raise node.span.error("the limit of a repeat is a constant. Write a number, or toInt(args[0]).")


def is_closure(node: T.Repeat) -> bool:
    """Return whether a body is `select distinct x from x in (v union …)`, so that nothing is ever taken back."""
    match node.names, node.body:
        case (name,), T.Select(distinct=True, head=head, bindings=(binding,), where=None, group=None, order=None):
            return head == binding.pattern and binding.each and T.Name(node.span, name) in branches(binding.domain)
        case _:
            return False


def branches(node: Node) -> list[Node]:
    """Return the sides of unions."""
    if isinstance(node, T.SetOperation) and node.operation == "union":
        return [*branches(node.left), *branches(node.right)]
    if isinstance(node, T.Binary) and node.operator == "+":
        return [*branches(node.left), *branches(node.right)]
    return [node]
