"""Compute the change of a Delta table between two versions as a Z-set, whoever wrote the table.

No change data feed is needed: the files of both versions are compared by path and deletion vector, and only files in
one and not the other are read, added files with weight 1, removed files with weight -1. A compaction cancels out. If
only the deletion vector of a file changed, only the rows in which the two vectors differ are read. If a column name now
means another column of the same files (rename, drop and add), all files count as removed and added. Where the table
records its changed rows (change data feed) and these files have fewer bytes, they are read instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.program import WEIGHT
from deltafold.algebra.sqltext import quoted, simple_types
from deltafold.lake.files import MOST_COMMITS, Commit, File, Identity
from deltafold.lake.protocol import VersionedTable
from deltafold.lake.snapshot import Snapshot, is_remapped
from deltafold.spark.row_identity import group_identical


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The files removed and added between two versions of a table.

    before: None if there was no table; remapped: column names meant other columns of the files. loaded: the number and
    bytes of the added files where there was no table before; these are all files, so they are not listed. feed: the
    bytes of the change data feed, if its rows are read instead of those of the files.
    """

    before: Snapshot | None
    after: Snapshot
    removed: tuple[File, ...]
    added: tuple[File, ...]
    remapped: bool = False
    loaded: tuple[int, int] = (0, 0)
    feed: int | None = None

    @property
    def empty(self) -> bool:
        """Whether no file was removed or added."""
        return not self.removed and not self.adds

    @property
    def adds(self) -> bool:
        """Whether any file was added."""
        return bool(self.added or self.loaded[0])

    @property
    def bytes(self) -> int:
        """The bytes of all files removed and added, or of the change data feed."""
        if self.feed is not None:
            return self.feed
        return self.loaded[1] + sum(file.bytes for file in (*self.removed, *self.added))

    @property
    def insert_only(self) -> bool:
        """Whether no file was removed, so that no row can have been deleted."""
        return not self.removed

    @property
    def rewrites(self) -> bool:
        """Whether whole files were removed and others added, so that most of their rows may be in both."""
        if self.feed is not None:
            return False
        removed, added, _, _ = self.sides()
        return bool(removed and added)

    def frame(self, columns: Sequence[str], *, consolidate: bool) -> DataFrame:
        """Return the change of some columns: plain rows if insert-only, else a Z-set.

        consolidate: sum the weights of identical rows, where Spark can compare rows (see `sum_weights`).
        """
        chosen = [*map(quoted, columns)]
        if self.before is None:
            return self.after.rows().selectExpr(*chosen)
        if self.insert_only:
            return self.after.rows_of(self.added).selectExpr(*chosen)
        if self.feed is not None:
            sign = f"if(_change_type IN ('delete', 'update_preimage'), -1L, 1L) AS {WEIGHT}"
            recorded = self.after.table.feed(self.before.version, self.after.version)
            change = self.after.widen(recorded).selectExpr(*chosen, sign)
        else:
            change = reduce(DataFrame.unionByName, self._parts(chosen))
        return sum_weights(change) if consolidate else change

    def sides(self) -> tuple[list[File], list[File], list[File], list[File]]:
        """Return whole files removed and added; then files with only another deletion vector, as removed and added."""
        paths = [{file.identity[0] for file in files} for files in (self.removed, self.added)]
        kept = set[str]() if self.remapped else paths[0] & paths[1]
        removed, added = ([f for f in files if f.identity[0] not in kept] for files in (self.removed, self.added))
        old, new = ([f for f in files if f.identity[0] in kept] for files in (self.removed, self.added))
        return removed, added, old, new

    def _parts(self, chosen: Sequence[str]) -> Iterator[DataFrame]:
        """Yield some columns with weights: of added and removed files, and where only the deletion vector differs."""
        assert self.before is not None
        removed, added, old, new = self.sides()
        for snapshot, files, weight in ((self.after, added, 1), (self.before, removed, -1)):
            if files:
                yield snapshot.rows_of(files).selectExpr(*chosen, f"{weight}L AS {WEIGHT}")
        if old:
            sign = f"if(_change_type = 'delete', -1L, 1L) AS {WEIGHT}"
            differing = self.after.table.rows_between(self.after.version, old, new)
            yield self.after.widen(differing).selectExpr(*chosen, sign)


def sum_weights(change: DataFrame) -> DataFrame:
    """Sum the weights of identical rows of a Z-set; unchanged if Spark cannot compare them (variants)."""
    fields = [field for field in change.schema if field.name != WEIGHT]
    if any("variant" in simple_types(field.dataType.simpleString()) for field in fields):
        return change
    summed = group_identical(change, [field.name for field in fields], (WEIGHT, F.sum(WEIGHT)))
    return summed.where(F.col(WEIGHT) != 0)


