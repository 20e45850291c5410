"""Read the rows by which the deletion vectors of the same files differ, by Delta's change data reader (D-017).

Of two vectors, the reader subtracts each from the other and passes the differences to the tasks within the files'
actions, where Delta has space for MOST_CHARACTERS. Files of which more differs are read twice: the rows that the new
vector marks are deleted, those that the old one marks inserted, and rows that both mark cancel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from deltafold.lake.files import Action, File, as_removed
from deltafold.lake.log.actions import from_java, java_list, to_java
from deltafold.lake.log.whole_files import changed_rows
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

MOST_CHARACTERS = 65_535  # of a vector within an action; one that is in a file of its own has any size
VECTOR = "deletionVector"

Scan = tuple[J, list[tuple[str, Action]]]
"""A scan of Delta's as Scala's DataFrame, and the vector of the rows that it reads of each file, by path."""


@dataclass(frozen=True)
class VectorChanges:
    """Reads changes of a table by the schema of one version."""

    spark: SparkSession
    log: J
    snapshot: J
    version: int

    def rows(self, before: Sequence[File], after: Sequence[File]) -> DataFrame:
        """Return the rows that differ between the vectors of some files, with `_change_type`: delete or insert.

        A row may be both deleted and inserted. It needs no change data feed.
        """
        old, new = ([json.loads(file.action) for file in files] for files in (before, after))
        scans = self._scans(old, new)
        if far := {path for _, vectors in scans for path, vector in vectors if _length(vector) > MOST_CHARACTERS}:
            old_far, new_far = ([action for action in side if action["path"] in far] for side in (old, new))
            near = [[action for action in side if action["path"] not in far] for side in (old, new)]
            scans = [*(self._scans(*near) if near[0] else []), *self._scan_marks(old_far, new_far)]
        # the reader gives deleted and restored rows; usually one kind is empty, yet found only by reading all files
        some = [scan for scan, vectors in scans if any(int(vector["cardinality"]) for _, vector in vectors)]
        sizes = [file.bytes for file in after]
        frames = [changed_rows(self.spark, scan, sizes) for scan in some or [scans[0][0]]]
        return reduce(DataFrame.unionByName, frames)

    def _scan_marks(self, old: Sequence[Action], new: Sequence[Action]) -> Iterator[Scan]:
        """Yield the scans of the rows that the new vectors mark, and of those that the old ones mark."""
        yield from self._scans(_without_vectors(old), new)
        yield from self._scans(old, _without_vectors(new))

    def _scans(self, old: Sequence[Action], new: Sequence[Action]) -> list[Scan]:
        """Return Delta's scans of the changed rows: deleted ones, and restored ones."""
        cdc = catalyst.sql(self.spark).delta.commands.cdc
        instant, none = catalyst.jvm(self.spark).java.sql.Timestamp(0), catalyst.none(self.spark)
        added, removed = (
            catalyst.vector(self.spark, [getattr(cdc, "CDCReader$CDCDataSpec")(self.version, instant, actions, none)])
            for actions in (
                to_java(self.spark, [json.dumps(action) for action in new]),
                to_java(self.spark, [json.dumps(as_removed(action)) for action in old], "RemoveFile"),
            )
        )
        reader, spark = catalyst.module(cdc, "CDCReader"), catalyst.session(self.spark)
        scans = reader.getDeletedAndAddedRows(added, removed, self.log, self.snapshot, False, spark)
        return [(scan, [*self._vectors(scan)]) for scan in catalyst.sequence(scans)]

    def _vectors(self, scan: J) -> Iterator[tuple[str, Action]]:
        """Yield the path of each file of a scan, and the vector of the rows that are read of it."""
        (relation,) = catalyst.relations_read(scan.queryExecution().analyzed())
        index = relation.relation().location()
        if catalyst.kind(index) == "TahoeRemoveFileIndex":
            lists = [each.actions() for each in catalyst.sequence(index.filesByVersion())]
        else:
            lists = [index.addFiles()]
        for files in lists:
            for action in from_java(self.spark, java_list(self.spark, files)):
                yield str(action["path"]), action[VECTOR]


def _length(vector: Action) -> int:
    """Return the characters that a vector takes within an action."""
    return len(str(vector["pathOrInlineDv"]))


def _without_vectors(actions: Sequence[Action]) -> list[Action]:
    return [{name: value for name, value in action.items() if name != VECTOR} for action in actions]
