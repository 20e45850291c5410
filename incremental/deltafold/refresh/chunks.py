"""Split a large change into chunks of files; each chunk commits as one epoch (D-112).

A chunk is a set of removed and added files, and an epoch of its own. In it, a source consists of the files of the
version before the change, with the files of all chunks so far removed and added. Between two chunks a relation is
thus a set of files, so every operator, joins above all, is as exact as between two versions. Files with one path (a
file with another deletion vector) are in one chunk; a chunk has at least one file. Every process computes the same
chunks: they depend on the pinned versions and the number of bytes alone. Sources with small changes come first
(dimensions before facts), equal ones by name. An intent has its chunk as its `extent`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deltafold.algebra.errors import StateError
from deltafold.lake.files import File, Identity
from deltafold.lake.version_diff import Difference, SourceVersions, by_snapshots
from deltafold.store.history import Chunk, Extent, Intent, Pin, Rest


@dataclass(frozen=True, kw_only=True)
class PathChange:
    """Files of one path that are removed and added together; whole: as in Chunk."""

    source: str
    path: str
    removed: tuple[File, ...]
    added: tuple[File, ...]
    whole: bool

    @property
    def bytes(self) -> int:
        """The changed bytes: for a file with another deletion vector the share of its changed rows, unless `whole`.

        Two vectors of equal size may differ in any of their rows, so such a file counts with all of its bytes.
        """
        files = (*self.removed, *self.added)
        both, rows = sum(file.bytes for file in files), [file.rows or 0 for file in files]
        differ = max(rows) - min(rows)
        if self.whole or not differ or not (self.removed and self.added):
            return both
        return math.ceil(both * differ / max(rows))


def split_into_chunks(intent: Intent, sources: Mapping[str, SourceVersions], most: int) -> Intent:
    """Return the intent of the first chunk if the change of its sources has more than `most` bytes, else the intent.

    Between two chunks declared constraints may be violated, so none is relied on; the whole change is checked before
    the first chunk. A change of column mapping or of the partition column is never split: a chunk reads all files by
    one schema.
    """
    differences = {name: source.difference for name, source in sources.items()}
    if sum(change.bytes for change in differences.values()) <= most:
        return intent
    differences |= {name: by_snapshots(source) for name, source in sources.items() if source.before is None}
    first = Chunk(1, 1, most, starts={name: pin.before for name, pin in intent.sources.items()})
    if len(list(assign_chunks(differences, first))) < 2:  # a compaction alone changes no rows
        return intent
    changes = file_changes(sources, intent.sources, first)
    number = len(list(assign_chunks(changes, first)))
    if number < 2 or not all(one_schema(change) for change in changes.values()):
        return intent
    return replace(intent, extent=replace(first, of=number), relied=[])


def one_schema(change: Difference) -> bool:
    """Return whether files of both versions can be read by the later schema, in which no type got wider."""
    if change.before is None or not change.removed:
        return not change.remapped
    sides = [side.table.metadata(side.version).partition_columns for side in (change.before, change.after)]
    then, now = ({field.name: field.dataType for field in side.schema} for side in (change.before, change.after))
    kept = all(then.get(name, type_) == type_ for name, type_ in now.items())
    return not change.remapped and sides[0] == sides[1] and kept


def next_chunk_of(intent: Intent, tables: dict[str, int | None]) -> Intent:
    """Return the intent of the next chunk; tables: the view's own tables now."""
    assert isinstance(intent.extent, Chunk)
    pins = {name: pin.go_on() for name, pin in intent.sources.items()}
    chunk = replace(intent.extent, number=intent.extent.number + 1)
    return replace(intent, epoch=intent.epoch + 1, sources=pins, tables=tables, extent=chunk)


