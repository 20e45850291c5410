"""Describe data files and commits by the actions of Delta's log, with path and deletion vector as a file's identity.

An action is read as the JSON that the log contains, so that a file costs no call into Java.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructField

Identity = tuple[str, str]
Action = Mapping[str, Any]
"""One action of the log, or the content of one, as parsed from JSON."""

MOST_COMMITS = 100  # beyond, comparing two snapshots is cheaper than reading the commits in between
FEED = "delta.enableChangeDataFeed"
UNMAPPED = set(" ,;{}()\n\t=")  # characters that Parquet and Delta allow in a column name only with a name mapping


@dataclass(frozen=True)
class File:
    """A data file of a version: identity (path and deletion vector), rows if known, bytes, and how its lake reads it.

    action: the JSON of Delta's AddFile; rows, where the lake is in memory.
    """

    identity: Identity
    rows: int | None
    bytes: int
    action: Any


def data_file(action: Action) -> File:
    """Describe the file of an `add` action."""
    vector = action.get("deletionVector")
    rows = physical_rows(action)
    return File(
        (str(action["path"]), "" if vector is None else vector_id(vector)),
        None if rows is None else rows - (0 if vector is None else int(vector["cardinality"])),
        int(action["size"]),
        json.dumps(action),
    )


def physical_rows(action: Action) -> int | None:
    """Return the rows in the file of an `add` or `remove` action, deleted ones included; None if not recorded."""
    stats = action.get("stats")
    rows = json.loads(stats).get("numRecords") if stats else None
    return None if rows is None else int(rows)


def vector_id(vector: Action) -> str:
    """Return the identity of a deletion vector: its storage, its place, and the offset in a shared file."""
    offset = vector.get("offset")
    return f"{vector['storageType']}{vector['pathOrInlineDv']}" + ("" if offset is None else f"@{offset}")


def as_added(removed: Action) -> Action:
    """Convert a `remove` action to an `add` action, to read the file's rows."""
    added = {name: removed[name] for name in ("path", "partitionValues", "size")}
    rows, vector = physical_rows(removed), removed.get("deletionVector")
    if rows is not None:
        added["stats"] = json.dumps({"numRecords": rows, "tightBounds": False})
    if vector is not None:
        added["deletionVector"] = vector
    return added | {"modificationTime": 0, "dataChange": True}


def as_removed(added: Action) -> Action:
    """Convert an `add` action to the `remove` action of its file."""
    kept = {name: added[name] for name in ("path", "partitionValues", "size", "deletionVector") if name in added}
    return kept | {"dataChange": True, "extendedFileMetadata": True}


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The files that a commit added and removed; compacts: it changed no row; uncounted: its writer says so, but some
    file does not tell its number of rows.

    feed: the files with its changed rows, if the table records them (Delta's change data feed): those written for that,
    or else the added and removed ones; none if its writer says of some of these that they change no row, since Delta
    leaves them out; redefines: it sets the table's columns or properties, perhaps as they were.
    """

    added: list[File]
    removed: list[File]
    compacts: bool = False
    uncounted: bool = False
    feed: tuple[File, ...] = ()
    redefines: bool = False


def rows_in(files: Sequence[File]) -> float:
    """Return the number of rows of some files; NaN, which equals nothing, if a writer did not record it."""
    return math.fsum(math.nan if file.rows is None else file.rows for file in files)


def commit_of(actions: Sequence[Action], partitions: Callable[[], list[str]]) -> Commit | None:
    """Return the files that a commit added and removed, from its actions; partitions: looks up the partition columns.

    None if the actions are not sufficient (file metadata was left out, or only metadata of existing files changed), or
    if the partitioning changed: a file is read by the partitions of its time.
    """
    if any(columns != partitions() for columns in partitionings(actions)):
        return None
    added, removed = ([each[kind] for each in actions if each.get(kind)] for kind in ("add", "remove"))
    if any(action.get("partitionValues") is None or action.get("size") is None for action in removed):
        return None
    changing = [action.get("dataChange", True) for action in (*removed, *added)]
    same = not any(changing)
    if same and added and not removed:
        return None
    files, gone = [data_file(action) for action in added], [data_file(as_added(action)) for action in removed]
    grown = rows_in(files) - rows_in(gone)
    recorded = [data_file(each["cdc"]) for each in actions if each.get("cdc")]
    feed = recorded or ([*files, *gone] if all(changing) else [])
    return Commit(
        added=files,
        removed=gone,
        compacts=same and grown == 0,
        uncounted=same and math.isnan(grown),
        feed=() if same else tuple(feed),
        redefines=any(each.get("metaData") for each in actions),
    )


def records_feed(properties: Mapping[str, str]) -> bool:
    """Return whether the properties of a table turn its change data feed on."""
    return str(properties.get(FEED, "false")).lower() == "true"


def partitionings(actions: Sequence[Action]) -> Iterator[list[str]]:
    """Yield the partition columns of each `metaData` action among a commit's actions."""
    return (list(map(str, each["metaData"].get("partitionColumns", ()))) for each in actions if each.get("metaData"))


def net_change(commits: Sequence[Commit]) -> tuple[dict[Identity, File], dict[Identity, File]]:
    """Return the files that some commits removed and added in all; a file added and then removed is neither."""
    removed: dict[Identity, File] = {}
    added: dict[Identity, File] = {}
    for commit in commits:
        for one, other, files in ((added, removed, commit.removed), (removed, added, commit.added)):
            for file in files:
                if one.pop(file.identity, None) is None:
                    other[file.identity] = file
    return removed, added


def physical_name(field: StructField) -> str:
    """Return the name of a column in the files of a table."""
    return str(field.metadata.get("delta.columnMapping.physicalName", field.name))


def needs_mapping(columns: Sequence[str]) -> bool:
    """Return whether some column name needs Delta's name mapping, which gives columns other names in the files."""
    return any(UNMAPPED & set(name) for name in columns)
