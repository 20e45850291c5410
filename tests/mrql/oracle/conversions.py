"""Typed values from the texts of files, in plain Python."""

from __future__ import annotations

from typing import Any

from deltafold.language.mrql.syntax import tree as T
from tests.mrql.oracle.values import (
    Bag,
    Row,
    Xml,
)


def split_line(row: Row, separator: T.Node, type_: T.Node) -> Any:
    """The fields of a line by a type, without those of `any`."""
    assert isinstance(separator, T.Literal) and isinstance(type_, T.TypeValue)
    (line,) = row.values()
    fields = [field.strip(" ") for field in line.split(separator.value)]
    if isinstance(type_.type, T.RecordType):
        return Row({p.name: converted(f, p.type) for p, f in zip(type_.type.fields, fields, strict=False)})
    assert isinstance(type_.type, T.TupleType)
    pairs = zip(type_.type.items, fields, strict=False)
    return tuple(converted(f, i) for i, f in pairs if not (isinstance(i, T.NamedType) and i.name == "any"))


def converted(value: Any, type_: T.Node) -> Any:
    if isinstance(type_, T.NamedType) and value is not None:
        if type_.name == "XML":
            return Xml(value)
        made = {"int": int, "long": int, "double": float, "string": str}.get(type_.name)
        return made(value) if made else value
    if isinstance(type_, T.CollectionType) and value is not None:
        return (Bag if type_.bag else list)(converted(each, type_.item) for each in value)
    return value
