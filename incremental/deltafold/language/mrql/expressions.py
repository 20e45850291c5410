"""Translate an expression: one function for each form of the tree.

XML elements are texts: templates build them, `x.@k` is an attribute, `text(x)` and `tag(x)` are Spark's XPath. Child
elements are refused, because no function of Spark gives an element, only the texts within.
"""

from __future__ import annotations

from dataclasses import replace

from deltafold.language.mrql import calls, patterns, relations, selects
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
from deltafold.language.mrql.scalars import casts, indexing, operators
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.tree import Node

UNSUPPORTED_NODES: dict[type[Node], str] = {
    T.XPath: "xpath is not supported yet. Land such files as a source with columns",
    T.Trace: "trace writes to a log while a query runs. Leave it out, and look at explain",
    T.TypeValue: "type(…) is an argument of source. Use `as` for another type",
}
XML_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"))
MISSING_ATTRIBUTE = "raise_error('MRQL: the element has no such attribute')"


def translate(node: Node, scope: Scope) -> Value:
    """Translate an expression. Raises QueryError, with its place, if it has no meaning or is not supported."""
    for repeated, value in scope.repeated:
        if repeated == node:
            return value
    match node:
        case T.Name():
            return _resolve_name(node, scope)
        case T.Select():
            return selects.translate_select(node, scope)
        case T.FunctionCall():
            return calls.translate_call(node, scope)
        case T.Literal() | T.TupleOf() | T.RecordOf() | T.CollectionOf():
            return _build_value(node, scope)
        case T.Binary() | T.Unary() | T.SetOperation():
            return _translate_operation(node, scope)
        case T.Member() | T.TupleComponent() | T.Index() | T.Slice():
            return _translate_part(node, scope)
        case T.IfElse() | T.Let() | T.Case() | T.Quantified() | T.Lambda():
            return _translate_binding_form(node, scope)
        case T.RangeOf() | T.Typed() | T.Repeat() | T.Template() | T.Markup():
            return _translate_other_form(node, scope)
        case _:
            sentence = UNSUPPORTED_NODES.get(type(node), "this form is not supported. Write it another way")
            raise node.span.error(f"{sentence}.")


def _translate_other_form(node: T.RangeOf | T.Typed | T.Repeat | T.Template | T.Markup, scope: Scope) -> Value:
    """Translate a range, a cast, a loop, or a form of XML."""
    match node:
        case T.Template():
            return _translate_template(node, scope)
        case T.Markup():
            return _translate_attribute(node, scope)
        case T.RangeOf(relation=relation, first=first, last=last):
            return indexing.translate_range(scope.value(first), scope.value(last), scope, node.span, relation=relation)
        case T.Typed(value=value, type=type_):
            return casts.cast(scope.value(value), casts.written_type(type_, scope), scope, node.span)
        case T.Repeat():
            return scope.definitions.repeat(node, scope)


def _build_value(node: T.Literal | T.TupleOf | T.RecordOf | T.CollectionOf, scope: Scope) -> Value:
    """Translate a constant, a tuple, a record, a bag or a list."""
    match node:
        case T.Literal(value=value):
            return _translate_literal(value, node)
        case T.TupleOf(items=items):
            return RecordValue(None, tuple(map(scope.value, items)))
        case T.RecordOf(names=names, values=values):
            return RecordValue(names, tuple(map(scope.value, values)))
        case T.CollectionOf(bag=bag, items=items):
            return _build_collection(node, items, scope, bag=bag)


def _resolve_name(node: T.Name, scope: Scope) -> Value:
    """Return the value of a name."""
    definition = scope.names.get(node.name, scope.definitions.names.get(node.name))
    if isinstance(definition, DeferredExpression):
        inner = replace(scope, names=definition.names, repeated=(), calls=definition.calls)
        return scope.translate(definition.node, inner)
    if definition is not None:
        return definition
    if node.name == "args":
        items = ", ".join(map(v.string_literal, scope.definitions.arguments))
        return Array(f"CAST(array({items}) AS ARRAY<STRING>)", t.STRING, bag=False)
    if node.name in ("true", "false"):
        return ScalarValue(node.name, t.BOOL)
    raise node.span.error(f"{node.name} is not defined. Define it, or declare it as a source.")


def _translate_literal(value: str | int | float, node: Node) -> Value:
    """Translate a constant."""
    if isinstance(value, str):
        return ScalarValue(v.string_literal(value), t.STRING)
    if isinstance(value, float):
        return ScalarValue(f"{value!r}D" if value < float("inf") else "CAST('Infinity' AS DOUBLE)", t.DOUBLE)
    if value >= 2**63:
        raise node.span.error("the number does not fit into a long. Write it as a double, such as 1e20.")
    return ScalarValue(str(value), t.INT) if value < 2**31 else ScalarValue(f"{value}L", t.LONG)


