"""The log of a table in memory: a chain of versions, of which a file in the table's folder names the last.

Versions never change, and each knows the one before it. So a folder that is copied, moved or removed takes its table
with it, as a Delta table's log does: two copies share their past and go on apart.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from incremental.lake.files import Commit, File, Identity
from incremental.lake.memory.rows import collected, frame, joined, shaped
from incremental.spark.catalyst import J

HEAD = "_memory_log"


@dataclass(frozen=True)
class Rows:
    """What a file holds, in place of Delta's action: rows by a schema, all of one partition."""

    relation: J
    schema: StructType
    partition: str | None = None
    deleted: int = 0


@dataclass(frozen=True)
class Form:
    """How the rows of a version look and lie; like: a relation with their columns; vectors: whether a file may get
    deletion vectors; mapped: whether columns may have any name.
    """

    schema: StructType
    like: J
    partition: str | None = None
    vectors: bool = True
    mapped: bool = False


@dataclass(frozen=True, eq=False)
class Version:
    """One version of a table, and what its commit did."""

    number: int
    table: str
    form: Form
    files: Mapping[Identity, File]
    epochs: Mapping[str, int]
    done: Commit
    previous: Version | None
    commit: str = field(default_factory=lambda: str(uuid.uuid4()))
    ended: float = field(default_factory=time.time)

    def back(self) -> Iterator[Version]:
        """This version and all before it, newest first."""
        version: Version | None = self
        while version is not None:
            yield version
            version = version.previous

    @cached_property
    def relation(self) -> J:
        """All rows, file by file."""
        return self.rows_of(list(self.files.values()))

    def rows_of(self, files: Sequence[File]) -> J:
        """The rows of some files, by this version's schema."""
        return joined(self.form.like, [self._shaped(file.action) for file in files])

    def _shaped(self, rows: Rows) -> J:
        if rows.schema == self.form.schema:
            return rows.relation
        return collected(shaped(frame(SparkSession.active(), rows.relation), self.form.schema), self.form.like)


@dataclass(frozen=True, eq=False)
class MemoryLog:
    """The versions of all tables of a lake by their commits; the paths of files that were vacuumed."""

    versions: dict[str, Version] = field(default_factory=dict[str, Version])
    vacuumed: set[str] = field(default_factory=set[str])

    def head(self, folder: Path) -> Version | None:
        """The last version of the table in a folder, None where there is no table."""
        try:
            return self.versions.get((folder / HEAD).read_text())
        except FileNotFoundError:
            return None

    def discard(self, paths: Iterable[str]) -> None:
        """Let nobody read some files any more."""
        for path in paths:
            self.vacuumed.add(path)

    def advance(self, folder: Path, version: Version) -> None:
        """Let a version be the last one of the table in a folder, at once."""
        self.versions[version.commit] = version
        folder.mkdir(parents=True, exist_ok=True)
        scratch = folder / f".{version.commit}"
        scratch.write_text(version.commit)
        scratch.replace(folder / HEAD)
