"""The types of MRQL, how numbers are promoted, and the types of Spark that represent them.

| MRQL | Spark |
| --- | --- |
| bool byte short int long float double string | BOOLEAN TINYINT SMALLINT INT BIGINT FLOAT DOUBLE STRING |
| tuple, record | STRUCT with fields c0, c1, …; STRUCT with the record's names |
| list, bag | ARRAY; that of a bag is sorted, so that equal bags are equal |
| data type | STRUCT of the tag and one field for each constructor, NULL but for the tagged one |
| any other type of a source, such as DATE | the same: its values can be compared, grouped by and returned |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from deltafold.algebra.sqltext import quoted


@dataclass(frozen=True)
class Basic:
    """A scalar type by its name in MRQL; `nothing` is that of the elements of an empty bag."""

    name: str


@dataclass(frozen=True)
class Foreign:
    """A type of Spark that MRQL has no name for."""

    sql: str


@dataclass(frozen=True)
class Tuple:
    """A tuple; without items that of `()`."""

    items: tuple[Type, ...]


@dataclass(frozen=True)
class Record:
    """A record; positional: a row of a source, whose columns a tuple pattern may take by their order."""

    names: tuple[str, ...]
    items: tuple[Type, ...]
    positional: bool = False


@dataclass(frozen=True)
class Collection:
    """A bag or a list."""

    bag: bool
    item: Type


@dataclass(frozen=True)
class Data:
    """A data type: the constructors, and the type of the argument of each."""

    name: str
    constructors: tuple[str, ...]
    items: tuple[Type, ...]


Type = Basic | Foreign | Tuple | Record | Collection | Data

BOOL = Basic("bool")
INT = Basic("int")
LONG = Basic("long")
FLOAT = Basic("float")
DOUBLE = Basic("double")
STRING = Basic("string")
XML = Basic("XML")
JSON = Foreign("VARIANT")
ANY = Basic("any")
NOTHING = Basic("nothing")
NUMBERS = ("byte", "short", "int", "long", "float", "double")
INTEGERS = NUMBERS[:4]
NAN = "CAST('NaN' AS DOUBLE)"
SQL = {
    "bool": "BOOLEAN", "byte": "TINYINT", "short": "SMALLINT", "int": "INT", "long": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "string": "STRING", "nothing": "VOID", "XML": "STRING",
}  # fmt: skip
SPARK = {sql.lower(): Basic(name) for name, sql in SQL.items() if name != "XML"}
NAMED_TYPES: dict[str, Type] = {
    **{name: Basic(name) for name in SQL if name != "nothing"},
    "char": STRING, "any": ANY, "JSON": JSON, "date": Foreign("DATE"), "timestamp": Foreign("TIMESTAMP"),
}  # fmt: skip
DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


def is_number(type_: Type) -> bool:
    """Return whether values of a type can be added."""
    return isinstance(type_, Basic) and type_.name in NUMBERS


def sum_type(type_: Type) -> Type | None:
    """Return the type of a sum; that of decimals has ten digits more, as in Spark. None for what cannot be added."""
    if isinstance(type_, Foreign) and (decimal := DECIMAL.fullmatch(type_.sql)):
        return Foreign(f"DECIMAL({min(int(decimal[1]) + 10, 38)},{decimal[2]})")
    if is_number(type_) or type_ == NOTHING:
        return DOUBLE if type_ in (FLOAT, DOUBLE) else LONG
    return None


def is_integer(type_: Type) -> bool:
    """Return whether a type has whole numbers alone."""
    return isinstance(type_, Basic) and type_.name in INTEGERS


def is_scalar(type_: Type) -> bool:
    """Return whether a type is ordered and has no parts."""
    return isinstance(type_, Basic | Foreign)


def is_pair(type_: Type) -> bool:
    """Return whether a type is a tuple of two, or a row of two columns of a source."""
    match type_:
        case Tuple((_, _)) | Record(items=(_, _), positional=True):
            return True
        case _:
            return False


def tuple_names(count: int) -> tuple[str, ...]:
    """Return the names of a tuple's fields."""
    return tuple(f"c{position}" for position in range(count))


def sql_type(type_: Type) -> str:
    """Return the type of Spark."""
    match type_:
        case Basic(name):
            return SQL.get(name, name.upper())
        case Foreign(sql):
            return sql
        case Tuple(items):
            return _struct_type(tuple_names(len(items)), items) if items else "STRUCT<c0: INT>"
        case Record(names, items):
            return _struct_type(names, items)
        case Collection(_, item):
            return f"ARRAY<{sql_type(item)}>"
        case Data(_, constructors, items):
            return _struct_type(("tag", *constructors), (STRING, *items))


def _struct_type(names: Sequence[str], items: Sequence[Type]) -> str:
    """Return a STRUCT of Spark."""
    return f"STRUCT<{', '.join(f'{quoted(n)}: {sql_type(t)}' for n, t in zip(names, items, strict=True))}>"


def write_type(type_: Type) -> str:
    """Return the type as MRQL writes it, for errors."""
    match type_:
        case Basic(name):
            return name
        case Foreign(sql):
            return sql.lower()
        case Tuple(items):
            return f"({', '.join(map(write_type, items))})"
        case Record(names, items):
            return f"<{', '.join(f'{n}: {write_type(t)}' for n, t in zip(names, items, strict=True))}>"
        case Collection(bag, item):
            return f"{{{write_type(item)}}}" if bag else f"[{write_type(item)}]"
        case Data(name):
            return name


def common_type(left: Type, right: Type) -> Type | None:
    """Return the type that values of both types can be cast to, None where there is none."""
    if left == right or right == NOTHING:
        return left
    match left, right:
        case Basic("nothing"), _:
            return right
        case Basic(a), Basic(b) if a in NUMBERS and b in NUMBERS:
            return left if NUMBERS.index(a) >= NUMBERS.index(b) else right
        case Tuple(a), Tuple(b) if len(a) == len(b):
            items = pairwise(a, b)
            return None if items is None else Tuple(items)
        case Record(names, a, positional), Record(others, b, also) if names == others:
            items = pairwise(a, b)
            return None if items is None else Record(names, items, positional and also)
        case (Tuple(a), Record(names, b, True)) | (Record(names, b, True), Tuple(a)) if len(a) == len(b):
            items = pairwise(a, b)
            return None if items is None else Tuple(items)
        case Collection(bag, a), Collection(other, b):
            item = common_type(a, b)
            return None if item is None else Collection(bag or other, item)
        case _:
            return None


def pairwise(left: Sequence[Type], right: Sequence[Type]) -> tuple[Type, ...] | None:
    """Return the types that parts can be cast to, None where there is none for one."""
    types = tuple(type_ for type_ in map(common_type, left, right) if type_ is not None)
    return types if len(types) == len(left) else None