def _build_collection(node: Node, items: tuple[Node, ...], scope: Scope, *, bag: bool) -> Value:
    """Translate a bag or a list of expressions."""
    values = [scope.inside(scope.value(item), item.span) for item in items]
    if not values:
        return Array("array()", t.NOTHING, bag, sorted=True)
    same = casts.unify_values(values, scope, node.span, "the elements")
    item = v.type_of(same[0])
    assert item is not None
    return Array(f"array({', '.join(map(v.pack, same))})", item, bag)


def _translate_operation(node: T.Binary | T.Unary | T.SetOperation, scope: Scope) -> Value:
    """Translate an operator."""
    match node:
        case T.Binary(operator=("and" | "or") as word, left=left, right=right):
            return ScalarValue(f"({scope.condition(left)} {word.upper()} {scope.condition(right)})", t.BOOL)
        case T.Binary(operator=operator, left=left, right=right):
            a = scope.value(left)
            b = scope.value(right)
            if operator == "+" and all(isinstance(side, Array | RelationValue | GroupedValues) for side in (a, b)):
                return _combine_collections("union", a, b, scope, node)
            if operator in operators.COMPARISONS:
                return operators.compare_values(operator, a, b, scope, node.span)
            return operators.arithmetic(operator, a, b, scope, node.span)
        case T.Unary(operator="not", value=value):
            return ScalarValue(f"(NOT {scope.condition(value)})", t.BOOL)
        case T.Unary(operator="exists", value=value):
            return exists(scope.value(value), scope, node.span)
        case T.Unary(operator=operator, value=value):
            return operators.apply_sign(operator, scope.value(value), scope, node.span)
        case T.SetOperation(operation=name, left=left, right=right):
            return _combine_collections(name, scope.value(left), scope.value(right), scope, node)


def _combine_collections(operation: str, left: Value, right: Value, scope: Scope, node: Node) -> Value:
    """Translate a union, an intersection or a difference of collections."""
    if isinstance(left, RelationValue) or isinstance(right, RelationValue):
        sides = [relations.lift(side, scope, node.span) for side in (left, right)]
        return relations.combine_relations(operation, sides, scope, node.span)
    inside = [scope.inside(side, node.span) for side in (left, right)]
    for value in inside:
        if not isinstance(value, Array):
            raise node.span.error(
                f"{operation}: expected collections, found {describe(value, scope)}. Write {{…}} around it."
            )
    a, b = casts.unify_values(inside, scope, node.span, f"the sides of {operation}")
    assert isinstance(a, Array) and isinstance(b, Array)
    x = v.pack(a)
    y = v.pack(b)
    bag = a.bag or b.bag
    if operation == "union":
        return Array(f"concat({x}, {y})", a.item, bag)
    element = scope.fresh.fresh("x")
    other = scope.fresh.fresh("y")
    counts = [f"size(filter({side}, {other} -> {other} <=> {element}))" for side in (x, y)]
    copies = f"least({', '.join(counts)})" if operation == "intersect" else f"greatest({counts[0]} - {counts[1]}, 0)"
    repeated = f"transform(array_distinct({x}), {element} -> array_repeat({element}, {copies}))"
    return Array(f"flatten({repeated})", a.item, bag)


def _translate_part(node: T.Member | T.TupleComponent | T.Index | T.Slice, scope: Scope) -> Value:
    """Translate a part of a value."""
    value = scope.value(node.value)
    match node:
        case T.Member(name=name):
            return operators.member(value, name, scope, node.span)
        case T.TupleComponent(position=position):
            return operators.component(value, position, scope, node.span)
        case T.Index(value=T.Name(name="args"), index=T.Literal(value=int(at))) if "args" not in scope.names:
            return _constant_argument(node, at, scope)
        case T.Index(index=index):
            return indexing.index_value(value, scope.value(index), scope, node.span)
        case T.Slice(first=first, last=last):
            return indexing.slice_value(value, scope.value(first), scope.value(last), scope, node.span)


def _constant_argument(node: Node, at: int, scope: Scope) -> Value:
    """Translate `args[at]`: a constant, so that it can be a limit or a path."""
    if at < len(scope.definitions.arguments):
        return ScalarValue(v.string_literal(scope.definitions.arguments[at]), t.STRING)
    count = len(scope.definitions.arguments)
    raise node.span.error(
        f"args[{at}]: there is no such argument: {count} are passed, and the first is args[0]. "
        "Pass more: Mrql(text, args=(…))."
    )


