"""Decide whether expressions of Spark's have the same values after columns that they read got wider types.

A cast that loses nothing keeps the value, so it is looked through; so is one back to a type with all values of the old
one. Other expressions have the same values if they are of one class, their children have the same values, and

| the types of the children | the class |
| --- | --- |
| are equal | is any, with equal arguments beside the children |
| differ | depends on values alone: `OF_VALUES`, arithmetic of integers and exact decimals, some casts |

Arithmetic of integers that outgrow their type raises an error with ANSI, so what was computed had the value that the
wider type gives. Without ANSI it wraps around, and the values may differ. A text has the digits of its type (FLOAT 0.1,
DATE 2020-01-01), so a cast to one keeps the value of integers and of decimals with the same scale alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import cast

from pyspark.sql import SparkSession

from deltafold.algebra.plan import GroupwiseOp, Opaque, Scalar
from deltafold.algebra.wider_types import WHOLE_NUMBERS, decimal_digits, is_wider
from deltafold.language.names import type_text
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError

# classes whose value depends on the values of their children, and their arguments beside these
OF_VALUES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual"), ()),
    **dict.fromkeys(("GreaterThan", "GreaterThanOrEqual", "In", "IsNull", "IsNotNull", "IsNaN"), ()),
    **dict.fromkeys(("Coalesce", "If", "CaseWhen", "Greatest", "Least"), ()),
    **dict.fromkeys(("Count", "Min", "Max", "Rank", "DenseRank", "PercentRank"), ()),
    **dict.fromkeys(("Alias", "WindowExpression", "WindowSpecDefinition"), ()),
    "SortOrder": ("direction", "nullOrdering"),
    "AggregateExpression": ("mode", "isDistinct"),
    "CheckOverflowInSum": (),  # a decimal sum outgrows its type after 10^10 rows
}  # fmt: skip
# arithmetic, and the text of its argument beside the operands where an overflow is an error
ARITHMETIC = {"Add": "ANSI", "Subtract": "ANSI", "Multiply": "ANSI", "UnaryMinus": "True", "Abs": "True"}
OPERATORS = {"Window", "GlobalLimit", "LocalLimit", "Offset", "Sort", "Project"}
WITHOUT_VALUE = {"WindowSpecDefinition", "SpecifiedWindowFrame"}
MOST_DIGITS = 38
MICROSECONDS = 86_400_000_000  # of a day


class WidenedValues:
    """Compares the expressions of a query before and after; old, new: the attributes of its columns by their names."""

    def __init__(self, spark: SparkSession, old: Mapping[str, J], new: Mapping[str, J]) -> None:
        self._spark, self._attributes = spark, (old, new)
        self._names = tuple({int(a.exprId().id()): name for name, a in attributes.items()} for attributes in (old, new))

    def find_difference(self, old: Scalar, new: Scalar, names: Mapping[str, str]) -> str | None:
        """Return the text of an expression whose value may be another one; None if the values are the same.

        names: the new columns by those with the same values.
        """
        one, other = self._expression(old, 0), self._expression(new, 1)
        if one is None or other is None:  # a column that the compiler made
            return new.text
        part = self._find(one, other, names)
        return None if part is None else self._text(part)

    def find_operator_difference(self, old: GroupwiseOp, new: GroupwiseOp, names: Mapping[str, str]) -> str | None:
        """Return the same of the expressions of two operators."""
        if len(old.handle) != len(new.handle):
            return new.text
        for one, other in cast(Iterable[tuple[J, J]], zip(old.handle, new.handle, strict=True)):
            if (kind := catalyst.kind(one)) != catalyst.kind(other) or kind not in OPERATORS:
                return new.text
            expressions = [catalyst.sequence(operator.expressions()) for operator in (one, other)]
            if len(expressions[0]) != len(expressions[1]):
                return new.text
            for before, now in zip(*expressions, strict=True):
                if (part := self._find(before, now, names)) is not None:
                    return self._text(part)
        return None

    def _expression(self, scalar: Scalar, side: int) -> J | None:
        return scalar.handle if isinstance(scalar, Opaque) else self._attributes[side].get(scalar.text)

    def _text(self, expression: J) -> str:
        return str(expression.sql())

    def _find(self, old: J, new: J, names: Mapping[str, str]) -> J | None:
        """Return a part of the new expression whose value may be another one."""
        old, new = _without_casts(old), _without_casts(new)
        if catalyst.kind(new) == "Cast" and catalyst.kind(old) != "Cast" and _contains(_type(new), _type(old)):
            return self._find(old, new.child(), names)  # a cast back, to a type with all values that it had
        if old.foldable() and new.foldable():
            return None if _are_same_constants(old, new) else new
        kind, children = catalyst.kind(old), [catalyst.sequence(expression.children()) for expression in (old, new)]
        if kind != catalyst.kind(new) or len(children[0]) != len(children[1]):
            return new
        if kind == "AttributeReference":
            ids = [int(expression.exprId().id()) for expression in (old, new)]
            one, other = (columns.get(number, "") for columns, number in zip(self._names, ids, strict=True))
            return None if one and names.get(one) == other else new
        for before, now in zip(*children, strict=True):
            if (part := self._find(before, now, names)) is not None:
                return part
        return None if self._is_same_function(kind, old, new) else new

    def _is_same_function(self, kind: str, old: J, new: J) -> bool:
        """Return whether two expressions of one class, over the same values, have the same value."""
        if kind in OF_VALUES:
            return all(str(getattr(old, a)()) == str(getattr(new, a)()) for a in OF_VALUES[kind])
        types = [[_type(child) for child in catalyst.sequence(expression.children())] for expression in (old, new)]
        if types[0] == types[1]:
            return bool(old.withNewChildren(new.children()).canonicalized().equals(new.canonicalized()))
        whole = all(type_ in WHOLE_NUMBERS for type_ in (*types[0], *types[1]))
        match kind:
            case "Cast":
                return _type(old) == _type(new) and _is_cast_of_value(types[0][0], types[1][0], _type(new))
            case "Remainder" | "Sum" | "Average":
                return whole
            case _ if kind in ARITHMETIC:
                return all(map(self._is_exact, (old, new)))
            case _:
                return False

    def _is_exact(self, arithmetic: J) -> bool:
        """Return whether arithmetic has the exact result, or raises an error."""
        kind = catalyst.kind(arithmetic)
        types = [_type(child) for child in catalyst.sequence(arithmetic.children())]
        if all(type_ in WHOLE_NUMBERS for type_ in types):
            return ARITHMETIC[kind] in str(arithmetic.productElement(len(types)))
        digits = [decimal_digits(type_) for type_ in types]
        if len(digits) != 2 or None in digits:
            return False
        (whole, scale), (other_whole, other_scale) = (pair for pair in digits if pair)
        if kind == "Multiply":
            result = (whole + other_whole + 1, scale + other_scale)
        else:
            result = (max(whole, other_whole) + 1, max(scale, other_scale))
        return sum(result) <= MOST_DIGITS and decimal_digits(_type(arithmetic)) == result


def _type(expression: J) -> str:
    """Return the type of an expression; empty for what has no value of its own, as the parts of a window."""
    return "" if catalyst.kind(expression) in WITHOUT_VALUE else type_text(expression.dataType())


def _without_casts(expression: J) -> J:
    """Return what is below casts that lose nothing."""
    while catalyst.kind(expression) == "Cast" and _contains(_type(expression), _type(expression.child())):
        expression = expression.child()
    return expression


def _contains(type_: str, other: str) -> bool:
    return type_ == other or is_wider(other, type_)


def _is_cast_of_value(old: str, new: str, to: str) -> bool:
    """Return whether a cast of the same value of two types to a third one gives the same."""
    digits = decimal_digits(old), decimal_digits(new)
    number = to in WHOLE_NUMBERS or to in ("float", "double") or decimal_digits(to) is not None
    if old in WHOLE_NUMBERS and new in WHOLE_NUMBERS:
        return number or to == "string"
    if digits[0] and digits[1]:
        return number or (to == "string" and digits[0][1] == digits[1][1])
    return False


def _are_same_constants(old: J, new: J) -> bool:
    types = _type(old), _type(new)
    if types[0] == types[1] and old.canonicalized().equals(new.canonicalized()):
        return True
    if types[0] != types[1] and not is_wider(*types) and not is_wider(*reversed(types)):
        return False
    try:
        values = [constant.eval(None) for constant in (old, new)]
    except JavaError:
        return False
    one, other = (_number(value, type_) for value, type_ in zip(values, types, strict=True))
    return type(one) is type(other) and one == other


def _number(value: J, type_: str) -> object:
    """Return Spark's value of a constant as a number; the text of another value."""
    if value is None:
        return None
    if type_ == "date":
        return Decimal(value) * MICROSECONDS
    if type_ == "float":  # Java gives its shortest text: 0.1 is another number as a float than as a double
        return Decimal(struct.unpack("f", struct.pack("f", float(value)))[0])
    if type_ == "double":
        return Decimal(float(value))
    numeric = type_ in WHOLE_NUMBERS or type_ == "timestamp_ntz" or decimal_digits(type_)
    return Decimal(str(value.toString()) if hasattr(value, "toString") else repr(value)) if numeric else str(value)
