"""Find the shapes of Spark's expressions (algebra/shapes.py), node by node: those that `nearest` is made of.

An expression that release 0.1.0 did not recognise, such as a hand-written one with `try_cast` or other names, has no
shape: its loop would have other tables under the same fingerprint.
"""

from __future__ import annotations

from deltafold.algebra.shapes import AreNumbers, HasNearest, Nearest, Shape, Sorted, Struct
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

Pair = tuple[str, str]


def find_shape(expression: J) -> Shape | None:
    """Return the shape of an expression over named columns, None if it is none of them."""
    match catalyst.kind(expression):
        case "GetStructField":
            return _find_nearest(expression)
        case "IsNotNull" if (nearest := _find_nearest(expression.child())) is not None:
            return HasNearest(nearest)
        case "And" | "IsNotNull" | "Not":
            columns = [_find_number(conjunct) for conjunct in catalyst.split_conjuncts(expression)]
            return None if None in columns else AreNumbers(frozenset(filter(None, columns)))
        case "CreateNamedStruct":
            values = [_column_name(value) for value in catalyst.sequence(expression.valExprs())]
            names = [str(name) for name in catalyst.sequence(expression.names())]
            return None if None in values else Struct(tuple(zip(names, filter(None, values), strict=True)))
        case "SortArray" if str(expression.ascendingOrder().sql()) == "true":
            column = _column_name(expression.base())
            return None if column is None else Sorted(column)
        case _:
            return None


def _find_nearest(expression: J) -> Nearest | None:
    """Return the shape of `array_min(transform(elements, x -> struct(distance, x))).center`."""
    ranked = _below(expression, "GetStructField", "ArrayMin")
    if ranked is None or catalyst.kind(ranked) != "ArrayTransform":
        return None
    if int(expression.ordinal()) != 1 or str(expression.extractFieldName()) != "center":
        return None
    elements = _column_name(ranked.argument())
    function = ranked.function()
    variables = catalyst.sequence(function.arguments())
    if elements is None or len(variables) != 1 or catalyst.kind(function.function()) != "CreateNamedStruct":
        return None
    values = catalyst.sequence(function.function().valExprs())
    if len(values) != 2 or catalyst.kind(values[1]) != "NamedLambdaVariable":
        return None
    pairs = [_find_square(term) for term in _list_terms(values[0])]
    return None if None in pairs else Nearest(elements, tuple(filter(None, pairs)))


def _list_terms(total: J) -> list[J]:
    """Return the terms of a sum that is added from left to right."""
    return [*_list_terms(total.left()), total.right()] if catalyst.kind(total) == "Add" else [total]


def _find_square(term: J) -> Pair | None:
    """Return the column and the field whose difference, as a double, a term multiplies with itself."""
    if catalyst.kind(term) != "Multiply":
        return None
    pair = _find_difference(term.left())
    return pair if pair == _find_difference(term.right()) else None


def _find_difference(value: J) -> Pair | None:
    difference = _cast_to_double(value)
    if difference is None or catalyst.kind(difference) != "Subtract":
        return None
    column, field = _column_name(difference.left()), difference.right()
    element = _below(field, "GetStructField")
    if column is None or element is None or catalyst.kind(element) != "NamedLambdaVariable":
        return None
    return column, str(field.extractFieldName())


def _find_number(condition: J) -> str | None:
    """Return the column that a condition requires to be not NULL, or not NaN."""
    if catalyst.kind(condition) == "IsNotNull":
        return _column_name(condition.child())
    value = _below(condition, "Not", "IsNaN")
    if value is None:
        return None
    number = _cast_to_double(value)
    return _column_name(value if number is None else number)


def _cast_to_double(value: J) -> J | None:
    """Return what is cast to a double."""
    text = str(value.sql()) if catalyst.kind(value) == "Cast" else ""
    return value.child() if text.startswith("CAST(") and text.endswith(" AS DOUBLE)") else None


def _column_name(expression: J) -> str | None:
    """Return the name of a bare column."""
    return str(expression.name()) if catalyst.kind(expression) == "AttributeReference" else None


def _below(expression: J, *kinds: str) -> J | None:
    """Return what is below expressions of these kinds, each the only child of the one before; None for others."""
    for kind in kinds:
        if catalyst.kind(expression) != kind:
            return None
        expression = expression.child()
    return expression