def rest_of(begun: Intent, intent: Intent, sources: Mapping[str, SourceVersions]) -> Intent:
    """Return an intent that goes on from a finished chunk, and takes in all that is left of the change.

    Raises StateError where its files cannot be read by the schema of the new versions.
    """
    chunk = begun.extent
    assert isinstance(chunk, Chunk)
    ends = {name: begun.sources[name].after for name in intent.sources}
    for name, pin in intent.sources.items():
        begins = (sources[name].at(version, pin.after) for version in (chunk.starts[name], ends[name]))
        changes = map(by_snapshots, begins)
        if pin.is_rebuilt or not all(one_schema(change) for change in changes):
            raise StateError(
                f"view {intent.view}: {chunk.number} of {chunk.of} chunks of a change are taken in, and the "
                f"schema or partitioning of source {name} changed since. Rebuild the view."
            )
    number = chunk.number + 1
    rest = Rest(number, number, chunk.bytes, chunk.whole, chunk.starts, ends)
    return replace(intent, extent=rest, relied=[])


def sources_of_chunk(
    sources: Mapping[str, SourceVersions], pins: Mapping[str, Pin], extent: Extent
) -> Mapping[str, SourceVersions]:
    """Return what an epoch reads: of a chunk of a change, the files before and after it; else the versions themselves.

    All files are read by the later schema.
    """
    if not isinstance(extent, Chunk):
        return sources
    changes = file_changes(sources, pins, extent)
    assigned = list(assign_chunks(changes, extent))
    earlier = [path for chunk_before in assigned[: extent.number - 1] for path in chunk_before]
    now = assigned[extent.number - 1]

    def between(name: str) -> SourceVersions:
        start, after = changes[name].before, sources[name].after
        old = {} if start is None else dict(start.files)
        taken = [path for path in earlier if path.source == name]
        exchange(old, taken)
        if isinstance(extent, Rest):
            new = after.files
        else:
            new = dict(old)
            exchange(new, [path for path in now if path.source == name])
        before = None if start is None and not taken else replace(after, chosen=old)
        return SourceVersions(before, replace(after, chosen=new))

    return {**sources, **{name: between(name) for name, change in changes.items() if not change.empty}}


def exchange(files: dict[Identity, File], changes: Sequence[PathChange]) -> None:
    """Remove and add the files of some changes."""
    for change in changes:
        for file in change.removed:
            files.pop(file.identity, None)
        for file in change.added:
            files[file.identity] = file


def file_changes(sources: Mapping[str, SourceVersions], pins: Mapping[str, Pin], chunk: Chunk) -> dict[str, Difference]:
    """Return the change of each source over all chunks, from the file lists of both versions.

    Chunks lead to `ends` where their rest goes to other versions. The commits are not sufficient: they give the same
    rows, but skip compactions, so that a file may be removed that was never added; and they give other files once a
    vacuum has removed what a compaction replaced.
    """
    ends = chunk.ends if isinstance(chunk, Rest) else {name: pin.after for name, pin in pins.items()}
    return {name: by_snapshots(sources[name].at(chunk.starts[name], ends[name])) for name in pins}


def assign_chunks(changes: Mapping[str, Difference], chunk_size: Chunk) -> Iterator[list[PathChange]]:
    """Yield the changes of each chunk, in their order."""
    by_source = [path_changes(name, changes[name], whole=chunk_size.whole) for name in sorted(changes)]
    chunk: list[PathChange] = []
    room = chunk_size.bytes
    for change in (m for ms in sorted(by_source, key=lambda ms: sum(m.bytes for m in ms)) for m in ms):
        if chunk and change.bytes > room:
            yield chunk
            chunk, room = [], chunk_size.bytes
        chunk.append(change)
        room -= change.bytes
    if chunk:
        yield chunk


def path_changes(name: str, change: Difference, *, whole: bool) -> list[PathChange]:
    """Return the changes of one source by path, so that the files of one partition follow each other."""
    paths: dict[str, tuple[list[File], list[File]]] = {}
    for side, files in enumerate((change.removed, change.added)):
        for file in files:
            paths.setdefault(file.identity[0], ([], []))[side].append(file)
    return [
        PathChange(source=name, path=path, removed=tuple(removed), added=tuple(added), whole=whole)
        for path, (removed, added) in sorted(paths.items())
    ]
