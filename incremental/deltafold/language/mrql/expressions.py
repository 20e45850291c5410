"""Translate an expression: one function for each form of the tree."""

from __future__ import annotations

from dataclasses import replace

from deltafold.language.mrql import calls, comprehensions, patterns, relations
from deltafold.language.mrql.aggregates import exists, translate_aggregate
from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.scope import DeferredExpression, Scope, describe
from deltafold.language.mrql.rows.values import (
    Array,
    Function,
    GroupedValues,
    RecordValue,
    RelationValue,
    ScalarValue,
    Value,
)
from deltafold.language.mrql.scalars import casts, indexing, markup, operators
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.tree import Node


def translate(node: Node, scope: Scope) -> Value:
    """Translate an expression. Raises QueryError, with its place, if it has no meaning or is not supported."""
    for repeated, value in scope.repeated:
        if repeated == node:
            return value
    match node:
        case T.Name():
            return resolve_name(node, scope)
        case T.Select():
            return comprehensions.translate_select(node, scope)
        case T.FunctionCall():
            return calls.translate_call(node, scope)
        case T.Literal() | T.TupleOf() | T.RecordOf() | T.CollectionOf():
            return build_value(node, scope)
        case T.Binary() | T.Unary() | T.SetOperation():
            return operation(node, scope)
        case T.Member() | T.TupleComponent() | T.Index() | T.Slice():
            return translate_part(node, scope)
        case T.IfElse() | T.Let() | T.Case() | T.Quantified() | T.Lambda():
            return translate_binding_form(node, scope)
        case T.RangeOf() | T.Typed() | T.Repeat() | T.Template() | T.Markup():
            return other(node, scope)
        case _:
            raise calls.refuse_form(node)


def other(node: T.RangeOf | T.Typed | T.Repeat | T.Template | T.Markup, scope: Scope) -> Value:
    """Translate a range, a cast, a loop, or a form of XML."""
    match node:
        case T.Template():
            return markup.translate_template(node, scope)
        case T.Markup():
            return markup.translate_attribute(node, scope)
        case T.RangeOf(relation=relation, first=first, last=last):
            return indexing.spread(scope.value(first), scope.value(last), relation, scope, node.span)
        case T.Typed(value=value, type=type_):
            return casts.cast(scope.value(value), casts.written_type(type_, scope), scope, node.span)
        case T.Repeat():
            return scope.definitions.repeat(node, scope)


def build_value(node: T.Literal | T.TupleOf | T.RecordOf | T.CollectionOf, scope: Scope) -> Value:
    """Translate a constant, a tuple, a record, a bag or a list."""
    match node:
        case T.Literal(value=value):
            return translate_literal(value, node)
        case T.TupleOf(items=items):
            return RecordValue(None, tuple(map(scope.value, items)))
        case T.RecordOf(names=names, values=values):
            return RecordValue(names, tuple(map(scope.value, values)))
        case T.CollectionOf(bag=bag, items=items):
            return build_collection(node, bag, items, scope)


def resolve_name(node: T.Name, scope: Scope) -> Value:
    """Return the value of a name."""
    known = scope.names.get(node.name, scope.definitions.names.get(node.name))
    if isinstance(known, DeferredExpression):
        return scope.translate(known.node, replace(scope, names=known.names, repeated=(), calls=known.calls))
    if known is not None:
        return known
    if node.name == "args":
        items = ", ".join(map(v.string_literal, scope.definitions.arguments))
        return Array(f"CAST(array({items}) AS ARRAY<STRING>)", t.STRING, False)
    if node.name in ("true", "false"):
        return ScalarValue(node.name, t.BOOL)
    raise node.span.error(f"{node.name} is not defined. Define it, or declare it as a source.")


