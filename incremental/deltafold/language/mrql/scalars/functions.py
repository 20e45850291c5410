"""The scalar functions of MRQL as Spark SQL.

Each has the types of its arguments, and the SQL with `{0}`, `{1}`, … for them. `substring(s, b, e)` counts from 0 and
ends before e. What has no value, such as `sqrt(-1.0)` or `log(-1.0)`, is NaN, as in IEEE 754.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.scope import Scope, describe
from deltafold.language.mrql.rows.types import Type
from deltafold.language.mrql.rows.values import ScalarValue, Value
from deltafold.language.mrql.scalars.casts import APPLY_TO_ELEMENTS
from deltafold.language.mrql.syntax.spans import Span

NUMBER, TEXT, SAME, ONE, ELEMENT = "number", "string", "same", "scalar", "XML"


@dataclass(frozen=True)
class Signature:
    """The kinds of the arguments, the SQL, and the type of the result (None: that of the arguments)."""

    arguments: tuple[str, ...]
    sql: str
    result: Type | None


def _numeric(sql: str, result: Type = t.DOUBLE, count: int = 1) -> Signature:
    """Return the signature of a function of doubles."""
    return Signature((NUMBER,) * count, sql, result)


LOG = (
    "CASE WHEN {0} > 0 THEN ln({0}) WHEN {0} = 0 THEN CAST('-Infinity' AS DOUBLE) "
    "WHEN {0} < 0 THEN CAST('NaN' AS DOUBLE) END"
)
FUNCTIONS = {
    **{name: _numeric(f"{name}({{0}})") for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
    **{name: _numeric(f"{name}({{0}})") for name in ("sqrt", "rint", "exp")},
    "log": _numeric(LOG),
    "pow": _numeric("pow({0}, {1})", count=2),
    "ceil": _numeric("CAST(ceil({0}) AS DOUBLE)"),
    "floor": _numeric("CAST(floor({0}) AS DOUBLE)"),
    "round": _numeric("CAST(round({0}) AS BIGINT)", t.LONG),
    "abs": Signature((SAME,), "abs({0})", None),
    "min": Signature((SAME, SAME), "least({0}, {1})", None),
    "max": Signature((SAME, SAME), "greatest({0}, {1})", None),
    "contains": Signature((TEXT, TEXT), "contains({0}, {1})", t.BOOL),
    "startsWith": Signature((TEXT, TEXT), "startswith({0}, {1})", t.BOOL),
    "length": Signature((TEXT,), "length({0})", t.INT),
    "replace": Signature((TEXT, TEXT, TEXT), "replace({0}, {1}, {2})", t.STRING),
    "replaceAll": Signature((TEXT, TEXT, TEXT), "regexp_replace({0}, {1}, {2})", t.STRING),
    "toLowerCase": Signature((TEXT,), "lower({0})", t.STRING),
    "toUpperCase": Signature((TEXT,), "upper({0})", t.STRING),
    "trim": Signature((TEXT,), "trim({0})", t.STRING),
    "text": Signature((ELEMENT,), "xpath_string({0}, '/*')", t.STRING),
    "tag": Signature((ELEMENT,), "xpath_string({0}, 'name(/*)')", t.STRING),
    "parse_json": Signature((TEXT,), "parse_json({0})", t.JSON),
    "string": Signature((ONE,), "CAST({0} AS STRING)", t.STRING),
    "hash_code": Signature((ONE,), "hash({0})", t.INT),
    "substring": Signature((TEXT, "int", "int"), "substring({0}, {1} + 1, {2} - {1})", t.STRING),
    "split": Signature((TEXT, TEXT), "split({0}, {1})", t.Collection(bag=False, item=t.STRING)),
    "toBool": Signature((ONE,), "CAST({0} AS BOOLEAN)", t.BOOL),
    "toShort": Signature((ONE,), "CAST({0} AS SMALLINT)", t.Basic("short")),
    "toInt": Signature((ONE,), "CAST({0} AS INT)", t.INT),
    "toLong": Signature((ONE,), "CAST({0} AS BIGINT)", t.LONG),
    "toFloat": Signature((ONE,), "CAST({0} AS FLOAT)", t.FLOAT),
    "toDouble": Signature((ONE,), "CAST({0} AS DOUBLE)", t.DOUBLE),
}
REFUSED_FUNCTIONS = {
    "random": "random numbers differ from run to run. Derive a number from a column, such as hash_code(x) mod 10",
    "replaceFirst": "replaceFirst is not supported. Use replaceAll with a pattern that matches the first one alone",
    "toString": "toString is not a function. Use string(x)",
    "inv": "inv is a key of `order by` alone. Write it there, or use desc",
}


def apply_scalar(name: str, arguments: Sequence[Value], scope: Scope, span: Span) -> Value:
    """Apply a scalar function to arguments. Raises QueryError for another number or other types of them."""
    if sentence := REFUSED_FUNCTIONS.get(name):
        raise span.error(f"{sentence}.")
    signature = FUNCTIONS[name]
    count = len(signature.arguments)
    if len(arguments) != count:
        expected = f"{count} argument{'s' if count != 1 else ''}"
        raise span.error(f"{name}: expected {expected}, found {len(arguments)}. Correct the call.")
    kinds = zip(signature.arguments, arguments, strict=True)
    values = [_typed_argument(name, kind, value, scope, span) for kind, value in kinds]
    result = signature.result
    if result is None:
        result = values[0].type
        for value in values[1:]:
            result = t.common_type(result, value.type)
            if result is None:
                shown = " and ".join(t.write_type(value.type) for value in values)
                raise span.error(f"{name}: expected values of one type, found {shown}. Cast one with `as`.")
        values = [_cast_scalar(value, result) for value in values]
    return v.unpack(signature.sql.format(*(value.sql for value in values)), result)


def _typed_argument(name: str, kind: str, value: Value, scope: Scope, span: Span) -> ScalarValue:
    """Return an argument, promoted to the type of its kind. Raises QueryError for another type."""
    value = scope.inside(value, span)
    if isinstance(value, ScalarValue):
        wanted = {NUMBER: t.DOUBLE, "int": t.INT, TEXT: t.STRING}.get(kind)
        fits = {
            NUMBER: t.is_number(value.type),
            "int": t.is_integer(value.type),
            TEXT: value.type == t.STRING,
            SAME: t.is_number(value.type) or (name != "abs" and t.is_scalar(value.type)),
            ONE: t.is_scalar(value.type),
            ELEMENT: value.type == t.XML,
        }
        if fits[kind] or value.type == t.NOTHING:
            return value if wanted is None else _cast_scalar(value, wanted)
    expected = {SAME: "number", ONE: "scalar"}.get(kind, kind)
    actual = describe(value, scope)
    fix = APPLY_TO_ELEMENTS if actual[0] in "{[" else "Cast it, or take a part of it"
    raise span.error(f"{name}: expected a {expected}, found {actual}. {fix}.")


def _cast_scalar(value: ScalarValue, wanted: Type) -> ScalarValue:
    """Return a scalar of a type that it can be promoted to."""
    converted = v.convert(value, wanted)
    assert isinstance(converted, ScalarValue)
    return converted
