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
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.spans import Span
from deltafold.language.mrql.syntax.tree import Node

TRUE = "is true"  # an internal function, which nobody can write: whether a condition is true, and not NULL


def translate_call(node: T.FunctionCall, scope: Scope) -> Value:
    """Translate a call."""
    name = node.name
    definitions = scope.definitions
    local = scope.names.get(name, definitions.names.get(name))
    if isinstance(local, Function | DeferredExpression):
        value = scope.value(T.Name(node.span, name))
        if isinstance(value, Function):
            return _unfold_function(name, value, node, scope)
    if function := definitions.functions.get(name):
        return _unfold_function(name, Function(function.parameters, function.result, function.body, {}), node, scope)
    if macro := definitions.macros.get(name):
        return _expand_macro(macro, node, scope)
    if aggregation := definitions.aggregations.get(name):
        (argument,) = _take_arguments(node, 1)
        return _fold(aggregation, scope.value(argument), scope, node.span)
    if data := definitions.constructors.get(name):
        return _construct(data, node, scope)
    return _translate_builtin(node, scope)


def _take_arguments(node: T.FunctionCall, count: int) -> tuple[Node, ...]:
    """Return the arguments of a call, `count` in number. Raises QueryError for another number."""
    if len(node.arguments) != count:
        expected = f"{count} argument{'s' if count != 1 else ''}"
        raise node.span.error(f"{node.name}: expected {expected}, found {len(node.arguments)}. Correct the call.")
    return node.arguments


def _enter_call(name: str, scope: Scope, span: Span) -> Scope:
    """Return the scope within the body of a function or macro. Raises QueryError for one that calls itself."""
    if name in scope.calls:
        raise span.error(f"{name} calls itself: a query is unfolded before it runs. Use repeat, or a range.")
    return replace(scope, calls=(*scope.calls, name))


def _unfold_function(name: str, function: Function, node: T.FunctionCall, scope: Scope) -> Value:
    """Translate the body of a function, with the values of the arguments as its parameters."""
    arguments = _take_arguments(node, len(function.parameters))
    inner = _enter_call(name, scope, node.span)
    names = dict(function.names)
    for parameter, argument in zip(function.parameters, arguments, strict=True):
        value = scope.once(scope.value(argument))
        names[parameter.name] = casts.widen(value, casts.written_type(parameter.type, scope), scope, argument.span)
    value = replace(inner, names=names, repeated=()).value(function.body)
    return casts.widen(value, casts.written_type(function.result, scope), scope, function.body.span)


def _expand_macro(macro: T.MacroDefinition, node: T.FunctionCall, scope: Scope) -> Value:
    """Translate the body of a macro, with the arguments as they are written."""
    arguments = _take_arguments(node, len(macro.parameters))
    inner = _enter_call(macro.name, scope, node.span)
    names = {
        p: DeferredExpression(a, scope.names, scope.calls) for p, a in zip(macro.parameters, arguments, strict=True)
    }
    return replace(inner, names=names, repeated=()).value(macro.body)


def _construct(data: t.Data, node: T.FunctionCall, scope: Scope) -> Value:
    """Return a value of a data type: its tag, and the constructor's argument."""
    type_ = data.items[data.constructors.index(node.name)]
    argument = node.arguments[0] if len(node.arguments) == 1 else T.TupleOf(node.span, node.arguments)
    value = casts.widen(scope.inside(scope.value(argument), node.span), type_, scope, argument.span)
    fields = [
        f"'{name}', {v.pack(value) if name == node.name else f'CAST(NULL AS {t.sql_type(item)})'}"
        for name, item in zip(data.constructors, data.items, strict=True)
    ]
    return ScalarValue(f"named_struct('tag', '{node.name}', {', '.join(fields)})", data)