def translate_literal(value: str | int | float, node: Node) -> Value:
    """Translate a constant."""
    if isinstance(value, str):
        return ScalarValue(v.string_literal(value), t.STRING)
    if isinstance(value, float):
        return ScalarValue(f"{value!r}D" if value < float("inf") else "CAST('Infinity' AS DOUBLE)", t.DOUBLE)
    if value >= 2**63:
        raise node.span.error("the number does not fit into a long. Write it as a double, such as 1e20.")
    return ScalarValue(str(value), t.INT) if value < 2**31 else ScalarValue(f"{value}L", t.LONG)


def build_collection(node: Node, bag: bool, items: tuple[Node, ...], scope: Scope) -> Value:
    """Translate a bag or a list of expressions."""
    values = [scope.inside(scope.value(item), item.span) for item in items]
    if not values:
        return Array("array()", t.NOTHING, bag, True)
    same = casts.unify_values(values, scope, node.span, "the elements")
    item = v.type_of(same[0])
    assert item is not None
    return Array(f"array({', '.join(map(v.pack, same))})", item, bag)


def operation(node: T.Binary | T.Unary | T.SetOperation, scope: Scope) -> Value:
    """Translate an operator."""
    match node:
        case T.Binary(operator=("and" | "or") as word, left=left, right=right):
            return ScalarValue(f"({scope.condition(left)} {word.upper()} {scope.condition(right)})", t.BOOL)
        case T.Binary(operator=operator, left=left, right=right):
            a, b = scope.value(left), scope.value(right)
            if operator == "+" and all(isinstance(side, Array | RelationValue | GroupedValues) for side in (a, b)):
                return combine_collections("union", a, b, scope, node)
            if operator in operators.SPARK_COMPARISON:
                return operators.compare_values(operator, a, b, scope, node.span)
            return operators.arithmetic(operator, a, b, scope, node.span)
        case T.Unary(operator="not", value=value):
            return ScalarValue(f"(NOT {scope.condition(value)})", t.BOOL)
        case T.Unary(operator="exists", value=value):
            return exists(scope.value(value), scope, node.span)
        case T.Unary(operator=operator, value=value):
            return operators.apply_sign(operator, scope.value(value), scope, node.span)
        case T.SetOperation(operation=name, left=left, right=right):
            return combine_collections(name, scope.value(left), scope.value(right), scope, node)


def combine_collections(operation: str, left: Value, right: Value, scope: Scope, node: Node) -> Value:
    """Translate a union, an intersection or a difference of collections."""
    if isinstance(left, RelationValue) or isinstance(right, RelationValue):
        sides = [relations.lift(left, scope, node.span), relations.lift(right, scope, node.span)]
        return relations.combine_relations(operation, sides, scope, node.span)
    inside = [scope.inside(left, node.span), scope.inside(right, node.span)]
    for value in inside:
        if not isinstance(value, Array):
            raise node.span.error(
                f"{operation}: expected collections, found {describe(value, scope)}. Write {{…}} around it."
            )
    a, b = casts.unify_values(inside, scope, node.span, f"the sides of {operation}")
    assert isinstance(a, Array) and isinstance(b, Array)
    x, y = v.pack(a), v.pack(b)
    bag = a.bag or b.bag
    if operation == "union":
        return Array(f"concat({x}, {y})", a.item, bag)
    each, one = scope.fresh.fresh("x"), scope.fresh.fresh("y")
    counts = [f"size(filter({side}, {one} -> {one} <=> {each}))" for side in (x, y)]
    kept = f"least({', '.join(counts)})" if operation == "intersect" else f"greatest({counts[0]} - {counts[1]}, 0)"
    return Array(f"flatten(transform(array_distinct({x}), {each} -> array_repeat({each}, {kept})))", a.item, bag)