@dataclass(frozen=True)
class SourceVersions:
    """A table in an epoch: before, None if there was none, and after."""

    before: Snapshot | None
    after: Snapshot

    @staticmethod
    def of(table: VersionedTable, before: int | None, after: int) -> SourceVersions:
        """Return two versions of a table as they are."""
        return SourceVersions(None if before is None else Snapshot(table, before), Snapshot(table, after))

    def at(self, before: int | None, after: int) -> SourceVersions:
        """Return other versions, which are read in the same way."""
        old = None if before is None else replace(self.before or self.after, version=before)
        return SourceVersions(old, replace(self.after, version=after))

    @cached_property
    def difference(self) -> Difference:
        """The files removed and added; all are added if there was no table before."""
        before, after = self.before, self.after
        if after.chosen is None and before is None:
            size = after.table.size(after.version)
            return Difference(before=before, after=after, removed=(), added=(), loaded=size)
        if after.chosen is not None or before is None or before == after or is_remapped(before, after):
            return by_snapshots(self)
        return by_commits(self) or by_snapshots(self)


def file_difference(table: VersionedTable, before: int | None, after: int) -> Difference:
    """Find the files removed and added between two versions of a table."""
    return SourceVersions.of(table, before, after).difference


def by_snapshots(versions: SourceVersions) -> Difference:
    """Compare the files of both versions (the definition); all files differ if `remapped`, and are listed if added."""
    before, after = versions.before, versions.after
    chunk = after.chosen is not None
    remapped = not chunk and before is not None and before != after and is_remapped(before, after)
    if before == after:
        removed, added = list[File](), list[File]()
    elif before is None or chunk or remapped:
        new = after.files
        old: Mapping[Identity, File] = {} if before is None else before.files
        removed = [file for identity, file in old.items() if remapped or identity not in new]
        added = [file for identity, file in new.items() if remapped or identity not in old]
    else:
        removed, added = after.table.compare(before.version, after.version)
    return Difference(before=before, after=after, removed=tuple(removed), added=tuple(added), remapped=remapped)


def by_commits(versions: SourceVersions) -> Difference | None:
    """Compute the same from the files of each commit (D-045); a file added and then removed cancels.

    A compaction is skipped, unless the files that it replaced can no longer be read. Returns None if a skipped one was
    undone (RESTORE): its files would be added twice, perhaps with another deletion vector, and the files that it wrote
    would be removed, perhaps vacuumed. Returns None also if the log does not list every commit, if more than
    MOST_COMMITS would have to be read, and if the versions go backwards.
    """
    before, after = versions.before, versions.after
    if before is None or before.version >= after.version:
        return None
    table = after.table
    if (commits := table.commits(before.version, after.version, MOST_COMMITS)) is None:
        return None
    removed: dict[Identity, File] = {}
    added: dict[Identity, File] = {}
    replaced = set[str]()
    for commit in commits:
        if commit.compacts and table.present([file for file in commit.removed if file.identity in added]):
            replaced |= {file.identity[0] for file in commit.removed}
            continue
        if any(file.identity[0] in replaced for file in commit.added):
            return None
        for one, other, files in ((added, removed, commit.removed), (removed, added, commit.added)):
            for file in files:
                if one.pop(file.identity, None) is None:
                    if file.identity in other:
                        return None
                    other[file.identity] = file
    return with_feed(
        Difference(before=before, after=after, removed=tuple(removed.values()), added=tuple(added.values())),
        commits,
    )


def with_feed(difference: Difference, commits: Sequence[Commit]) -> Difference:
    """Return the difference by the change data feed, if all commits have it, with fewer bytes (D-157).

    None of them may set columns or properties: the feed may be off in between, and Delta refuses to read one over
    columns that were renamed and renamed back, or got a wider type and were restored (D-209). Nor may one change rows
    and be marked as if it did not, since Delta leaves it out. The rows of files that a later commit removed again are
    read, too: a vacuum may have removed these files.
    """
    table, before = difference.after.table, difference.before
    feed, recorded = [file for commit in commits for file in commit.feed], sum(map(file_bytes, commits))
    if difference.insert_only or before is None or recorded >= difference.bytes:
        return difference
    if any(commit.redefines or lacks_feed(commit) for commit in commits):
        return difference
    if not table.metadata(before.version).records_feed or not table.present(feed):
        return difference
    return replace(difference, feed=recorded)


def lacks_feed(commit: Commit) -> bool:
    """Return whether a commit changes rows, as far as is known, that the change data feed does not have."""
    return bool(commit.added or commit.removed) and not commit.compacts and not commit.feed


def file_bytes(commit: Commit) -> int:
    """Return the bytes of a commit's files in the change data feed."""
    return sum(file.bytes for file in commit.feed)
