"""Calls: functions, macros, aggregations and constructors of the program, aggregates, and scalar functions.

A function is unfolded with the values of its arguments, a macro with its arguments as they are written, translated
wherever their names occur with the names around the call. A user aggregation folds the collected, sorted bag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deltafold.language.mrql import relations
from deltafold.language.mrql.aggregates import AGGREGATE_NAMES, exists, translate_aggregate
from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.frames import Frame
from deltafold.language.mrql.rows.scope import DeferredExpression, Scope, describe
from deltafold.language.mrql.rows.values import (
    Array,
    FrameRows,
    Function,
    GroupedValues,
    RelationValue,
    ScalarValue,
    Value,
)
from deltafold.language.mrql.scalars import casts, functions, indexing, operators
from deltafold.language.mrql.syntax import items as I
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.spans import Span
from deltafold.language.mrql.syntax.tree import Node

TRUE = "is true"  # the name of no function that anybody can write: whether a condition is true, and not NULL
UNSUPPORTED_NODES: dict[type[Node], str] = {
    T.XPath: "xpath is not supported yet. Land such files as a source with columns",
    T.Trace: "trace writes to a log while a query runs. Leave it out, and look at explain",
    T.TypeValue: "type(…) is an argument of source. Use `as` for another type",
}


def refuse_form(node: Node) -> Exception:
    """Return the error for a form that is not supported."""
    sentence = UNSUPPORTED_NODES.get(type(node), "this form is not supported. Write it another way")
    return node.span.error(f"{sentence}.")


def translate_call(node: T.FunctionCall, scope: Scope) -> Value:
    """Translate a call."""
    name, definitions, span = node.name, scope.definitions, node.span
    local = scope.names.get(name, definitions.names.get(name))
    if isinstance(local, Function | DeferredExpression):
        found = scope.value(T.Name(span, name))
        if isinstance(found, Function):
            return unfold_function(name, found, node, scope)
    if function := definitions.functions.get(name):
        return unfold_function(name, Function(function.parameters, function.result, function.body, {}), node, scope)
    if macro := definitions.macros.get(name):
        return expand_macro(macro, node, scope)
    if aggregation := definitions.aggregations.get(name):
        (argument,) = exactly(node, 1)
        return fold(aggregation, scope.value(argument), scope, span)
    if data := definitions.constructors.get(name):
        return construct(data, node, scope)
    return builtin(node, scope)


def exactly(node: T.FunctionCall, count: int) -> tuple[Node, ...]:
    """Return the arguments of a call, `count` in number. Raises QueryError for another number."""
    if len(node.arguments) != count:
        expected = f"{count} argument{'s' if count != 1 else ''}"
        raise node.span.error(f"{node.name}: expected {expected}, found {len(node.arguments)}. Correct the call.")
    return node.arguments


def deeper(name: str, scope: Scope, span: Span) -> Scope:
    """Return the scope within the body of a function or macro; raises QueryError for one that calls itself."""
    if name in scope.calls:
        raise span.error(f"{name} calls itself: a query is unfolded before it runs. Use repeat, or a range.")
    return replace(scope, calls=(*scope.calls, name))


def unfold_function(name: str, function: Function, node: T.FunctionCall, scope: Scope) -> Value:
    """Translate the body of a function, with the values of the arguments as its parameters."""
    arguments = exactly(node, len(function.parameters))
    inner = deeper(name, scope, node.span)
    names = dict(function.names)
    for parameter, argument in zip(function.parameters, arguments, strict=True):
        value = scope.once(scope.value(argument))
        names[parameter.name] = casts.widen(value, casts.written_type(parameter.type, scope), scope, argument.span)
    value = replace(inner, names=names, repeated=()).value(function.body)
    return casts.widen(value, casts.written_type(function.result, scope), scope, function.body.span)


def expand_macro(macro: I.MacroDefinition, node: T.FunctionCall, scope: Scope) -> Value:
    """Translate the body of a macro, with the arguments as they are written."""
    arguments = exactly(node, len(macro.parameters))
    inner = deeper(macro.name, scope, node.span)
    names = {
        p: DeferredExpression(a, scope.names, scope.calls) for p, a in zip(macro.parameters, arguments, strict=True)
    }
    return replace(inner, names=names, repeated=()).value(macro.body)


def construct(data: t.Data, node: T.FunctionCall, scope: Scope) -> Value:
    """Return a value of a data type: its tag, and the constructor's argument."""
    span, held = node.span, data.items[data.constructors.index(node.name)]
    argument = node.arguments[0] if len(node.arguments) == 1 else T.TupleOf(span, node.arguments)
    value = casts.widen(scope.inside(scope.value(argument), span), held, scope, argument.span)
    fields = [
        f"'{name}', {v.pack(value) if name == node.name else f'CAST(NULL AS {t.sql_type(item)})'}"
        for name, item in zip(data.constructors, data.items, strict=True)
    ]
    return ScalarValue(f"named_struct('tag', '{node.name}', {', '.join(fields)})", data)


