"""Define how a state is stored: its column names, and its answers as expressions over them.

| column | contains |
| --- | --- |
| `__bucket` | partition: pmod(hash(bucket keys), buckets); 0 for a state without keys |
| the lineage key | under the answer's name if the answer shows it, else `__<name>_key` |
| `__rows` | group row count; a group exists while it is above zero |
| `__<answer>_<part>` | the monoid's columns |
| answer columns | if the answer is published in place |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from deltafold.algebra.monoids.kinds import Component, Recomputed
from deltafold.algebra.plan import Column, Item, Reference
from deltafold.algebra.program import BUCKET, RESERVED, ROWS, InPlace, OwnTable, Program, Slot, State
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.lowering import Lowering
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

TIMES = ("date", "timestamp", "timestamp_ntz")
SqlOf = Callable[[str], str]


@dataclass(frozen=True)
class StoredTable:
    """A table of a view: its columns, those it is sorted by within a bucket, and SQL for the bucket of a row."""

    columns: tuple[str, ...]
    sorted_by: tuple[str, ...]
    bucket: str

    @property
    def is_divided(self) -> bool:
        """Whether its rows are in several buckets, if it has several."""
        return self.bucket != "0"


class Layout:
    """Names and expressions of one state table."""

    def __init__(self, state: State, in_place: InPlace | None, buckets: int) -> None:
        self.state, self.in_place, self.buckets = state, in_place, buckets
        shown = {item.scalar.column: item.column.name for item in self._items if isinstance(item.scalar, Reference)}
        self._keys = {key: shown.get(key, f"{RESERVED}{key.name}_key") for key in state.keys}

    @classmethod
    def of(cls, program: Program, state: State, buckets: int) -> Layout:
        """Return the layout of a state of a program."""
        match program.publication:
            case InPlace() as shown:
                return cls(state, shown if shown.state == state.name else None, buckets)
            case OwnTable():
                return cls(state, None, buckets)
            case _:
                assert_never(program.publication)

    @property
    def _items(self) -> tuple[Item, ...]:
        return self.in_place.items if self.in_place else ()

    def key(self, column: Column) -> str:
        """Return the stored name of a key column."""
        return self._keys[column]

    def key_shown(self, name: str | None) -> str | None:
        """Return the stored name of the key column that an answer column shows; None if it shows none."""
        shown = {item.column.name: item.scalar.column for item in self._items if isinstance(item.scalar, Reference)}
        return self._keys.get(shown[name]) if name in shown else None

    @property
    def keys(self) -> tuple[str, ...]:
        """The stored names of all key columns, in storage order."""
        return tuple(self._keys.values())

    @property
    def sorted_by(self) -> tuple[str, ...]:
        """The keys in the order of the rows in a file: days and times first, as a change has few of them."""
        return tuple(self._keys[key] for key in sorted(self.state.keys, key=lambda key: key.type not in TIMES))

    @property
    def bucket_sql(self) -> str:
        """The bucket of a row that has the key columns."""
        if not self.state.keys or self.buckets == 1:
            return "0"
        return (
            f"CAST(pmod(hash({', '.join(quoted(self.key(c)) for c in self.state.bucket_by)}), {self.buckets}) AS INT)"
        )

    @property
    def parts(self) -> tuple[tuple[Slot, Component, str], ...]:
        """Every stored monoid column with its name."""
        return tuple(
            (slot, part, slot.stored_name(part)) for slot in self.state.slots for part in slot.accumulator.components
        )

    @property
    def merged(self) -> tuple[str, ...]:
        """The columns of ⊗: the keys, by which it merges, and the monoids' columns."""
        return (*self.keys, *(name for _, _, name in self.parts))

    @property
    def watched(self) -> tuple[tuple[Slot, Component, str], ...]:
        """Every column of the change that only shows whether a deletion may change a group's value."""
        return tuple(
            (slot, part, slot.stored_name(part)) for slot in self.state.slots for part in slot.accumulator.watched
        )

    @property
    def answer_items(self) -> tuple[Item, ...]:
        """Answer columns stored beside the keys."""
        keys = set(self._keys.values())
        return tuple(item for item in self._items if item.column.name not in keys)

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns in order: those of readers first, reserved ones last."""
        answers = [item.column.name for item in self._items]
        hidden_keys = [name for name in self.keys if name not in answers]
        return (*answers, *hidden_keys, ROWS, *(name for _, _, name in self.parts), BUCKET)

    @property
    def stored(self) -> StoredTable:
        """The storage of the table: columns, sort columns, bucket."""
        return StoredTable(self.columns, self.sorted_by, self.bucket_sql)

    def call_values(self, lowering: Lowering, sql_of: SqlOf) -> dict[str, J]:
        """Return the answer of each aggregate, by its column name; `sql_of` gives SQL for a stored monoid column."""
        values: dict[str, J] = {}
        for slot in self.state.slots:
            parts = {part.name: sql_of(slot.stored_name(part)) for part in slot.accumulator.components}
            if isinstance(slot.accumulator, Recomputed):
                stored = parts[slot.accumulator.answer.name]
                values[slot.call.column.name] = catalyst.parse_expression(lowering.spark, stored)
                continue
            buffers = {
                buffer.name: catalyst.parse_expression(
                    lowering.spark, f"CAST({template.format(**parts)} AS {buffer.type})"
                )
                for buffer, template in zip(slot.call.buffers, slot.accumulator.buffers, strict=True)
            }
            assert slot.call.answer is not None
            values[slot.call.column.name] = lowering.substitute(slot.call.answer, buffers)
        return values

    def answer_values(self, lowering: Lowering, sql_of: SqlOf) -> dict[str, J]:
        """Return the answer columns that are stored in the state, by name, from stored key and monoid columns."""
        if not self.answer_items:
            return {}
        values = self.call_values(lowering, sql_of)
        values |= {
            key.name: catalyst.parse_expression(lowering.spark, sql_of(name)) for key, name in self._keys.items()
        }
        return {item.column.name: lowering.substitute(item.scalar, values) for item in self.answer_items}
