"""Change some rows of a table: one value that describes the change, one decision how it is written, and the writing.

| path | reads and writes | pays off for |
| --- | --- | --- |
| REWRITE | all rows, with the change merged into them | a table of a few small files |
| BUCKETS | the rows of the touched buckets, likewise, in a direct commit | few rows in buckets that are not large |
| VECTORS | the change and deletion vectors, in a direct commit | few rows |
| MERGE | Delta's MERGE | anything |

Each of the first three takes the next one's place where the table's log does not allow it: Delta's writer rewrites what
a direct commit cannot, and a MERGE follows where neither buckets nor vectors can be written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from pyspark.sql import DataFrame

from deltafold.algebra.program import BUCKET
from deltafold.algebra.tuning import Tuning
from deltafold.lake.key_interval import KeyInterval
from deltafold.lake.protocol import Clause, Mark, Table

BY_WRITER = ", by Delta's writer"  # added to a path in reports if the commit was not direct


class WritePath(Enum):
    """How rows of a table may be written."""

    REWRITE = "rewrite"
    BUCKETS = "rewrite of buckets"
    VECTORS = "deletion vectors"
    MERGE = "merge"


@dataclass(frozen=True, kw_only=True)
class Written:
    """How rows of a table were written; is_direct: without Spark jobs but those that find and write rows."""

    path: WritePath
    is_direct: bool

    @property
    def keeps_files(self) -> bool:
        """Whether the files that the commit adds and removes have little more than the changed rows."""
        return self.path in (WritePath.VECTORS, WritePath.MERGE)

    @property
    def sentence(self) -> str:
        """The path as reports show it."""
        return f"{'merge' if self.keeps_files else 'rewrite'}{'' if self.is_direct else BY_WRITER}"


@dataclass(frozen=True, kw_only=True)
class Extent:
    """The size of a change: its rows, the buckets that these are in, and the number of the table's buckets.

    by_buckets: the rows of the touched buckets can be rewritten alone.
    """

    rows: int
    buckets: Sequence[int]
    of_buckets: int
    by_buckets: bool = False

    def is_small(self, tuning: Tuning) -> bool:
        """Return whether one task handles the change."""
        return self.rows <= tuning.local_rows

    def choose_path(self, files: int, size: int, tuning: Tuning) -> WritePath:
        """Return how a table of so many files and bytes is to be written."""
        if is_rewritten(files, size, tuning) and not (self.by_buckets and self.of_buckets > 1):
            return WritePath.REWRITE
        if not self.is_small(tuning):
            return WritePath.MERGE
        touched = size * len(self.buckets) / self.of_buckets
        return WritePath.BUCKETS if self.by_buckets and touched <= tuning.rewrite_touched_bytes else WritePath.VECTORS

    @property
    def near(self) -> str:
        """The SQL condition of the rows in the touched buckets."""
        return in_buckets(self.buckets)


@dataclass(frozen=True, kw_only=True)
class Matching:
    """A change for a merge: in conditions and values, `t` is a stored row and `u` a row of the change.

    same: whether they are one row; clauses: what happens to a row of both, and to one of the change alone; interval: of
    a column in the rows of the change that match, which says that the change is computed and measured already (D-226).
    """

    change: DataFrame
    same: str
    clauses: Sequence[Clause]
    interval: KeyInterval | None = None


@dataclass(frozen=True, kw_only=True)
class Upsert:
    """A change of some rows of a table. Its functions are called for the paths that need them alone.

    matching: returns the change for a merge; stored: returns the rows to rewrite, of a condition if there is one;
    merged: returns such rows with the change.
    """

    extent: Extent
    matching: Callable[[], Matching]
    stored: Callable[[str | None], DataFrame]
    merged: Callable[[DataFrame], DataFrame]


def apply_upsert(table: Table, upsert: Upsert, mark: Mark, path: WritePath) -> Written:
    """Change a table in one commit, by a path or the next one; returns which. Skipped where the epoch is written."""
    near = upsert.extent.near
    match path:
        case WritePath.REWRITE:
            direct = table.overwrite(upsert.merged(upsert.stored(None)), mark, BUCKET)
            return Written(path=path, is_direct=direct)
        case WritePath.BUCKETS:
            rows = upsert.merged(upsert.stored(near))
            if table.replace_partitions(rows, near, mark, BUCKET):
                return Written(path=path, is_direct=True)
            return apply_upsert(table, upsert, mark, WritePath.VECTORS)
        case WritePath.VECTORS | WritePath.MERGE:
            few = path is WritePath.VECTORS
            direct = _merge(table, upsert.extent, upsert.matching(), mark, few=few)
            return Written(path=WritePath.VECTORS if direct else WritePath.MERGE, is_direct=direct)
        case _:
            assert_never(path)


def merge_exactly(table: Table, extent: Extent, matching: Matching, mark: Mark, matched: int) -> bool:
    """Merge a change by deletion vectors if it matches this number of stored rows; returns whether it did.

    With another number of rows, or without a direct commit, nothing is written.
    """
    return _merge(table, extent, matching, mark, few=True, matched=matched)


def _merge(
    table: Table, extent: Extent, matching: Matching, mark: Mark, *, few: bool, matched: int | None = None
) -> bool:
    same, within = f"t.{extent.near} AND {matching.same}", extent.near if few else None
    return table.merge(matching.change, same, matching.clauses, mark, within, matched, matching.interval)


def is_rewritten(files: int, size: int, tuning: Tuning) -> bool:
    """Return whether it is cheaper to rewrite a table of so many files and bytes than to find the rows to change."""
    return files <= tuning.rewrite_files and size <= tuning.rewrite_bytes


def in_buckets(buckets: Sequence[int]) -> str:
    """Return the SQL condition of the rows in some buckets."""
    return f"{BUCKET} IN ({', '.join(map(str, buckets))})"