def translate_part(node: T.Member | T.TupleComponent | T.Index | T.Slice, scope: Scope) -> Value:
    """Translate a part of a value."""
    value = scope.value(node.value)
    match node:
        case T.Member(name=name):
            return operators.member(value, name, scope, node.span)
        case T.TupleComponent(position=position):
            return operators.component(value, position, scope, node.span)
        case T.Index(value=T.Name(name="args"), index=T.Literal(value=int(at))) if "args" not in scope.names:
            return constant_argument(node, at, scope)
        case T.Index(index=index):
            return indexing.index_value(value, scope.value(index), scope, node.span)
        case T.Slice(first=first, last=last):
            return indexing.slice_value(value, scope.value(first), scope.value(last), scope, node.span)


def constant_argument(node: Node, at: int, scope: Scope) -> Value:
    """Translate `args[at]`: a constant, so that it can be a limit or a path."""
    if at < len(scope.definitions.arguments):
        return ScalarValue(v.string_literal(scope.definitions.arguments[at]), t.STRING)
    count = len(scope.definitions.arguments)
    raise node.span.error(
        f"args[{at}]: there is no such argument: {count} are passed, and the first is args[0]. "
        "Pass more: Mrql(text, args=(…))."
    )


def translate_binding_form(node: T.IfElse | T.Let | T.Case | T.Quantified | T.Lambda, scope: Scope) -> Value:
    """Translate a form that binds names or chooses."""
    match node:
        case T.IfElse(condition=condition, yes=yes, no=no):
            return operators.choose([scope.condition(condition)], [scope.value(yes), scope.value(no)], scope, node.span)
        case T.Let(pattern=pattern, value=value, body=body):
            bound = patterns.bind(pattern, scope.once(scope.value(value)), scope)
            if bound.conditions:
                raise pattern.span.error(
                    "the pattern of a let has to match every value. Use case for constants and constructors."
                )
            return scope.binding(bound.names).value(body)
        case T.Case(value=value, branches=branches):
            return translate_case(scope.value(value), branches, scope, node)
        case T.Quantified(every=every, bindings=bindings, condition=condition):
            select = T.Select(node.span, False, condition, bindings, None, None, None)
            return quantify(select, every, scope)
        case T.Lambda(parameters=parameters, result=result, body=body):
            return Function(parameters, result, body, scope.names)


def quantify(select: T.Select, every: bool, scope: Scope) -> Value:
    """Return whether a condition is true for one element, or for all; over a relation an EXISTS, negated for all."""
    found = comprehensions.translate_select(select, scope)
    if not isinstance(found, RelationValue):
        return translate_aggregate("all" if every else "some", found, scope, select.span)
    span, condition = select.span, select.head
    true = T.FunctionCall(span, calls.TRUE, (condition,))
    where = T.Unary(span, "not", true) if every else true
    found = exists(comprehensions.translate_select(replace(select, where=where), scope), scope, span)
    return ScalarValue(f"(NOT {found.sql})", t.BOOL) if every else found


def translate_case(value: Value, branches: tuple[T.Branch, ...], scope: Scope, node: Node) -> Value:
    """Translate `case`: the first branch whose pattern matches; the last one has to match every other value."""
    value = scope.once(value)
    conditions, values, tags = list[str](), list[Value](), set[str]()
    for position, branch in enumerate(branches):
        bound = patterns.bind(branch.pattern, value, scope)
        values.append(scope.binding(bound.names).value(branch.body))
        if isinstance(branch.pattern, T.ConstructorPattern) and len(bound.conditions) == 1:
            tags.add(branch.pattern.name)
        if position < len(branches) - 1:
            conditions.append(" AND ".join(bound.conditions) or "true")
        elif bound.conditions and not complete(value, tags):
            raise branch.span.error("the last branch has to take all that is left. Add a branch with `*`.")
    return operators.choose(conditions, values, scope, node.span) if conditions else values[0]


def complete(value: Value, tags: set[str]) -> bool:
    """Return whether the branches have all constructors of a data type; tags: of those that ask for nothing else."""
    data = value.type if isinstance(value, ScalarValue) else None
    return isinstance(data, t.Data) and set(data.constructors) == tags
