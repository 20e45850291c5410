"""Hand-made plans: `t` has k, q and v; `d` is a dimension with k2 and name. Texts stand for Spark's expressions."""

from __future__ import annotations

import re
from typing import Any

from deltafold.algebra.plan import Aggregate, Call, Column, Filter, Item, Opaque, Plan, Project, Reference, SourceRead
from deltafold.compiler.draft import Draft

K, Q, V = Column("k", "int"), Column("q", "int"), Column("v", "double")
K2, NAME = Column("k2", "int"), Column("name", "string")
T = SourceRead("t", (("K", K), ("Q", Q), ("V", V)))
D = SourceRead("d", (("k2", K2), ("name", NAME)))


def opaque(text: str, type_: str = "boolean", handle: object = "spark's") -> Opaque:
    """An expression over the columns that its text names."""
    return Opaque(text, type_, frozenset(re.findall(r"[a-z]\w*", text)), handle)


def call(name: str, function: str, *arguments: Column, type_: str = "bigint", distinct: bool = False) -> Call:
    """An aggregate; its text is the usual SQL."""
    inside = ", ".join(column.name for column in arguments) or "1"
    buffers = tuple(Column(f"{name}_buffer_{i}", type_) for i in range({"average": 2, "minby": 2}.get(function, 1)))
    text = f"{function}({'DISTINCT ' if distinct else ''}{inside})"
    return Call(
        column=Column(name, type_),
        function=function,
        arguments=arguments,
        text=text,
        buffers=buffers,
        answer=opaque(buffers[0].name, type_),
        distinct=distinct,
    )


def draft(plan: Plan, *outputs: Column | tuple[Column, str], **options: Any) -> Draft:
    """A query that shows these columns under their names; without any, all of its plan's."""
    named = tuple(o if isinstance(o, tuple) else (o, o.name) for o in outputs or plan.columns)
    return Draft(plan=plan, outputs=named, fingerprint="0123", **options)


def grouped(child: Plan, keys: tuple[Column, ...], *calls: Call) -> Aggregate:
    return Aggregate(child, keys, calls)


def project(child: Plan, *columns: Column | Item) -> Project:
    """A projection of columns as they are, and of items."""
    return Project(child, tuple(c if isinstance(c, Item) else Item(c, Reference(c)) for c in columns))


def renamed(column: Column, name: str) -> Item:
    return Item(Column(name, column.type), Reference(column))


def where(child: Plan, text: str) -> Filter:
    return Filter(child, opaque(text))
