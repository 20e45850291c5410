"""Define the kinds of accumulator: the columns of an aggregate in a state, and the rule to merge a change.

| kind | ⊗ merges a change | deletions |
| --- | --- | --- |
| `Group` | yes | subtract (⊗ has an inverse) |
| `Monoid` | yes | some recompute their group: `needs_recompute_sql` decides which |
| `Recomputed` | no | every change recomputes its group |

The behaviour of an accumulator is SQL text that Spark evaluates. In a lift, `{x}` and `{y}` are the arguments of the
aggregate and `{w}` is the weight of a row; in a merge, `{t[n]}` is component n of the stored state and `{u[n]}` of the
change; in a buffer, `{n}` is component n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, assert_never


@dataclass(frozen=True, kw_only=True)
class Component:
    """One column of an accumulator.

    name: suffix of the column's name in the state table; type: Spark's DDL type; lift: its value for a set of weighted
    rows (h); merge: its value for two sets (⊗), unless it is only watched; zero: its value for no rows.
    """

    name: str
    type: str
    lift: str
    merge: str = ""
    zero: str = "NULL"


@dataclass(frozen=True)
class Group:
    """A commutative group: ⊗ has an inverse, so deletions subtract and no group of rows is ever recomputed.

    components: the stored columns; buffers: SQL over them for each buffer of Spark's own aggregate, from which Spark's
    final expression computes the answer; unit_weights: rows must arrive with weight 1 or -1.
    """

    name: str
    components: tuple[Component, ...]
    buffers: tuple[str, ...]
    unit_weights: bool = False
    watched: ClassVar[tuple[Component, ...]] = ()
    deletions: ClassVar[str] = "deletions subtract"


@dataclass(frozen=True, kw_only=True)
class Monoid:
    """A commutative monoid without inverse: ⊗ merges insertions, and some deletions recompute their group.

    watched: columns that are computed from the change and not stored; needs_recompute_sql: condition over stored and
    watched columns under which a deletion may have changed the answer of a group; may_recompute_sql: condition over the
    change alone without which that condition is false (empty: any watched value); deletions: the same for readers of
    explain; tie_rule: which of several equally good answers is taken, where Spark leaves it open.
    """

    name: str
    components: tuple[Component, ...]
    buffers: tuple[str, ...]
    watched: tuple[Component, ...]
    needs_recompute_sql: str = "{u[gone]} > 0"
    unit_weights: bool = False
    deletions: str = "deletions recompute the group"
    tie_rule: str | None = None
    may_recompute_sql: str = ""


@dataclass(frozen=True)
class Recomputed:
    """An aggregate whose partial values do not merge (median, collect_list): the answer itself is stored."""

    answer: Component
    name: ClassVar[str] = "no merge"
    watched: ClassVar[tuple[Component, ...]] = ()
    unit_weights: ClassVar[bool] = False
    deletions: ClassVar[str] = "every change recomputes the group"

    @property
    def components(self) -> tuple[Component, ...]:
        """The one stored column."""
        return (self.answer,)


Mergeable = Group | Monoid
Accumulator = Group | Monoid | Recomputed


def store_answer(type_: str) -> Recomputed:
    """Return the accumulator of an aggregate of this type that does not merge."""
    return Recomputed(Component(name="v", type=type_, lift="", merge="{u[v]}"))


def recompute_condition(accumulator: Accumulator) -> str | None:
    """Return the SQL condition under which a change recomputes a group; None if no change ever does."""
    match accumulator:
        case Group():
            return None
        case Monoid(needs_recompute_sql=condition):
            return condition
        case Recomputed():
            return "true"
        case _:
            assert_never(accumulator)
