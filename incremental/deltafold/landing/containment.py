"""Keep a landing within the folder of its source, whoever may drop files there (D-061).

| in the folder | a landing |
| --- | --- |
| a symbolic link to something in the folder | follows it |
| a symbolic link that leads outside, directly or over other links | refuses it |
| a broken symbolic link, a pipe, a device | refuses it |
| a hard link | reads it, as it cannot be distinguished from a file |

The folder itself may be a link, if this user or root made it. A file can be replaced by a link after the check:
`open_file_within` follows no link below the folder, and where others may write, Spark reads copies that were made with
it (`Staging` in input_folder.py).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from deltafold.algebra.errors import SourceError
from deltafold.algebra.local_path import printable

OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe is not waited for
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_root(source: str, root: Path) -> None:
    """Raise SourceError where a link on the way to the folder was made by somebody else, who may lead it anywhere."""
    for folder in (root, *root.parents):
        if folder.is_symlink() and not _is_trusted(folder.lstat()):
            raise SourceError(
                f"source {source}: {printable(folder)} is a link made by another user, who can change where it leads. "
                "Declare the folder that it leads to."
            )


def check_link(source: str, root: Path, path: Path) -> None:
    """Raise SourceError for a symbolic link that leads out of the source's folder, or nowhere."""
    if not path.is_symlink():
        return
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):  # RuntimeError: a loop, before Python 3.13
        raise SourceError(
            f"source {source}: {printable(path)} is a link that leads nowhere. Remove it, or put the file in its place."
        ) from None
    if not real.is_relative_to(root.resolve()):
        raise SourceError(
            f"source {source}: {printable(path)} is a link that leads out of {root}, and is not followed. "
            "Put the files themselves there."
        )


def is_shared(root: Path, folders: Iterable[Path]) -> bool:
    """Return whether other users may replace a file of the folder while it is read."""
    read = {root.resolve()}
    for folder in folders:
        if folder.is_symlink() or any(child.is_symlink() for child in folder.iterdir()):
            return True  # the owners of the folders on the way of a link are not checked
        read.add(folder.resolve())
    above = {*root.parents, *root.resolve().parents}
    return any(_others_may_write(folder.stat()) for folder in read) or any(
        _others_may_write(status) and not (status.st_mode & stat.S_ISVTX and _is_trusted(status))
        for status in map(os.stat, above)  # sticky folders such as /tmp: nobody renames the files of others
    )


@contextmanager
def open_folder_of(source: str, root: Path, path: Path) -> Generator[tuple[int, str]]:
    """Open the folder of a file below the source's folder, following no link; yields its descriptor and the file name.

    Links that lead within the source's folder are resolved first. Raises SourceError where the file lies outside, or a
    name on the way was made a link since, FileNotFoundError and PermissionError with the file's path.
    """
    base = Path(os.path.realpath(root))
    real = Path(os.path.realpath(path))  # in a loop the last link stays, and is refused below
    if not real.is_relative_to(base):
        shown = printable(path)
        raise SourceError(
            f"source {source}: {shown} is reached by a link that leads out of {root}. Put the file itself there."
        )
    *folders, name = real.relative_to(base).parts
    with _name_errors(source, path):
        descriptor = os.open(base, OPEN_FOLDER)
    try:
        for folder in folders:
            with _name_errors(source, path):
                inner = os.open(folder, OPEN_FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, name
    finally:
        os.close(descriptor)


@contextmanager
def open_file_within(source: str, root: Path, path: Path) -> Generator[BufferedReader]:
    """Open a file below the source's folder for reading, as `open_folder_of` does; it is a regular file."""
    with open_folder_of(source, root, path) as (folder, name), _name_errors(source, path):
        descriptor = os.open(name, OPEN_FILE, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _refuse_replaced(source, path)
        yield file


@contextmanager
def _name_errors(source: str, path: Path) -> Generator[None]:
    """Name the whole path in an error of the system; a link that appeared is an error of the source."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _refuse_replaced(source, path) from error
        raise OSError(error.errno, error.strerror, str(path)) from error


def _refuse_replaced(source: str, path: Path) -> SourceError:
    return SourceError(
        f"source {source} was not landed: {printable(path)} was replaced by a link or a pipe meanwhile. Land again."
    )


def _others_may_write(status: os.stat_result) -> bool:
    return not _is_trusted(status) or bool(status.st_mode & OTHERS_WRITE)


def _is_trusted(status: os.stat_result) -> bool:
    return status.st_uid in (0, os.geteuid())
