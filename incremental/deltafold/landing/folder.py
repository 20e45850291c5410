"""List the partitions and files of a folder of input files, without Spark.

Files are compared by name, size and modification time, and where these differ by a digest of their content. A file or
folder that Spark would not read is an error; names that begin with . or _ are ignored.
"""

from __future__ import annotations

import errno
import hashlib
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from deltafold.algebra.errors import SourceError
from deltafold.algebra.local_path import printable
from deltafold.algebra.sources import Files
from deltafold.landing.containment import check_link, check_root, open_file_within

UNPARTITIONED = "*"  # the one partition of a source without a partition column
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
Facts = list[list[object]]  # of each file: its name, bytes, time of the last change, and in a store its entity tag


@dataclass(frozen=True)
class Partition:
    """The files of one partition; key: the value in the folder's name, decoded."""

    key: str
    folder: Path
    files: Facts

    @property
    def paths(self) -> tuple[Path, ...]:
        """The data files."""
        return tuple(self.folder / str(name) for name, *_ in self.files)

    @property
    def bytes(self) -> int:
        """The bytes of the files."""
        return sum(int(str(size)) for _, size, *_ in self.files)


def data_files(folder: Path) -> Facts:
    """Return the data files of a folder: name, bytes, nanoseconds of the last change."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and is_data(file.name))
    statuses = [(file.name, file.stat()) for file in files]
    return [[name, status.st_size, status.st_mtime_ns] for name, status in statuses]


def is_data(name: str) -> bool:
    """Return whether a file or folder of this name is read; Spark and Hive ignore the others too."""
    return name[0] not in "._" and not name.endswith("._COPYING_")


def partitions_in(source: str, files: Files) -> dict[str, Partition]:
    """Return the partitions that have files, by key, in order. Raises SourceError for invalid ones."""
    root = Path(files.path).absolute()
    check_root(source, root)
    if not root.is_dir():
        raise SourceError(f"source {source}: there is no folder {root}. Create it, or correct the path.")
    partitions = list[Partition]()
    for key, folder in _partition_folders(source, files.partition_by, root):
        _check_names(source, root, folder)
        partitions.append(Partition(key, folder, data_files(folder)))
    return by_key(source, partitions)


def by_key(source: str, partitions: Iterable[Partition]) -> dict[str, Partition]:
    """Return the partitions that have files, in the order of their keys. Raises SourceError where two are the same."""
    with_files = dict[str, Partition]()
    folders = dict[str, Path]()
    for partition in partitions:
        folder = partition.folder
        for name in {partition.key, spark_value(folder)}:
            if folders.setdefault(name, folder) != folder:
                both = f"{printable(folders[name])} and {printable(folder)}"
                raise SourceError(f"source {source}: {both} are the same partition. Keep one.")
        if partition.files:
            with_files[partition.key] = partition
    return dict(sorted(with_files.items()))


def _check_names(source: str, root: Path, folder: Path) -> None:
    """Raise SourceError for children of a folder that Spark would not, could not or must not read."""
    for child in folder.iterdir():
        if not is_data(child.name):
            continue
        check_link(source, root, child)
        if child.is_dir():
            raise refuse_folder(source, child)
        if child.exists() and not child.is_file():
            raise SourceError(f"source {source}: {printable(child)} is a pipe or a device, not a file. Remove it.")
        check_file_name(source, child)


def check_file_name(source: str, file: Path) -> None:
    """Raise SourceError for the name of a file that Spark cannot read from a disk."""
    try:
        file.name.encode()
    except UnicodeEncodeError as error:
        raise SourceError(f"source {source}: the name of {str(file)!a} is not UTF-8. Rename it.") from error
    if ":" in file.name:  # Hadoop takes what is before it for a scheme
        raise SourceError(
            f"source {source}: the name of {printable(file)} has a colon, which Spark cannot read. Rename it."
        )


def refuse_folder(source: str, folder: Path) -> SourceError:
    """Return the error for a folder among data files."""
    return SourceError(
        f"source {source}: {printable(folder)} is a folder among data files, and would not be read. "
        "Move its files up, or let its name begin with _."
    )


def _partition_folders(source: str, column: str | None, root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the folders of the partitions with their keys. Raises SourceError for anything beside them."""
    if column is None:
        yield UNPARTITIONED, root
        return
    for child in sorted(root.iterdir()):
        if not is_data(child.name):
            continue
        check_link(source, root, child)
        yield partition_key(source, column, child, is_folder=child.is_dir()), child


def partition_key(source: str, column: str, folder: Path, *, is_folder: bool) -> str:
    """Return the key in the name of a partition's folder. Raises SourceError for another name, or a file."""
    name, equals, value = folder.name.partition("=")
    if not is_folder or name != column or not equals:
        raise SourceError(
            f"source {source}: {printable(folder)} is not a partition, and would not be read. Put files in folders "
            f"named {column}=value; names that begin with _ or a dot are ignored."
        )
    if not value:
        null = f"{column}={HIVE_NULL}"
        raise SourceError(f"source {source}: {printable(folder)} has an empty value. For NULL name it {null}.")
    try:
        value.encode()
        return unquote(value, errors="strict")
    except UnicodeError as error:
        raise SourceError(f"source {source}: the name of {str(folder)!a} is not UTF-8. Rename it.") from error


def spark_value(folder: Path) -> str:
    """Return the value that Spark reads from a partition's folder: it decodes each %xx as a character, not a byte."""
    value = folder.name.partition("=")[2]
    return re.sub("%([0-9A-Fa-f]{2})", lambda escape: chr(int(escape[1], 16)), value)


def file_digest(source: str, root: Path, path: Path) -> str:
    """Return a digest of the content of a file below a source's folder."""
    with open_file_within(source, root, path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_digest(files: Mapping[str, str]) -> str:
    """Return a digest of the content of a partition, the same after a copy or a touch; files: their digests by name."""
    contents = "\n".join(f"{name}\0{digest}" for name, digest in files.items())
    return hashlib.sha256(contents.encode()).hexdigest()[:32]


@contextmanager
def explain_read_errors(source: str) -> Generator[None]:
    """Raise SourceErrors, which name the file, for files that vanish or may not be read within the block."""
    try:
        yield
    except FileNotFoundError as error:
        raise SourceError(
            f"source {source} was not landed: {error.filename} disappeared meanwhile. Land again."
        ) from error
    except PermissionError as error:
        raise SourceError(
            f"source {source} was not landed: {error.filename} may not be read. Let this user read it."
        ) from error
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ELOOP, errno.ENOTDIR):  # of a link that was replaced
            raise
        raise SourceError(f"source {source} was not landed: {error.filename} changed meanwhile. Land again.") from error
