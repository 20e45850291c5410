"""Compute the change of a Delta table between two versions as a Z-set, whoever wrote the table.

No change data feed is needed: the files of both versions are compared by path and deletion vector, and only files in
one and not the other are read, added files with weight 1, removed files with weight -1. A compaction cancels out. If
only the deletion vector of a file changed, only the rows in which the two vectors differ are read. If a column name now
means another column of the same files (rename, drop and add), all files count as removed and added. Where the table
records its changed rows (change data feed) and these files have fewer bytes, they are read instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from deltafold.algebra.program import WEIGHT
from deltafold.algebra.sqltext import quoted, simple_types
from deltafold.lake.files import MOST_COMMITS, Commit, File, Identity, physical_name
from deltafold.lake.protocol import VersionedTable
from deltafold.spark.row_identity import group_identical


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The files removed and added between two versions.

    remapped: column names meant other columns of the files. loaded: the number and bytes of the added files where there
    was no table before; these are all files, so they are not listed. feed: the bytes of the change data feed, if its
    rows are read instead of those of the files.
    """

    table: VersionedTable
    before: int | None
    after: int
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
            return self.table.at(self.after).selectExpr(*chosen)
        if self.insert_only:
            return self.table.rows_of(self.after, self.added).selectExpr(*chosen)
        if self.feed is not None:
            sign = f"if(_change_type IN ('delete', 'update_preimage'), -1L, 1L) AS {WEIGHT}"
            change = self.table.feed(self.before, self.after).selectExpr(*chosen, sign)
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
        for table, version, files, weight in (
            (self.table, self.after, added, 1),
            (self.table.origin, self.before, removed, -1),
        ):
            if files:
                yield table.rows_of(version, files).selectExpr(*chosen, f"{weight}L AS {WEIGHT}")
        if old:
            sign = f"if(_change_type = 'delete', -1L, 1L) AS {WEIGHT}"
            yield self.table.rows_between(self.after, old, new).selectExpr(*chosen, sign)


def sum_weights(change: DataFrame) -> DataFrame:
    """Sum the weights of identical rows of a Z-set; unchanged if Spark cannot compare them (variants)."""
    fields = [field for field in change.schema if field.name != WEIGHT]
    if any("variant" in simple_types(field.dataType.simpleString()) for field in fields):
        return change
    summed = group_identical(change, [field.name for field in fields], (WEIGHT, F.sum(WEIGHT)))
    return summed.where(F.col(WEIGHT) != 0)


def file_difference(table: VersionedTable, before: int | None, after: int) -> Difference:
    """Find the files removed and added between two versions; all are added if `before` is None (no table before)."""
    if before is None:
        return Difference(table=table, before=before, after=after, removed=(), added=(), loaded=table.size(after))
    logged = None if is_remapped(table, before, after) else by_commits(table, before, after)
    return logged or by_snapshots(table, before, after)


def is_remapped(table: VersionedTable, before: int, after: int) -> bool:
    """Return whether column names refer to other columns of the files: a column was renamed, or dropped and added
    again, or the table was replaced.
    """
    if table.origin is not table:
        return True
    if not any(map(table.is_mapped, (before, after))):
        return False
    old, new = (physical_names(table.schema(version)) for version in (before, after))
    return any(name in new and new[name] != physical for name, physical in old.items())


def physical_names(data_type: DataType, path: str = "") -> dict[str, str]:
    """Return the names in the files of each column and nested field, by its name in the schema."""
    match data_type:
        case StructType(fields=fields):
            names: dict[str, str] = {}
            for field in fields:
                inner = f"{path}.{field.name}"
                names[inner] = physical_name(field)
                names |= physical_names(field.dataType, inner)
            return names
        case ArrayType(elementType=element):
            return physical_names(element, f"{path}[]")
        case MapType(keyType=key, valueType=value):
            return physical_names(key, f"{path}{{}}") | physical_names(value, f"{path}[]")
        case _:
            return {}


def by_snapshots(table: VersionedTable, before: int | None, after: int) -> Difference:
    """Compare the files of both versions (the definition); all files differ if `remapped`, and are listed if added."""
    if before == after and table.origin is table:
        return Difference(table=table, before=before, after=after, removed=(), added=())
    if before is None:
        return Difference(table=table, before=before, after=after, removed=(), added=tuple(table.files(after).values()))
    if is_remapped(table, before, after):
        old, new = table.origin.files(before), table.files(after)
        return Difference(
            table=table,
            before=before,
            after=after,
            removed=tuple(old.values()),
            added=tuple(new.values()),
            remapped=True,
        )
    removed, added = table.compare(before, after)
    return Difference(table=table, before=before, after=after, removed=tuple(removed), added=tuple(added))


def by_commits(table: VersionedTable, before: int, after: int) -> Difference | None:
    """Compute the same from the files of each commit (D-045); a file added and then removed cancels.

    A compaction is skipped, unless the files that it replaced can no longer be read. Returns None if a skipped one was
    undone (RESTORE): its files would be added twice, perhaps with another deletion vector, and the files that it wrote
    would be removed, perhaps vacuumed. Returns None also if the log does not list every commit, if more than
    MOST_COMMITS would have to be read, and if the versions go backwards.
    """
    commits = table.commits(before, after, MOST_COMMITS) if before < after else None
    if commits is None:
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
        Difference(
            table=table, before=before, after=after, removed=tuple(removed.values()), added=tuple(added.values())
        ),
        commits,
    )


def with_feed(difference: Difference, commits: Sequence[Commit]) -> Difference:
    """Return the difference by the change data feed, if all commits have it, with fewer bytes (D-157).

    None of them may set columns or properties: the feed may be off in between, and Delta refuses to read one over
    columns that were renamed and renamed back, or got a wider type and were restored (D-209). Nor may one change rows
    and be marked as if it did not, since Delta leaves it out. The rows of files that a later commit removed again are
    read, too: a vacuum may have removed these files.
    """
    table, before = difference.table, difference.before
    feed, recorded = [file for commit in commits for file in commit.feed], sum(map(file_bytes, commits))
    if difference.insert_only or before is None or recorded >= difference.bytes:
        return difference
    if any(commit.redefines or lacks_feed(commit) for commit in commits):
        return difference
    if not table.records_feed(before) or not table.present(feed):
        return difference
    return replace(difference, feed=recorded)


def lacks_feed(commit: Commit) -> bool:
    """Return whether a commit changes rows, as far as is known, that the change data feed does not have."""
    return bool(commit.added or commit.removed) and not commit.compacts and not commit.feed


def file_bytes(commit: Commit) -> int:
    """Return the bytes of a commit's files in the change data feed."""
    return sum(file.bytes for file in commit.feed)
