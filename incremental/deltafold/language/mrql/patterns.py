"""Bind the variables of a pattern to the parts of a value, and test which values match.

| pattern | binds | matches |
| --- | --- | --- |
| a name | the value | all; where the name is bound already in the same from clause, values that are equal to it |
| `*` | nothing | all |
| a constant | nothing | values that are equal to it |
| a tuple, a record | the parts | all |
| `[a, b]` | the elements | lists of two |
| a constructor | its argument | values with its tag |
| `p as t` | the value as t | all |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.scope import Scope, describe
from deltafold.language.mrql.rows.values import Array, RecordValue, ScalarValue, Value
from deltafold.language.mrql.scalars import casts, operators
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.tree import Node


@dataclass(frozen=True)
class Bound:
    """The variables of patterns, and the conditions under which they take their values."""

    names: Mapping[str, Value] = field(default_factory=dict[str, Value])
    conditions: tuple[str, ...] = ()


def bind(pattern: Node, value: Value, scope: Scope, before: Bound | None = None) -> Bound:
    """Bind the variables of a pattern; before: those of the patterns before it in the same from clause."""
    bound = before or Bound()
    match pattern:
        case T.Anything():
            return bound
        case T.Name(span=span, name=name):
            if name not in bound.names:
                return Bound({**bound.names, name: value}, bound.conditions)
            return _add_condition(bound, operators.equal(bound.names[name], value, scope, span))
        case T.Literal():
            return _add_condition(bound, operators.equal(scope.value(pattern), value, scope, pattern.span))
        case T.TypedPattern(pattern=inner, type=type_):
            return bind(inner, casts.cast(value, casts.written_type(type_, scope), scope, pattern.span), scope, bound)
        case T.TuplePattern(items=items):
            return _bind_parts(items, _tuple_parts(pattern, value, len(items), scope), scope, bound)
        case T.RecordPattern(names=names, items=items):
            values = [operators.member(value, name, scope, pattern.span) for name in names]
            return _bind_parts(items, values, scope, bound)
        case T.ListPattern(items=items):
            return _bind_list(pattern, items, value, scope, bound)
        case T.ConstructorPattern(name=name, items=items):
            return _bind_constructor(pattern, name, items, value, scope, bound)
        case _:
            raise pattern.span.error("this pattern is not supported. Bind a name, and look at its parts below.")


def _add_condition(bound: Bound, condition: str) -> Bound:
    """Add a condition."""
    return replace(bound, conditions=(*bound.conditions, condition))


def _bind_parts(items: Sequence[Node], values: Sequence[Value], scope: Scope, bound: Bound) -> Bound:
    """Bind patterns to values one by one."""
    for item, value in zip(items, values, strict=True):
        bound = bind(item, value, scope, bound)
    return bound


def _tuple_parts(pattern: Node, value: Value, count: int, scope: Scope) -> Sequence[Value]:
    """Return the `count` parts of a tuple; a row of a source counts as one. Raises QueryError for another value."""
    if isinstance(value, RecordValue) and len(value.parts) == count and (value.names is None or value.positional):
        return value.parts
    raise pattern.span.error(
        f"pattern: expected a tuple of {count}, found {describe(value, scope)}. Write a pattern of that form."
    )


def _bind_list(pattern: Node, items: Sequence[Node], value: Value, scope: Scope, bound: Bound) -> Bound:
    """Bind patterns to the elements of a list of the same length."""
    value = scope.inside(value, pattern.span)
    if not isinstance(value, Array):
        raise pattern.span.error(f"pattern: expected a list, found {describe(value, scope)}. Bind a name instead.")
    bound = _add_condition(bound, f"size({value.sql}) = {len(items)}")
    elements = [v.unpack(f"get({v.pack(value)}, {position})", value.item) for position in range(len(items))]
    return _bind_parts(items, elements, scope, bound)


def _bind_constructor(
    pattern: Node, name: str, items: Sequence[Node], value: Value, scope: Scope, bound: Bound
) -> Bound:
    """Bind patterns to the argument of a constructor, where the value has its tag."""
    if not (isinstance(value, ScalarValue) and isinstance(value.type, t.Data) and name in value.type.constructors):
        data = value.type if isinstance(value, ScalarValue) and isinstance(value.type, t.Data) else None
        instead = f"Use {' or '.join(data.constructors)}" if data else "Match a value of a data type"
        raise pattern.span.error(f"{name} is not a constructor of {describe(value, scope)}. {instead}.")
    type_ = value.type.items[value.type.constructors.index(name)]
    inner = v.unpack(f"{value.sql}.`{name}`", type_)
    bound = _add_condition(bound, f"({value.sql}.tag = '{name}')")
    if len(items) == 1:
        return bind(items[0], inner, scope, bound)
    return _bind_parts(items, _tuple_parts(pattern, inner, len(items), scope), scope, bound)


def bind_key(group: T.GroupBy, key: Value, scope: Scope) -> Scope:
    """Bind the names of a group's key; without a pattern the head may repeat the expression or its parts."""
    if group.pattern is not None:
        bound = bind(group.pattern, key, scope)
        if bound.conditions:
            raise group.pattern.span.error(
                "the pattern of a group by has to match every key. Bind names, and test them in `having`."
            )
        return scope.binding(bound.names)
    pairs = [(group.key, key)]
    if isinstance(group.key, T.TupleOf | T.RecordOf) and isinstance(key, RecordValue):
        nodes = group.key.items if isinstance(group.key, T.TupleOf) else group.key.values
        pairs += zip(nodes, key.parts, strict=True)
    return replace(scope, repeated=(*scope.repeated, *pairs))
