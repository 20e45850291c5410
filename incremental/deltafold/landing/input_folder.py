"""The folder of a source's input files, on this machine or in a store, as a landing works with it.

| | on this machine | in a store |
| --- | --- | --- |
| `present` | lists folders | asks for all files below at once |
| `fetch` | does nothing | copies the files of a partition to this machine, before they are looked into or read |
| `open` | leaves the folder alone | removes the copies in the end, and names the store in errors |

So files of a store are checked, compared by content and read as local ones, all from one copy, whatever others write
meanwhile. A file whose name, size, time and entity tag are those of the last landing is not copied.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shutil import disk_usage
from typing import Any, cast

from pyspark.sql import SparkSession

from deltafold.algebra.errors import DeltafoldError, SourceError
from deltafold.algebra.local_path import is_remote
from deltafold.algebra.sources import Files
from deltafold.lake.durable import Folder, make_private
from deltafold.lake.remote.objects import copy_to_local, walk_folder
from deltafold.lake.remote.remote_path import Place
from deltafold.landing.folder import (
    UNPARTITIONED,
    Facts,
    Partition,
    by_key,
    check_file_name,
    is_data,
    partition_key,
    partitions_in,
    refuse_folder,
)
from deltafold.landing.staging import Staging
from deltafold.spark.cache import cache_folder

COPIES_AT_ONCE = 8
MILLION = 1_000_000  # nanoseconds of a millisecond


@dataclass(frozen=True)
class LocalFolder:
    """A folder of this machine; own: where its files are staged."""

    source: str
    files: Files
    own: Path

    @property
    def root(self) -> Path:
        """The folder that the partitions are in."""
        return Path(self.files.path)

    def present(self) -> dict[str, Partition]:
        """Return the partitions that have files, by key, in order; raises SourceError for invalid ones."""
        return partitions_in(self.source, self.files)

    def fetch(self, partition: Partition) -> None:
        """Do nothing: the files are here."""

    @contextmanager
    def open(self) -> Generator[None]:
        """Do nothing more than the block does."""
        yield

    def stage(self, partitions: Sequence[Partition]) -> AbstractContextManager[Path]:
        """Yield the folder where the files of some partitions are safe to read."""
        return Staging(self.source, self.root, self.own).stage(partitions)


@dataclass(frozen=True)
class StoreFolder:
    """A folder in a store; root: where its files are copied to, below it as below the folder."""

    spark: SparkSession
    source: str
    files: Files
    root: Path

    def present(self) -> dict[str, Partition]:
        """Return the partitions that have files, by key, in order, their folders below `root`.

        Raises SourceError for invalid ones, and where the store has no file below the folder.
        """
        with self._name_store():
            column, folders = self.files.partition_by, self._folders()
            keys = {
                each: UNPARTITIONED if column is None else partition_key(self.source, column, each, True)
                for each in folders
            }
            return by_key(self.source, (Partition(keys[each], each, facts) for each, facts in folders.items()))

    def fetch(self, partition: Partition) -> None:
        """Copy the files of a partition, once in a landing.

        Raises SourceError for one that is gone, and where the disk is too small.
        """
        if all(path.exists() for path in partition.paths):
            return
        make_private(partition.folder)
        needed, free = partition.bytes, disk_usage(self.root).free
        if needed > free:
            raise SourceError(
                f"source {self.source} was not landed: the files of {partition.folder} have {needed:,} bytes, and the "
                f"disk that they are copied to has {free:,} left. Make room there, or land the folder as a stream."
            )
        with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
            list(pool.map(self._copy, partition.paths))

    @contextmanager
    def open(self) -> Generator[None]:
        """Remove the copies at the end of the block, and those of a landing that was killed before it begins.

        Raises SourceError where Spark's workers could not read the copies.
        """
        master = str(cast(Any, self.spark.sparkContext).master)
        if not master.startswith("local"):
            raise SourceError(
                f"source {self.source}: files of a store are copied to this machine, where the workers of {master} do "
                "not see them. Land them with a local Spark, or declare the folder as the path of a stream."
            )
        Folder(self.root).remove()
        try:
            with self._name_store():
                make_private(self.root)
                yield
        finally:
            Folder(self.root).remove()

    @contextmanager
    def stage(self, partitions: Sequence[Partition]) -> Generator[Path]:
        """Yield the folder of the copies, which only this user may enter; those not looked into are copied first."""
        for each in partitions:
            self.fetch(each)
        yield self.root

    def _folders(self) -> dict[Path, Facts]:
        """Return the files by the folder that they are copied to, each with name, bytes, nanoseconds and tag."""
        column, folders = self.files.partition_by, dict[Path, Facts]()
        depth = 0 if column is None else 1
        try:
            walked = walk_folder(self.files.path)
        except FileNotFoundError:
            raise SourceError(
                f"source {self.source}: there is no file at {self.files.path}. Put files there, or correct the path."
            ) from None
        except NotADirectoryError:
            raise SourceError(
                f"source {self.source}: {self.files.path} is a file. Declare the folder that it is in."
            ) from None
        for each in sorted(walked, key=lambda each: each.path):
            *above, name = each.path.split("/")
            if not all(map(is_data, (*above, name))):
                continue
            check_file_name(self.source, self.root.joinpath(*above, name))
            if len(above) > depth:
                raise refuse_folder(self.source, self.root.joinpath(*above[: depth + 1]))
            if column is not None and not above:
                partition_key(self.source, column, self.root / name, False)
            folders.setdefault(self.root.joinpath(*above), []).append(
                [name, each.bytes, each.modified * MILLION, *each.tag]
            )
        return folders

    def _copy(self, path: Path) -> None:
        try:
            copy_to_local(f"{self.files.path}/{path.relative_to(self.root)}", path)
        except FileNotFoundError:
            gone = f"source {self.source} was not landed: {path} disappeared meanwhile. Land again."
            raise SourceError(gone) from None

    @contextmanager
    def _name_store(self) -> Generator[None]:
        """Name the store instead of the copies in errors."""
        try:
            yield
        except DeltafoldError as error:
            if str(self.root) not in str(error):
                raise
            shown, logged = (text.replace(str(self.root), self.files.path) for text in (str(error), error.logged))
            raise type(error)(shown, logged) from error


InputFolder = LocalFolder | StoreFolder


def open_input(spark: SparkSession, source: str, files: Files, record: Place) -> InputFolder:
    """Return the folder of a source's files; record: the folder of the record of its landings."""
    own = record / "incoming" if isinstance(record, Path) else _scratch(record)
    return StoreFolder(spark, source, files, own) if is_remote(files.path) else LocalFolder(source, files, own)


def _scratch(record: Place) -> Path:
    """Return a local folder for copies, as the record is in a store."""
    return cache_folder("incoming", private=True) / sha256(str(record).encode()).hexdigest()[:16]