def _translate_binding_form(node: T.IfElse | T.Let | T.Case | T.Quantified | T.Lambda, scope: Scope) -> Value:
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
            return _translate_case(scope.value(value), branches, scope, node)
        case T.Quantified(every=every, bindings=bindings, condition=condition):
            select = T.Select(
                node.span, distinct=False, head=condition, bindings=bindings, where=None, group=None, order=None
            )
            return _quantify(select, scope, every=every)
        case T.Lambda(parameters=parameters, result=result, body=body):
            return Function(parameters, result, body, scope.names)


def _quantify(select: T.Select, scope: Scope, *, every: bool) -> Value:
    """Return whether a condition is true for one element, or for all; over a relation an EXISTS, negated for all."""
    conditions = selects.translate_select(select, scope)
    if not isinstance(conditions, RelationValue):
        return translate_aggregate("all" if every else "some", conditions, scope, select.span)
    is_true = T.FunctionCall(select.span, calls.TRUE, (select.head,))
    where = T.Unary(select.span, "not", is_true) if every else is_true
    any_row = exists(selects.translate_select(replace(select, where=where), scope), scope, select.span)
    return ScalarValue(f"(NOT {any_row.sql})", t.BOOL) if every else any_row


def _translate_case(value: Value, branches: tuple[T.Branch, ...], scope: Scope, node: Node) -> Value:
    """Translate `case`: the first branch whose pattern matches; the last one has to match every other value."""
    value = scope.once(value)
    conditions = list[str]()
    values = list[Value]()
    tags = set[str]()
    for position, branch in enumerate(branches):
        bound = patterns.bind(branch.pattern, value, scope)
        values.append(scope.binding(bound.names).value(branch.body))
        if isinstance(branch.pattern, T.ConstructorPattern) and len(bound.conditions) == 1:
            tags.add(branch.pattern.name)
        if position < len(branches) - 1:
            conditions.append(" AND ".join(bound.conditions) or "true")
        elif bound.conditions and not _has_all_constructors(value, tags):
            raise branch.span.error("the last branch has to match all other values. Add a branch with `*`.")
    return operators.choose(conditions, values, scope, node.span) if conditions else values[0]


def _has_all_constructors(value: Value, tags: set[str]) -> bool:
    """Return whether branches match all constructors of a data type; tags: those that are matched whole."""
    data = value.type if isinstance(value, ScalarValue) else None
    return isinstance(data, t.Data) and set(data.constructors) == tags


def _translate_template(node: T.Template, scope: Scope) -> Value:
    """Translate `[xml| … {{e}} … |]`: scalars are escaped, elements and lists of these go in as they are."""
    if node.name != "xml":
        raise node.span.error(f"there are no templates of {node.name}. Write [xml| … |].")
    pieces = [v.string_literal(node.texts[0])]
    for hole, after in zip(node.holes, node.texts[1:], strict=True):
        pieces += [_fill_hole(scope.inside(scope.value(hole), hole.span), hole, scope), v.string_literal(after)]
    return ScalarValue(f"concat({', '.join(pieces)})", t.XML)


def _fill_hole(value: Value, node: T.Node, scope: Scope) -> str:
    """Return the text of a hole; a missing value is empty."""
    match value:
        case ScalarValue(sql, t.XML):
            return f"coalesce({sql}, '')"
        case ScalarValue(sql, type_) if t.is_scalar(type_):
            text = f"CAST({sql} AS STRING)"
            for character, escape in XML_ESCAPES:
                text = f"replace({text}, {v.string_literal(character)}, {v.string_literal(escape)})"
            return f"coalesce({text}, '')"
        case Array(item=item):
            element = scope.fresh.fresh("x")
            inner = _fill_hole(v.unpack(element, item), node, scope)
            return f"array_join(transform({v.pack(value)}, {element} -> {inner}), '')"
        case _:
            raise node.span.error(
                f"hole of a template: expected scalars and elements, found {describe(value, scope)}. Take a part."
            )


def _translate_attribute(node: T.Markup, scope: Scope) -> Value:
    """Translate `x.@name`: an attribute, an error where it is missing."""
    value = scope.value(node.value)
    if not node.what.startswith("@") or node.what == "@*":
        raise node.span.error("child elements and all attributes at once are not supported. Use text(x), x.@name.")
    if not (isinstance(value, ScalarValue) and value.type == t.XML):
        raise node.span.error(f"attribute: expected XML, found {describe(value, scope)}. Cast a text with `as XML`.")
    path = f"/*/@{node.what[1:]}"
    is_present = f"xpath_boolean({value.sql}, {v.string_literal(path)})"
    text = f"xpath_string({value.sql}, {v.string_literal(path)})"
    return ScalarValue(
        f"CASE WHEN {is_present} THEN {text} WHEN {value.sql} IS NOT NULL THEN {MISSING_ATTRIBUTE} END", t.STRING
    )
