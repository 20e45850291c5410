"""Decide whether two plans have the same rows, even if their columns have other names, or one keeps fewer columns.

Two plans are aligned if their rows correspond one to one; the alignment maps the columns of one plan to those columns
of the other that have the same value in every pair of rows. Columns that only one of them has are left out.

| node | is aligned with the same kind of node if its inputs are, and |
| --- | --- |
| source, state | it is the same table |
| projection | always; its equal items are equal columns. One that only chooses columns is looked through |
| filter, join | the conditions, and the kinds of join, are equal |
| generate | the generators are equal |
| expand | it has as many projections |
| union | always; a column is equal if it is in every branch |
| groupwise operator | the operators are equal, and every column of the inputs is |

The rule is sufficient and not necessary: plans that it cannot compare are not aligned. Whether two expressions are
equal is decided by Spark (`Equality`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from deltafold.algebra.plan import (
    Column,
    Expand,
    Filter,
    Generate,
    GroupwiseOp,
    Item,
    Join,
    Opaque,
    Plan,
    Project,
    Reference,
    Scalar,
    SourceRead,
    Sql,
    StateRead,
    Union,
    Values,
)
from deltafold.algebra.traversal import only_chooses

Alignment = Mapping[str, Column]
"""Columns of the other plan by the names of the equal columns of the one plan."""
StateColumns = Callable[[StateRead], tuple[str, Sequence[Column]]]
"""The name of the state that is read, and its own columns in the order of the reader's."""


class Equality:
    """Equality of Spark's expressions, operators and constant rows, which the algebra keeps as handles.

    Without Spark, as here, no two of them are known to be equal.
    """

    def expressions(self, one: object, other: object, names: Mapping[str, str]) -> bool:
        """Return whether two expressions are equal; names: the other's columns by those of the one."""
        return False

    def operators(self, one: GroupwiseOp, other: GroupwiseOp, names: Mapping[str, str]) -> bool:
        """Return whether two operators give the same columns, in the same order, over inputs with equal columns."""
        return False

    def constants(self, one: object, other: object) -> bool:
        """Return whether two relations of constants have the same rows."""
        return False


