"""Give a landing local files that no other user can change: those of a local folder, or copies of those in a store.

| | on this machine | in a store |
| --- | --- | --- |
| `present` | lists folders | lists all files below by one request |
| `fetch` | does nothing | copies the files of a partition to this machine, before they are checked or read |
| `open` | does nothing | removes the copies in the end, and names the store in errors |
| `stage` | yields the folder, or a private one with links or copies | yields the folder of the copies |

So files of a store are checked, compared by content and read from one copy, even if others write them meanwhile. A file
whose name, size, time and entity tag are those of the last landing is not copied.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import disk_usage
from typing import Any, cast

from pyspark.sql import SparkSession

from deltafold.algebra.errors import DeltafoldError, SourceError
from deltafold.algebra.local_path import is_remote
from deltafold.algebra.sources import Files
from deltafold.lake.durable import LocalRecords, make_private
from deltafold.lake.records import records_at
from deltafold.lake.remote.objects import copy_to_local, walk_folder
from deltafold.lake.remote.remote_path import Place
from deltafold.landing.containment import is_shared, open_file_within, open_folder_of
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

COPIES_AT_ONCE = 8
NANOSECONDS_PER_MILLISECOND = 1_000_000


@dataclass(frozen=True)
class Staging:
    """Protects the files of a source from changes by other users while Spark reads them.

    Spark opens files by name, some time after they were checked. Where others may write, a name can lead elsewhere by
    then, so the files are linked into a folder that only this user may enter, or copied where the system refuses links
    (another disk, files of another user). Where nobody else may write, they are read in their own folder.

    root: the folder of the source; folder: the private one.
    """

    source: str
    root: Path
    folder: Path

    @contextmanager
    def stage(self, partitions: Sequence[Partition]) -> Generator[Path]:
        """Yield the folder where the files of some partitions are safe to read, by the same paths below it."""
        if not is_shared(self.root, [partition.folder for partition in partitions]):
            yield self.root
            return
        self.clear()
        try:
            self.fill([path for partition in partitions for path in partition.paths])
            yield self.folder
        finally:
            self.clear()

    def fill(self, paths: Sequence[Path]) -> None:
        """Link or copy files into the staging folder."""
        make_private(self.folder)
        for path in paths:
            target = self.folder / path.relative_to(self.root)
            make_private(target.parent)
            if not self._link(path, target):
                with open_file_within(self.source, self.root, path) as file, target.open("xb") as copy:
                    shutil.copyfileobj(file, copy, 1 << 20)

    def clear(self) -> None:
        """Remove the private folder, and what a crash may have left in it."""
        LocalRecords(self.folder).remove()

    def _link(self, path: Path, target: Path) -> bool:
        """Link a file, and return whether that was possible. Raises SourceError for one that was replaced by a link."""
        with open_folder_of(self.source, self.root, path) as (folder, name), suppress(OSError):
            os.link(name, target, src_dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(target.lstat().st_mode):
                return True
            target.unlink()
        return False


@dataclass(frozen=True)
class LocalFolder:
    """A folder of this machine; staging: where its files are staged."""

    source: str
    files: Files
    staging: Path

    @property
    def root(self) -> Path:
        """The folder that the partitions are in."""
        return Path(self.files.path)

    def present(self) -> dict[str, Partition]:
        """Return the partitions that have files, by key, in order. Raises SourceError for invalid ones."""
        return partitions_in(self.source, self.files)

    def fetch(self, partition: Partition) -> None:
        """Do nothing: the files are on this machine."""

    @contextmanager
    def open(self) -> Generator[None]:
        """Do nothing: there are no copies to remove."""
        yield

    def stage(self, partitions: Sequence[Partition]) -> AbstractContextManager[Path]:
        """Yield the folder where the files of some partitions are safe to read."""
        return Staging(self.source, self.root, self.staging).stage(partitions)


@dataclass(frozen=True)
class StoreFolder:
    """A folder in a store; root: the local folder that its files are copied to, by the same paths below it."""

    spark: SparkSession
    source: str
    files: Files
    root: Path

    def present(self) -> dict[str, Partition]:
        """Return the partitions that have files, by key, in order, their folders below `root`.

        Raises SourceError for invalid ones, and where the store has no file below the folder.
        """
        with self._name_store():
            column = self.files.partition_by
            partitions = list[Partition]()
            for folder, facts in self._folders().items():
                key = UNPARTITIONED if column is None else partition_key(self.source, column, folder, is_folder=True)
                partitions.append(Partition(key, folder, facts))
            return by_key(self.source, partitions)

    def fetch(self, partition: Partition) -> None:
        """Copy the files of a partition, once in a landing.

        Raises SourceError for a file that is gone, and where the disk is too small.
        """
        if all(path.exists() for path in partition.paths):
            return
        make_private(partition.folder)
        free = disk_usage(self.root).free
        if partition.bytes > free:
            raise SourceError(
                f"source {self.source} was not landed: the files of {partition.folder} have "
                f"{partition.bytes:,} bytes, and the disk that they are copied to has {free:,} left. "
                "Make room there, or land the folder as a stream."
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
        LocalRecords(self.root).remove()
        try:
            with self._name_store():
                make_private(self.root)
                yield
        finally:
            LocalRecords(self.root).remove()

    @contextmanager
    def stage(self, partitions: Sequence[Partition]) -> Generator[Path]:
        """Yield the folder of the copies, which only this user may enter; missing ones are copied now."""
        for partition in partitions:
            self.fetch(partition)
        yield self.root

    def _folders(self) -> dict[Path, Facts]:
        """Return the files by the folder that they are copied to."""
        column = self.files.partition_by
        depth = 0 if column is None else 1
        folders = dict[Path, Facts]()
        try:
            objects = sorted(walk_folder(self.files.path), key=lambda object_: object_.path)
        except FileNotFoundError:
            raise SourceError(
                f"source {self.source}: there is no file at {self.files.path}. Put files there, or correct the path."
            ) from None
        except NotADirectoryError:
            raise SourceError(
                f"source {self.source}: {self.files.path} is a file. Declare the folder that it is in."
            ) from None
        for object_ in objects:
            *above, name = object_.path.split("/")
            if not all(map(is_data, (*above, name))):
                continue
            check_file_name(self.source, self.root.joinpath(*above, name))
            if len(above) > depth:
                raise refuse_folder(self.source, self.root.joinpath(*above[: depth + 1]))
            if column is not None and not above:
                partition_key(self.source, column, self.root / name, is_folder=False)
            facts = folders.setdefault(self.root.joinpath(*above), [])
            facts.append([name, object_.bytes, object_.modified * NANOSECONDS_PER_MILLISECOND, *object_.tag])
        return folders

    def _copy(self, path: Path) -> None:
        try:
            copy_to_local(f"{self.files.path}/{path.relative_to(self.root)}", path)
        except FileNotFoundError:
            raise SourceError(
                f"source {self.source} was not landed: {path} disappeared meanwhile. Land again."
            ) from None

    @contextmanager
    def _name_store(self) -> Generator[None]:
        """Name the store instead of the copies in errors."""
        try:
            yield
        except DeltafoldError as error:
            if str(self.root) not in str(error):
                raise
            message = str(error).replace(str(self.root), self.files.path)
            raise type(error)(message, error.logged.replace(str(self.root), self.files.path)) from error


InputFolder = LocalFolder | StoreFolder


def open_input(spark: SparkSession, source: str, files: Files, record: Place) -> InputFolder:
    """Return the folder of a source's files; record: the folder of the record of its landings."""
    copies = records_at(record).local_folder("incoming")
    return StoreFolder(spark, source, files, copies) if is_remote(files.path) else LocalFolder(source, files, copies)