def _fold(aggregation: T.AggregationDefinition, value: Value, scope: Scope, span: Span) -> Value:
    """Apply an aggregation of the program: plus over the units of the elements, from zero; NULLs are left out."""
    array = scope.inside(value, span)
    if not isinstance(array, Array):
        shown = describe(value, scope)
        raise span.error(f"{aggregation.name}: expected a collection, found {shown}. Write {{…}} around it.")
    type_ = casts.written_type(aggregation.type, scope)
    total = scope.fresh.fresh("s")
    element = scope.fresh.fresh("x")
    inner = replace(scope.within(total, element), names={}, repeated=())
    unit = v.unpack(element, array.item)
    if aggregation.unit is not None:
        unit = _apply_function(aggregation.unit, [unit], inner, span)
    unit = casts.widen(unit, type_, inner, span if aggregation.unit is None else aggregation.unit.span)
    zero = casts.widen(replace(scope, names={}).value(aggregation.zero), type_, scope, aggregation.zero.span)
    plus = _apply_function(aggregation.plus, [v.unpack(total, type_), unit], inner, aggregation.plus.span)
    plus = casts.widen(plus, type_, inner, aggregation.plus.span)
    sql_type = t.sql_type(type_)
    step = f"({total}, {element}) -> CAST({v.pack(plus)} AS {sql_type})"
    present = f"filter({v.pack(array)}, {element} -> {element} IS NOT NULL)"
    return v.unpack(f"aggregate({present}, CAST({v.pack(zero)} AS {sql_type}), {step})", type_)


def _apply_function(function: Node, values: Sequence[Value], scope: Scope, span: Span) -> Value:
    """Apply a function, by its name or as a lambda, to values."""
    names = {f"argument {position}": value for position, value in enumerate(values)}
    nodes = tuple(T.Name(span, name) for name in names)
    if isinstance(function, T.Name):
        return scope.binding(names).value(T.FunctionCall(span, function.name, nodes))
    value = scope.value(function)
    if not isinstance(value, Function):
        raise function.span.error("expected a function. Name one, or write a lambda.")
    return _unfold_function("this lambda", value, T.FunctionCall(span, "this lambda", nodes), scope.binding(names))


def _translate_builtin(node: T.FunctionCall, scope: Scope) -> Value:
    """Translate an aggregate or a function that MRQL has."""
    name = node.name
    span = node.span
    if name in AGGREGATE_NAMES and (len(node.arguments) == 1 or name not in functions.FUNCTIONS):
        return translate_aggregate(name, scope.value(_take_arguments(node, 1)[0]), scope, span)
    if name in functions.FUNCTIONS or name in functions.REFUSED_FUNCTIONS:
        return functions.apply_scalar(name, [scope.value(a) for a in node.arguments], scope, span)
    if name == TRUE:
        return ScalarValue(f"coalesce({scope.condition(node.arguments[0])}, false)", t.BOOL)
    match name:
        case "member":
            element, collection = _take_arguments(node, 2)
            return _is_member(scope.value(element), scope.value(collection), scope, span)
        case "elem":
            return indexing.translate_elem(scope.value(_take_arguments(node, 1)[0]), scope, span)
        case "source" | "stream":
            return scope.definitions.source(node, scope)
        case _:
            raise span.error(f"{name} is not a function. Define it, or correct its name.")


def _is_member(value: Value, collection: Value, scope: Scope, span: Span) -> Value:
    """Return whether a collection has an element that equals a value."""
    if isinstance(collection, GroupedValues):
        collection = scope.inside(collection, span)
    if isinstance(collection, Array):
        value = scope.once(value)
        element = scope.fresh.fresh("x")
        equal = operators.equal(v.unpack(element, collection.item), value, scope.within(element), span)
        return ScalarValue(f"exists({collection.sql}, {element} -> coalesce({equal}, false))", t.BOOL)
    relation = relations.lift(collection, scope, span)

    def add_to(frame: Frame) -> FrameRows:
        added = relation.add_to(frame)
        frame.filter(operators.equal(added.value, value, scope.at(frame), span))
        return added

    return exists(RelationValue(add_to), scope, span)