@dataclass(frozen=True)
class Aligner:
    """Aligns plans; equality: of Spark's expressions; state_columns: of the state that a node reads."""

    equality: Equality
    state_columns: StateColumns

    def align(self, one: Plan, other: Plan) -> Alignment | None:
        """Return the equal columns of two plans with the same rows; None if these are not known to be the same."""
        if isinstance(one, Project) and only_chooses(one.items):
            below = self.align(one.child, other)
            return None if below is None else _compose(one.items, below)
        if isinstance(other, Project) and only_chooses(other.items):
            below = self.align(one, other.child)
            shown = {item.scalar.column: item.column for item in other.items if isinstance(item.scalar, Reference)}
            return None if below is None else {name: shown[c] for name, c in below.items() if c in shown}
        match one, other:
            case SourceRead(), SourceRead():
                columns = dict(other.fields)
                return _both(one.fields, columns) if one.relation == other.relation else None
            case StateRead(), StateRead():
                return self._states(one, other)
            case Values(), Values() if len(one.columns) == len(other.columns):
                same = self.equality.constants(one.handle, other.handle)
                return _by_position(one.columns, other.columns) if same else None
            case Union(), Union() if len(one.children) == len(other.children):
                return self._unions(one, other)
            case Join(), Join() if one.kind == other.kind:
                return self._joins(one, other)
            case ((Project() | Filter() | Generate() | Expand() | GroupwiseOp()), _) if type(one) is type(other):
                below = self.align(one.children[0], other.children[0])
                return None if below is None else self._unary(one, other, below)
            case _:
                return None

    def same(self, one: Scalar | None, other: Scalar | None, columns: Alignment) -> bool:
        """Return whether two scalars over aligned rows are equal."""
        match one, other:
            case None, None:
                return True
            case Reference(), Reference():
                return columns.get(one.column.name) == other.column
            case Sql(), Sql():
                return one == other and not one.columns
            case Opaque(), Opaque():
                if one.type != other.type or not all(name in columns for name in one.columns):
                    return False
                names = {name: columns[name].name for name in one.columns}
                return frozenset(names.values()) == other.columns and self.same_handles(one.handle, other.handle, names)
            case _:
                return False

    def same_handles(self, one: object, other: object, names: Mapping[str, str]) -> bool:
        """Return whether two of Spark's expressions are equal; those that are missing are equal to each other."""
        if one is None or other is None:
            return one is other
        return self.equality.expressions(one, other, names)

    def _states(self, one: StateRead, other: StateRead) -> Alignment | None:
        state, own = self.state_columns(one)
        other_state, other_own = self.state_columns(other)
        if state != other_state:
            return None
        shown = dict(zip(other_own, other.columns, strict=True))
        return {column.name: shown[c] for c, column in zip(own, one.columns, strict=True) if c in shown}

    def _unions(self, one: Union, other: Union) -> Alignment | None:
        branches = [
            alignment
            for pair in zip(one.children, other.children, strict=True)
            if (alignment := self.align(*pair)) is not None
        ]
        if len(branches) < len(one.children):
            return None

        def position_in_branch(i: int, branch: int) -> int | None:
            """Return the position in the other union of column i, by the alignment of one branch."""
            column = branches[branch].get(one.children[branch].columns[i].name)
            return None if column is None else other.children[branch].columns.index(column)

        equal: dict[str, Column] = {}
        for i, column in enumerate(one.columns):
            position, *others = {position_in_branch(i, branch) for branch in range(len(branches))}
            if position is not None and not others:
                equal[column.name] = other.columns[position]
        return equal

    def _joins(self, one: Join, other: Join) -> Alignment | None:
        left = self.align(one.left, other.left)
        right = self.align(one.right, other.right)
        if left is None or right is None or not self.same(one.condition, other.condition, {**left, **right}):
            return None
        equal = dict(left) if one.kind in ("semi", "anti", "existence") else {**left, **right}
        if one.exists is not None and other.exists is not None:
            equal[one.exists.name] = other.exists
        return equal

    def _unary(self, one: Plan, other: Plan, below: Alignment) -> Alignment | None:
        """Return the equal columns of two operators over aligned inputs."""
        match one, other:
            case Project(), Project():
                return self._items(one.items, other.items, below)
            case Filter(), Filter():
                return below if self.same(one.condition, other.condition, below) else None
            case Generate(), Generate():
                return self._generates(one, other, below)
            case Expand(), Expand() if len(one.projections) == len(other.projections):
                scalars, others = (
                    dict(zip(expand.columns, zip(*expand.projections, strict=True), strict=True))
                    for expand in (one, other)
                )
                return self._rows(scalars, others, below)
            case GroupwiseOp(), GroupwiseOp() if one.kind == other.kind and len(one.columns) == len(other.columns):
                names = {name: column.name for name, column in below.items()}
                whole = set(names) == {c.name for c in one.child.columns}
                whole = whole and set(names.values()) == {c.name for c in other.child.columns}
                same = whole and self.equality.operators(one, other, names)
                return _by_position(one.columns, other.columns) if same else None
            case _:
                return None

    def _items(self, items: Sequence[Item], others: Sequence[Item], below: Alignment) -> Alignment:
        one = {item.column: (item.scalar,) for item in items}
        other = {item.column: (item.scalar,) for item in others}
        return self._rows(one, other, below)

    def _rows(
        self, one: Mapping[Column, Sequence[Scalar]], other: Mapping[Column, Sequence[Scalar]], below: Alignment
    ) -> Alignment:
        """Return the columns whose scalars, one for each projection, are equal."""
        equal: dict[str, Column] = {}
        for column, scalars in one.items():
            for candidate, others in other.items():
                pairs = zip(scalars, others, strict=True)
                if column.type == candidate.type and all(self.same(*pair, below) for pair in pairs):
                    equal[column.name] = candidate
                    break
        return equal

    def _generates(self, one: Generate, other: Generate, below: Alignment) -> Alignment | None:
        if one.outer != other.outer or len(one.produced) != len(other.produced):
            return None
        if not self.same(one.generator, other.generator, below):
            return None
        passed = {c.name for c in one.columns if c not in one.produced}
        kept = {name: column for name, column in below.items() if name in passed and column not in other.produced}
        return {**kept, **_by_position(one.produced, other.produced)}


def _compose(items: Sequence[Item], below: Alignment) -> Alignment:
    chosen = [(item.column.name, item.scalar.column.name) for item in items if isinstance(item.scalar, Reference)]
    return {name: below[own] for name, own in chosen if own in below}


def _both(fields: Sequence[tuple[str, Column]], others: Mapping[str, Column]) -> Alignment:
    return {column.name: others[field] for field, column in fields if field in others}


def _by_position(columns: Sequence[Column], others: Sequence[Column]) -> Alignment:
    return {one.name: other for one, other in zip(columns, others, strict=True) if one.type == other.type}
