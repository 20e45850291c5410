"""Types as they are written, and conversions of values to them.

`value as type` casts. A value for a declared type, such as that of a parameter, is only widened.
"""

from __future__ import annotations

from collections.abc import Callable

from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.scope import Scope, describe
from deltafold.language.mrql.rows.types import Type
from deltafold.language.mrql.rows.values import (
    Array,
    FrameRows,
    GroupedValues,
    RecordValue,
    RelationValue,
    ScalarValue,
    Value,
)
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.spans import Span
from deltafold.language.mrql.syntax.tree import Node

APPLY_TO_ELEMENTS = "It is a collection: apply the function to each value, `select f(x) from x in …`"
SMALL: dict[Type, int] = {t.Basic("byte"): 2**7, t.Basic("short"): 2**15}
CanConvert = Callable[[ScalarValue, Type], bool]
"""Whether a scalar may be converted to a type."""


def written_type(node: Node, scope: Scope) -> Type:
    """Return the type that is written. Raises QueryError for a name that is not a type."""
    match node:
        case T.NamedType(span=span, name=name, arguments=arguments):
            return _find_type(name, [written_type(argument, scope) for argument in arguments], scope, span)
        case T.TupleType(items=items):
            return t.Tuple(tuple(written_type(item, scope) for item in items))
        case T.RecordType(fields=fields):
            return t.Record(tuple(f.name for f in fields), tuple(written_type(f.type, scope) for f in fields))
        case T.CollectionType(bag=bag, item=item):
            return t.Collection(bag, written_type(item, scope))
        case _:
            raise node.span.error("this is not a type. Write one such as int, <a: int> or {string}.")


def _find_type(name: str, arguments: list[Type], scope: Scope, span: Span) -> Type:
    """Return a type by its name."""
    if defined := scope.definitions.types.get(name):
        return defined
    if len(arguments) == 1 and name.lower() in ("list", "bag", "set"):
        return t.Collection(name.lower() != "list", arguments[0])
    if name in t.NAMED_TYPES and not arguments:
        return t.NAMED_TYPES[name]
    raise span.error(f"{name} is not a type. Use one of {', '.join(t.NAMED_TYPES)}, or define it with `type`.")


def _can_cast(value: ScalarValue, wanted: Type) -> bool:
    """Return whether `as` converts a scalar to a type."""
    return value.type == wanted or isinstance(value.type, t.Basic | t.Foreign)


def _can_widen(value: ScalarValue, wanted: Type) -> bool:
    """Return whether a scalar has a type, or is a number of a smaller one, or a constant that is small enough."""
    if value.type == t.NOTHING or t.common_type(value.type, wanted) == wanted:
        return True
    if isinstance(value.type, t.Foreign) and t.DECIMAL.fullmatch(value.type.sql):
        return wanted in (t.FLOAT, t.DOUBLE)
    if value.sql.isdigit():
        return int(value.sql) < SMALL.get(wanted, 0)
    return wanted == t.FLOAT and value.type == t.DOUBLE and value.sql[:1].isdigit()


def widen(value: Value, wanted: Type, scope: Scope, span: Span) -> Value:
    """Return a value of a declared type. Raises QueryError for another type, except for numbers of smaller types."""
    return cast(value, wanted, scope, span, _can_widen)


def cast(value: Value, wanted: Type, scope: Scope, span: Span, can: CanConvert = _can_cast) -> Value:
    """Translate `value as type`: numbers are converted, strings are read as numbers, collections element by element.

    can: which scalars may be converted. Raises QueryError where a value of its type cannot be of the wanted one.
    """
    if wanted == t.ANY:
        return value
    match value, wanted:
        case ScalarValue(sql, type_), t.Basic() | t.Foreign():
            if not can(value, wanted):
                raise _refuse_cast(value, wanted, scope, span)
            return value if type_ == wanted else ScalarValue(f"CAST({sql} AS {t.sql_type(wanted)})", wanted)
        case ScalarValue(_, type_), t.Data() if type_ == wanted:
            return value
        case RecordValue(_, parts, positional), t.Tuple(items) if len(parts) == len(items) and (
            value.names is None or positional
        ):
            return RecordValue(None, tuple(cast(p, i, scope, span, can) for p, i in zip(parts, items, strict=True)))
        case RecordValue(names, parts), t.Record(wanted_names, items) if names == wanted_names:
            made = tuple(cast(p, i, scope, span, can) for p, i in zip(parts, items, strict=True))
            return RecordValue(names, made, value.positional)
        case Array(), t.Collection(bag, item):
            return _cast_array(value, t.Collection(bag, item), scope, span, can)
        case RelationValue(add_to, ordered), t.Collection(bag, item):
            return RelationValue(
                lambda frame: _cast_rows(add_to(frame), item, scope.at(frame), span, can), ordered=ordered and not bag
            )
        case GroupedValues(), t.Collection():
            return cast(scope.inside(value, span), wanted, scope, span, can)
        case _:
            raise _refuse_cast(value, wanted, scope, span)


def _cast_array(value: Array, wanted: t.Collection, scope: Scope, span: Span, can: CanConvert) -> Array:
    """Return an array whose elements are cast."""
    bag = wanted.bag
    item = wanted.item
    if value.item == item:
        return Array(v.pack(value), item, bag, value.bag and bag)
    if value.item == t.NOTHING:
        return Array(f"CAST({value.sql} AS ARRAY<{t.sql_type(item)}>)", item, bag)
    element = scope.fresh.fresh("x")
    made = cast(v.unpack(element, value.item), item, scope.within(element), span, can)
    return Array(f"transform({v.pack(value)}, {element} -> {v.pack(made)})", v.type_of(made) or item, bag)


def _cast_rows(added: FrameRows, item: Type, scope: Scope, span: Span, can: CanConvert) -> FrameRows:
    """Return rows whose value is cast."""
    return FrameRows(cast(added.value, item, scope, span, can), added.order)


def _refuse_cast(value: Value, wanted: Type, scope: Scope, span: Span) -> Exception:
    """Return the error for a value that cannot have a type."""
    actual = describe(value, scope)
    fix = "Write a value of that type"
    if actual[0] in "{[" and not isinstance(wanted, t.Collection):
        fix = APPLY_TO_ELEMENTS
    elif isinstance(value, ScalarValue) and isinstance(wanted, t.Basic) and _can_cast(value, wanted):
        fix = f"Cast it with `as {wanted.name}`, or correct the type"
    return span.error(f"expected {t.write_type(wanted)}, found {actual}. {fix}.")


def unify_values(values: list[Value], scope: Scope, span: Span, what: str) -> list[Value]:
    """Return values inside a row with one type for all. Raises QueryError where there is none."""
    types = [v.type_of(value) for value in values]
    common = types[0]
    for type_ in types[1:]:
        both = t.common_type(common, type_) if common is not None and type_ is not None else None
        if both is None:
            shown = " and ".join(dict.fromkeys(describe(value, scope) for value in values))
            raise span.error(f"{what} have the types {shown}, which have no common one. Cast one with `as`.")
        common = both
    assert common is not None
    return [v.convert(value, common) for value in values]
