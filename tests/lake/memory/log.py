"""Keep the log of a table in memory: a chain of versions; a file in the table's folder names the last one.

Versions never change, and each refers to the one before it. So a table is copied, moved or removed with its folder, as
a Delta table is with its log: two copies share their past versions and have later ones of their own.
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

from deltafold.lake.files import Commit, File, Identity
from deltafold.spark.catalyst import J
from tests.lake.memory.rows import compute_rows, concatenate, conform, frame_of_rows

HEAD = "_memory_log"


@dataclass(frozen=True)
class Rows:
    """The content of a file, in place of Delta's action: rows with a schema, all of one partition."""

    relation: J
    schema: StructType
    partition: str | None = None
    deleted: int = 0


@dataclass(frozen=True, kw_only=True)
class Form:
    """Schema and table properties of a version.

    like: a relation with its columns; partition: the partition column; vectors: whether a file may get deletion
    vectors; mapped: whether columns may have any name.
    """

    schema: StructType
    like: J
    partition: str | None = None
    vectors: bool = True
    mapped: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Version:
    """One version of a table, and the files that its commit added and removed."""

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
        """Yield this version and all before it, newest first."""
        version: Version | None = self
        while version is not None:
            yield version
            version = version.previous

    @cached_property
    def relation(self) -> J:
        """All rows, file by file."""
        return self.rows_of(list(self.files.values()))

    def rows_of(self, files: Sequence[File]) -> J:
        """Return the rows of some files, by this version's schema."""
        return concatenate(self.form.like, [self._conform(file.action) for file in files])

    def _conform(self, rows: Rows) -> J:
        if rows.schema == self.form.schema:
            return rows.relation
        return compute_rows(
            conform(frame_of_rows(SparkSession.active(), rows.relation), self.form.schema), self.form.like
        )


@dataclass(frozen=True, eq=False)
class MemoryLog:
    """The versions of all tables of a lake by commit id, and the paths of vacuumed files."""

    versions: dict[str, Version] = field(default_factory=dict[str, Version])
    vacuumed: set[str] = field(default_factory=set[str])

    def head(self, folder: Path) -> Version | None:
        """Return the latest version of the table in a folder, None if there is no table."""
        try:
            return self.versions.get((folder / HEAD).read_text())
        except FileNotFoundError:
            return None

    def discard(self, paths: Iterable[str]) -> None:
        """Make files unreadable, as a vacuum does."""
        for path in paths:
            self.vacuumed.add(path)

    def advance(self, folder: Path, version: Version) -> None:
        """Make a version the latest one of the table in a folder, atomically."""
        self.versions[version.commit] = version
        folder.mkdir(parents=True, exist_ok=True)
        scratch = folder / f".{version.commit}"
        scratch.write_text(version.commit)
        scratch.replace(folder / HEAD)