def fold(aggregation: I.AggregationDefinition, value: Value, scope: Scope, span: Span) -> Value:
    """Apply a user aggregation: plus over the units of the elements, from zero; NULL is left out."""
    array = scope.inside(value, span)
    if not isinstance(array, Array):
        shown = describe(value, scope)
        raise span.error(f"{aggregation.name}: expected a collection, found {shown}. Write {{…}} around it.")
    type_ = casts.written_type(aggregation.type, scope)
    total, each = scope.fresh.fresh("s"), scope.fresh.fresh("x")
    inner = replace(scope.within(total, each), names={}, repeated=())
    element = v.unpack(each, array.item)
    unit = element if aggregation.unit is None else apply_function(aggregation.unit, [element], inner, span)
    unit = casts.widen(unit, type_, inner, span if aggregation.unit is None else aggregation.unit.span)
    zero = casts.widen(replace(scope, names={}).value(aggregation.zero), type_, scope, aggregation.zero.span)
    merge = aggregation.plus.span
    plus = apply_function(aggregation.plus, [v.unpack(total, type_), unit], inner, merge)
    plus = casts.widen(plus, type_, inner, merge)
    sql_type = t.sql_type(type_)
    step = f"({total}, {each}) -> CAST({v.pack(plus)} AS {sql_type})"
    known = f"filter({v.pack(array)}, {each} -> {each} IS NOT NULL)"
    return v.unpack(f"aggregate({known}, CAST({v.pack(zero)} AS {sql_type}), {step})", type_)


def apply_function(function: Node, values: Sequence[Value], scope: Scope, span: Span) -> Value:
    """Apply a function, by its name or as a lambda, to values."""
    names = {f"argument {position}": value for position, value in enumerate(values)}
    nodes = tuple(T.Name(span, name) for name in names)
    if isinstance(function, T.Name):
        return scope.binding(names).value(T.FunctionCall(span, function.name, nodes))
    found = scope.value(function)
    if not isinstance(found, Function):
        raise function.span.error("expected a function. Name one, or write a lambda.")
    return unfold_function("this lambda", found, T.FunctionCall(span, "this lambda", nodes), scope.binding(names))


def builtin(node: T.FunctionCall, scope: Scope) -> Value:
    """Translate an aggregate or a function that MRQL has."""
    name, span = node.name, node.span
    if name in AGGREGATE_NAMES and (len(node.arguments) == 1 or name not in functions.FUNCTIONS):
        return translate_aggregate(name, scope.value(exactly(node, 1)[0]), scope, span)
    if name in functions.FUNCTIONS or name in functions.REFUSED_FUNCTIONS:
        return functions.apply_scalar(name, [scope.value(a) for a in node.arguments], scope, span)
    if name == TRUE:
        return ScalarValue(f"coalesce({scope.condition(node.arguments[0])}, false)", t.BOOL)
    match name:
        case "member":
            x, c = exactly(node, 2)
            return is_member(scope.value(x), scope.value(c), scope, span)
        case "elem":
            return indexing.only(scope.value(exactly(node, 1)[0]), scope, span)
        case "source" | "stream":
            return scope.definitions.source(node, scope)
        case _:
            raise span.error(f"{name} is not a function. Define it, or correct its name.")


def is_member(value: Value, collection: Value, scope: Scope, span: Span) -> Value:
    """Return whether a collection has an element that equals a value."""
    if isinstance(collection, GroupedValues):
        collection = scope.inside(collection, span)
    if isinstance(collection, Array):
        value = scope.once(value)
        each = scope.fresh.fresh("x")
        equal = operators.equal(v.unpack(each, collection.item), value, scope.within(each), span)
        return ScalarValue(f"exists({collection.sql}, {each} -> coalesce({equal}, false))", t.BOOL)
    relation = relations.lift(collection, scope, span)

    def add_to(frame: Frame) -> FrameRows:
        added = relation.add_to(frame)
        frame.filter(operators.equal(added.value, value, scope.at(frame), span))
        return added

    return exists(RelationValue(add_to), scope, span)
