"""Read the change of a source once for all datasets of a run (D-190).

The datasets of a pipeline take each source from the same version to the same other one, unless one of them is behind.
So the first of them that needs the change reads it, with the columns that any of them reads and without equal rows, and
the others select their columns from these rows. Few rows are kept in the driver, more in Spark's storage until the run
ends.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Lock

from pyspark.sql import DataFrame

from deltafold.algebra.tuning import Tuning
from deltafold.lake.version_diff import Difference
from deltafold.spark import catalyst
from deltafold.spark.checkpoint import Checkpoints, computed_once


@dataclass
class SharedChange:
    """The changes of one table that several datasets of a run read.

    columns: those that any of them reads; cached: frees the rows at the end of the run; reads: the number of times that
    a change was read from the table; uses: the number of times that it was asked for.
    """

    columns: tuple[str, ...]
    cached: ExitStack
    reads: int = 0
    uses: int = 0
    _rows: dict[tuple[int, int], DataFrame] = field(default_factory=dict[tuple[int, int], DataFrame])
    _lock: Lock = field(default_factory=Lock)

    def rows(self, changed: Difference, tuning: Tuning) -> DataFrame | None:
        """Return the change of all columns: plain rows if no file was removed, else a Z-set.

        None for a first load, and for many added rows: each dataset reads of these only its own columns.
        """
        small = changed.bytes <= tuning.local_bytes
        if changed.before is None or changed.empty or (changed.insert_only and not small):
            return None
        versions = changed.before.version, changed.after.version
        with self._lock:  # the others wait for the first
            if versions not in self._rows:
                frame = changed.frame(self._columns_of(changed), consolidate=True)
                self._rows[versions] = (
                    Checkpoints(self.cached, tuning.local_rows).small(frame)
                    if small
                    else self.cached.enter_context(computed_once(frame, now=True))
                )
                self.reads += 1
            self.uses += 1
            return self._rows[versions]

    def _columns_of(self, changed: Difference) -> list[str]:
        """Return the columns that all rows of a change have, of one type; others are read by their readers alone."""
        if changed.insert_only or changed.before is None:
            return [*self.columns]
        before, after = (catalyst.types_of(side.schema) for side in (changed.before, changed.after))
        return [name for name in self.columns if name in before and before[name] == after.get(name)]
