"""Algebra room: declared constraints as facts, and what follows for a plan. In: declarations, plans. Out: facts.

With o₀ ⊆ rows before, o₁ after, and a foreign key l.fk → o.pk that holds before and after:

| what a refresh does to o | what follows | because |
| --- | --- | --- |
| rows only come | before(l) ⋈ Δo = ∅ | what l₀ refers to is in o₀, and no new row has a key of o₀ |
| rows only leave | after(l) ⋈ Δo = ∅ | what l₁ refers to is in o₁, and no row that left has a key of o₁ |

where o is seen row by row, and l through whatever hands the key columns on; NULL refers to nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from incremental.algebra.errors import SourceError
from incremental.algebra.plan import Filter, Generate, Join, Plan, Project, Reference, Scalar, Source
from incremental.algebra.sources import SourceDeclaration

Types = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class Key:
    """No two rows of a source share the values of these columns, none of which is NULL."""

    source: str
    columns: tuple[str, ...]

    @property
    def text(self) -> str:
        """The constraint in words, the same in every process."""
        return f"{self.source}: primary key ({', '.join(self.columns)})"


@dataclass(frozen=True)
class Referring:
    """The values of these columns, where none is NULL, are those of the key of some row of another source."""

    source: str
    columns: tuple[str, ...]
    to: str
    key: tuple[str, ...]

    @property
    def text(self) -> str:
        """The constraint in words, the same in every process."""
        return f"{self.source}: foreign key ({', '.join(self.columns)}) to {self.to} ({', '.join(self.key)})"


@dataclass(frozen=True)
class AppendOnly:
    """Rows come and never leave."""

    source: str

    @property
    def text(self) -> str:
        """The constraint in words, the same in every process."""
        return f"{self.source}: append-only"


Constraint = Key | Referring | AppendOnly


def constraints(
    declared: Mapping[str, SourceDeclaration], types: Types, read: Collection[str]
) -> tuple[Constraint, ...]:
    """What the declarations of some sources say, a foreign key where both sides are among them.

    types: the columns of the sources that have a schema by now; read: the sources that a query reads, so that what is
    wrong with another one does not stop it.
    Raises SourceError for columns and sources that are not there, and for keys that cannot be compared.
    """
    found: list[Constraint] = []
    for name, declaration in declared.items():
        if name not in read:
            continue
        if declaration.primary_key:
            known(name, declaration.primary_key, "primary key", types)
            found.append(Key(name, declaration.primary_key))
        for foreign in declaration.foreign_keys:
            known(name, foreign.columns, "foreign key", types)
            if foreign.source in declared and foreign.source not in read:
                continue
            found.append(referring(name, foreign.columns, foreign.source, declared, types))
        if declaration.append_only:
            found.append(AppendOnly(name))
    return tuple(found)


def referring(
    name: str, columns: tuple[str, ...], to: str, declared: Mapping[str, SourceDeclaration], types: Types
) -> Referring:
    """A foreign key, checked against what it refers to."""
    what = f"source {name}: its foreign key ({', '.join(columns)}) refers to {to}"
    if to not in declared:
        raise SourceError(f"{what}, which is not declared: declare that source, or remove the foreign key")
    key = declared[to].primary_key
    if not key:
        raise SourceError(f"{what}, which declares no primary key: declare it there, or remove the foreign key")
    if len(key) != len(columns):
        raise SourceError(f"{what}, whose primary key is ({', '.join(key)}): name one column for each, in that order")
    known(to, key, "primary key", types)
    for one, other in zip(columns, key, strict=True):
        kinds = types.get(name, {}).get(one), types.get(to, {}).get(other)
        if None not in kinds and kinds[0] != kinds[1]:
            raise SourceError(
                f"{what}, but {one} is of type {kinds[0]} and {other} of type {kinds[1]}: "
                "give both the same type, or remove the foreign key"
            )
    return Referring(name, columns, to, key)


def known(name: str, columns: Iterable[str], what: str, types: Types) -> None:
    """Refuse columns that a source lacks, or whose values Spark does not group by."""
    if name not in types:
        return
    for column in columns:
        type_ = types[name].get(column)
        if type_ is None:
            raise SourceError(
                f"source {name}: its {what} names {column!r}, which is none of its columns "
                f"({', '.join(types[name])}): correct the name"
            )
        if any(part in type_ for part in ("map<", "variant")):
            raise SourceError(
                f"source {name}: its {what} names {column!r}, but no key can be of type {type_}: remove it"
            )


def reference(
    facts: Iterable[Constraint], plan: Plan, other: Plan, equalities: Iterable[tuple[Scalar, Scalar]]
) -> Referring | None:
    """The foreign key by which rows of a plan refer to those rows of another that they are equal to.

    equalities: (of the plan, of the other); the other has to see one source, row by row.
    """
    referred = only_source(other)
    if referred is None:
        return None
    tied: dict[Source, set[tuple[str, str]]] = {}
    for one, two in equalities:
        left, right = origin(plan, one), origin(other, two)
        if left is not None and right is not None:
            tied.setdefault(left[0], set()).add((left[1], right[1]))
    for fact in facts:
        if isinstance(fact, Referring) and fact.to == referred.relation:
            pairs = set(zip(fact.columns, fact.key, strict=True))
            if any(source.relation == fact.source and pairs <= found for source, found in tied.items()):
                return fact
    return None


def only_source(plan: Plan) -> Source | None:
    """The source whose single rows the plan's rows come from, if it sees no other input."""
    while isinstance(plan, Project | Filter | Generate):
        plan = plan.child
    return plan if isinstance(plan, Source) else None


def origin(plan: Plan, scalar: Scalar) -> tuple[Source, str] | None:
    """The source and its column whose values a scalar has (or NULL, beside an outer join); None: it is computed."""
    if not isinstance(scalar, Reference):
        return None
    name = scalar.column.name
    match plan:
        case Source(fields=fields):
            return next(((plan, field) for field, column in fields if column.name == name), None)
        case Project(child=child, items=items):
            return next((origin(child, item.scalar) for item in items if item.column.name == name), None)
        case Filter() | Generate() | Join():
            found = [origin(child, scalar) for child in plan.children if scalar.column in child.columns]
            return found[0] if found else None
        case _:
            return None


def distinct_by_key(facts: Iterable[Constraint], plan: Plan, columns: Iterable[str]) -> Key | None:
    """The primary key that makes all rows of a plan differ in these columns."""
    node = plan
    while isinstance(node, Project | Filter):
        node = node.child
    if not isinstance(node, Source):
        return None
    by_name = {column.name: column for column in plan.columns}
    origins = (origin(plan, Reference(by_name[name])) for name in columns)
    kept = {found[1] for found in origins if found is not None}
    keys = (fact for fact in facts if isinstance(fact, Key) and fact.source == node.relation)
    return next((key for key in keys if set(key.columns) <= kept), None)
