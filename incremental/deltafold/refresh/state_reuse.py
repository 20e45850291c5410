"""Reuse the states that a changed query has in common with the query before (D-043).

The new generation begins at the pins of the old one's last epoch, so that a common state is h of the same rows; later
changes are an ordinary epoch after it. A rebuild of the same query reuses nothing: it may be a repair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import SourceError
from deltafold.algebra.program import BUCKET, ROWS
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.partial_aggregate import TOUCHED
from deltafold.dataflow.state_schema import Layout
from deltafold.refresh.sources.upstream import Inputs
from deltafold.store.history import Event, Intent, Pin, Whole, as_complete
from deltafold.store.view_store import Store

Convertible = Mapping[str, tuple[str, ...]]
"""By state, a digest that it had and SQL for its columns (RefreshStrategy.convertible)."""
COPIED = "copied"  # the path of a table that was not computed, as REUSED


@dataclass(frozen=True)
class Reused:
    """A state of another generation; merged: SQL over its columns there for each stored column (Layout.merged)."""

    rows: DataFrame
    merged: tuple[str, ...]

    def under(self, layout: Layout) -> DataFrame:
        """Return the state as h of all rows, in the new generation's columns."""
        names = zip(self.merged, layout.merged, strict=True)
        columns = [*(F.expr(old).alias(new) for old, new in names), F.col(ROWS), F.lit(0).alias(TOUCHED)]
        columns += [F.expr(part.zero).alias(name) for _, part, name in layout.watched]
        return self.rows.select(*columns).withColumn(BUCKET, F.expr(layout.bucket_sql))


def find_reusable(store: Store, intent: Intent, convertible: Convertible) -> Mapping[str, Reused]:
    """Return the states of an epoch that the generation before has at the same versions."""
    begins = intent.epoch == 1 and isinstance(intent.extent, Whole) and intent.states
    entries = store.journal.entries() if begins else ()
    finished = filter(None, map(as_complete, entries))
    earlier = [entry for entry in finished if entry.intent.generation < intent.generation]
    if not earlier or earlier[-1].intent.fingerprint == intent.fingerprint:
        return {}
    last = earlier[-1]
    if not all(has_same_rows(pin, last.intent.sources.get(name, pin)) for name, pin in intent.sources.items()):
        return {}
    reused: dict[str, Reused] = {}
    for name, (old, *merged) in common(intent, last.intent, convertible).items():
        version = last.after.get(old)
        if version is not None:
            reused[name] = Reused(store.table(last.intent.generation, old).at(version), tuple(merged))
    return reused


def common(intent: Intent, last: Intent, convertible: Convertible) -> dict[str, list[str]]:
    """Return for each common state its name in the last epoch, and SQL for its columns over those that it had there."""
    there = {digest: [name, *map(quoted, merged)] for name, (digest, *merged) in last.states.items()}
    equal = {name: there[digest] for name, (digest, *_) in intent.states.items() if digest in there}
    narrower = {name: [there[digest][0], *sql] for name, (digest, *sql) in convertible.items() if digest in there}
    return narrower | equal


def reusable_pins(
    intent: Intent, last: Event | None, inputs: Inputs, convertible: Convertible, chunk_bytes: int | None
) -> dict[str, Pin] | None:
    """Return the pins of the last epoch if it has a common state and its versions can be read, else None.

    A new source keeps its pin.
    chunk_bytes: limit of the bytes of source files per epoch; with a limit, all states must be common.
    """
    if last is None or as_complete(last) is None or last.intent.fingerprint == intent.fingerprint:
        return None
    number = len(common(intent, last.intent, convertible))
    if number == 0 or (chunk_bytes is not None and number < len(intent.states)):
        return None
    earlier = {name: last.intent.sources.get(name, pin) for name, pin in intent.sources.items()}
    pins = {name: pin.from_nothing() for name, pin in earlier.items()}
    return pins if readable(pins, inputs) else None


def readable(pins: Mapping[str, Pin], inputs: Inputs) -> bool:
    """Return whether the pinned versions exist, with the columns that the query reads."""
    try:
        inputs.check(pins)
        inputs.check_columns(pins)
        return all(source.after.is_readable for source in inputs.of(pins).values())
    except SourceError:
        return False


def has_same_rows(pin: Pin, other: Pin) -> bool:
    """Return whether two pins have the same rows of a source."""
    same = pin.commit == other.commit if pin.commit and other.commit else pin.identity == other.identity
    return same and pin.after == other.after
