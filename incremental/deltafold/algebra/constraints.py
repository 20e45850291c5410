"""Represent declared constraints as facts, and derive from them which terms of a plan's change are empty.

With o₀ ⊆ rows before a refresh, o₁ after it, and a foreign key l.fk → o.pk that is valid before and after:

| the refresh | result | because |
| --- | --- | --- |
| only adds rows to o | before(l) ⋈ Δo = ∅ | l₀ refers to keys of o₀, and no added row has one of these |
| only removes rows from o | after(l) ⋈ Δo = ∅ | l₁ refers to keys of o₁, and no removed row has one of these |

where o is read row by row, and l through any operators that keep the key columns. NULL refers to no row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from deltafold.algebra.errors import SourceError
from deltafold.algebra.plan import Filter, Generate, Join, Plan, Project, Reference, Scalar, SourceRead
from deltafold.algebra.sources import SourceDeclaration
from deltafold.algebra.sqltext import is_unordered

Types = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class PrimaryKeyFact:
    """No two rows of a source share the values of these columns, none of which is NULL."""

    source: str
    columns: tuple[str, ...]

    @property
    def text(self) -> str:
        """The constraint for readers, the same in every process."""
        return f"{self.source}: primary key ({', '.join(self.columns)})"


@dataclass(frozen=True)
class ForeignKeyFact:
    """The values of these columns, if none is NULL, are those of the key of some row of another source."""

    source: str
    columns: tuple[str, ...]
    to: str
    key: tuple[str, ...]

    @property
    def text(self) -> str:
        """The constraint for readers, the same in every process."""
        return f"{self.source}: foreign key ({', '.join(self.columns)}) to {self.to} ({', '.join(self.key)})"


@dataclass(frozen=True)
class AppendOnlyFact:
    """Rows are added and never removed or changed."""

    source: str

    @property
    def text(self) -> str:
        """The constraint for readers, the same in every process."""
        return f"{self.source}: append-only"


Constraint = PrimaryKeyFact | ForeignKeyFact | AppendOnlyFact


def collect_facts(
    declared: Mapping[str, SourceDeclaration], types: Types, read: Collection[str]
) -> tuple[Constraint, ...]:
    """Return the declared constraints of the sources that a query reads; a foreign key only if it reads both sides.

    types: the columns of the sources whose schema is known. Declarations of other sources are not checked.
    Raises SourceError for unknown columns and sources, and for keys that cannot be compared.
    """
    facts: list[Constraint] = []
    for name, declaration in declared.items():
        if name not in read:
            continue
        if declaration.primary_key:
            _check_key_columns(name, declaration.primary_key, "primary key", types)
            facts.append(PrimaryKeyFact(name, declaration.primary_key))
        for foreign in declaration.foreign_keys:
            _check_key_columns(name, foreign.columns, "foreign key", types)
            if foreign.source in declared and foreign.source not in read:
                continue
            facts.append(_resolve_foreign_key(name, foreign.columns, foreign.source, declared, types))
        if declaration.append_only:
            facts.append(AppendOnlyFact(name))
    return tuple(facts)


def _resolve_foreign_key(
    name: str, columns: tuple[str, ...], to: str, declared: Mapping[str, SourceDeclaration], types: Types
) -> ForeignKeyFact:
    """Return a foreign key, checked against the primary key that it refers to."""
    what = f"foreign key ({', '.join(columns)}) refers to {to}"
    if to not in declared:
        raise SourceError(
            f"source {name}: {what}, which is not declared. Declare that source, or remove the foreign key."
        )
    key = declared[to].primary_key
    if not key:
        raise SourceError(
            f"source {name}: {what}, which declares no primary key. Declare it there, or remove the foreign key."
        )
    if len(key) != len(columns):
        raise SourceError(
            f"source {name}: {what}, whose primary key is ({', '.join(key)}). Name one column for each, in that order."
        )
    _check_key_columns(to, key, "primary key", types)
    for one, other in zip(columns, key, strict=True):
        kinds = types.get(name, {}).get(one), types.get(to, {}).get(other)
        if None not in kinds and kinds[0] != kinds[1]:
            raise SourceError(
                f"source {name}: {what}, but {one} has type {kinds[0]} and {other} type {kinds[1]}. "
                "Give both the same type, or remove the foreign key."
            )
    return ForeignKeyFact(name, columns, to, key)


def _check_key_columns(name: str, columns: Iterable[str], what: str, types: Types) -> None:
    """Raise SourceError for columns that a source lacks, or whose values Spark cannot group by."""
    if name not in types:
        return
    for column in columns:
        type_ = types[name].get(column)
        if type_ is None:
            raise SourceError(
                f"source {name}: unknown column {column!r} in its {what}. "
                f"Correct the name; the source has the columns {', '.join(types[name])}."
            )
        if is_unordered(type_):
            raise SourceError(
                f"source {name}: column {column!r} in its {what} has type {type_}, whose values cannot be compared. "
                "Remove the column from the key."
            )


def find_reference(
    facts: Iterable[Constraint], plan: Plan, other: Plan, equalities: Iterable[tuple[Scalar, Scalar]]
) -> ForeignKeyFact | None:
    """Return the foreign key by which rows of `plan` refer to the rows of `other` that they are equal to.

    equalities: (of the plan, of the other). The other plan must read one source row by row.
    """
    referred = find_only_source(other)
    if referred is None:
        return None
    equated: dict[SourceRead, set[tuple[str, str]]] = {}
    for one, two in equalities:
        left = trace_to_source(plan, one)
        right = trace_to_source(other, two)
        if left is not None and right is not None:
            equated.setdefault(left[0], set()).add((left[1], right[1]))
    for fact in facts:
        if isinstance(fact, ForeignKeyFact) and fact.to == referred.relation:
            pairs = set(zip(fact.columns, fact.key, strict=True))
            if any(source.relation == fact.source and pairs <= columns for source, columns in equated.items()):
                return fact
    return None


def find_only_source(plan: Plan) -> SourceRead | None:
    """Return the source that a plan reads row by row, None if it has other inputs or operators on several rows."""
    while isinstance(plan, Project | Filter | Generate):
        plan = plan.child
    return plan if isinstance(plan, SourceRead) else None


def trace_to_source(plan: Plan, scalar: Scalar) -> tuple[SourceRead, str] | None:
    """Return the source column whose values a scalar has (or NULL, beside an outer join), None if it is computed."""
    if not isinstance(scalar, Reference):
        return None
    name = scalar.column.name
    match plan:
        case SourceRead(fields=fields):
            return next(((plan, field) for field, column in fields if column.name == name), None)
        case Project(child=child, items=items):
            return next((trace_to_source(child, item.scalar) for item in items if item.column.name == name), None)
        case Filter() | Generate() | Join():
            children = [child for child in plan.children if scalar.column in child.columns]
            return trace_to_source(children[0], scalar) if children else None
        case _:
            return None


def find_distinguishing_key(facts: Iterable[Constraint], plan: Plan, columns: Iterable[str]) -> PrimaryKeyFact | None:
    """Return the primary key by which all rows of a plan differ in these columns, None if there is none."""
    node = plan
    while isinstance(node, Project | Filter):
        node = node.child
    if not isinstance(node, SourceRead):
        return None
    by_name = {column.name: column for column in plan.columns}
    origins = (trace_to_source(plan, Reference(by_name[name])) for name in columns)
    kept = {origin[1] for origin in origins if origin is not None}
    keys = (fact for fact in facts if isinstance(fact, PrimaryKeyFact) and fact.source == node.relation)
    return next((key for key in keys if set(key.columns) <= kept), None)
