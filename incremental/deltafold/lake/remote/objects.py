"""Read, list and write small objects at a URI, by Hadoop's FileSystem and Delta's log store, with Spark's credentials.

Delta's log store of a scheme writes a version of a log only if there is none yet; here it does so for any object.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pyspark import SparkContext

from deltafold.algebra.errors import StateError, StorageError
from deltafold.algebra.secrets import mask_secrets
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError
from deltafold.spark.java_errors import causes, first_line, is_caused_by, java_chain

STATUS = re.compile(r"path=(.*?); isDirectory=(true|false)(?:; length=(\d+))?")  # in the text of a FileStatus
FILE_STATUS = re.compile(
    r"path=(.*?); isDirectory=false; length=(\d+); replication=\d+; blocksize=\d+; modification_time=(\d+)[^{}]*\}"
    r"(?:\[eTag='([^']*)')?",
    re.DOTALL,
)
TAKEN = ("java.nio.file.FileAlreadyExistsException", "org.apache.hadoop.fs.FileAlreadyExistsException")
FIRST_NAME = "!"  # the least name of an entry: all of ours begin with a letter, a digit or a dot
WITHOUT_JARS = "Give Spark the store's jars by spark.jars.packages, or for s3a the setting spark.deltafold.stores: s3a"
WITHOUT_CREDENTIALS = "Give Spark credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the machine's role"
WITHOUT_RIGHTS = "Correct Spark's credentials, or let them list, read, write and delete there"
FIXES = {
    "ClassNotFoundException": WITHOUT_JARS,
    "UnsupportedFileSystemException": WITHOUT_JARS,
    "UnknownStoreException": "Correct the bucket, or the endpoint and the region in Spark's settings",
    "NoAuthWithAWSException": WITHOUT_CREDENTIALS,
    "NoAwsCredentialsException": WITHOUT_CREDENTIALS,
    "CredentialInitializationException": WITHOUT_CREDENTIALS,
    "AccessDeniedException": WITHOUT_RIGHTS,
    "AccessControlException": WITHOUT_RIGHTS,
    "RemoteFileChangedException": "It changed while it was read: try again",
}
"""What helps against causes, by their classes in Java; the first one here counts."""

MISSING = "java.io.FileNotFoundException"
COPIED_AT_ONCE = 1 << 20  # bytes
REQUEST_NUMBERS = re.compile(r" ?\((?:Service: |SDK Attempt Count: )[^()]*\)")  # as Amazon prints them


@dataclass(frozen=True)
class Listed:
    """An entry of a folder; bytes: of an object."""

    name: str
    is_folder: bool
    bytes: int


@dataclass(frozen=True)
class Walked:
    """A file somewhere below a folder: its path there, its bytes, and when it was written, in milliseconds.

    tag: what the store changes with the content, if it tells (the entity tag of S3).
    """

    path: str
    bytes: int
    modified: int
    tag: tuple[str, ...]


class Located:
    """One address as Hadoop knows it: its path, its file system, and the settings of both."""

    def __init__(self, address: str) -> None:
        context = cast(Any, SparkContext)._active_spark_context
        if context is None:
            raise StateError(f"{mask_secrets(address)}: only Spark can read it. Start a session first.")
        self.java = catalyst.packages(context._jvm)
        self.settings: J = context._jsc.hadoopConfiguration()
        self.path: J = self.java.org.apache.hadoop.fs.Path(address)
        self.system: J = self.path.getFileSystem(self.settings)

    @property
    def log_store(self) -> J:
        """Delta's log store of the scheme."""
        return self.java.org.apache.spark.sql.delta.storage.DelegatingLogStore(self.settings)


@contextmanager
def explain_store(address: str, *, reads: bool = True) -> Generator[None]:
    """Raise FileNotFoundError for a missing object that is read, else StorageError for what the store refuses."""
    try:
        yield
    except JavaError as error:
        if reads and is_caused_by(error, MISSING):
            raise FileNotFoundError(address) from error
        raise refuse_store(address, error) from error


def refuse_store(address: str, error: Exception) -> StorageError:
    """Return the error for a store that gave one instead of doing its work."""
    reason = REQUEST_NUMBERS.sub("", first_line(causes(error)[-1])).rstrip(" .")
    kinds = {str(java.getClass().getSimpleName()) for java in java_chain(error)}
    fix = next(
        (text for kind, text in FIXES.items() if kind in kinds),
        "See that the store answers and that Spark's credentials allow it, then try again",
    )
    if "No space left on device" in reason:
        fix = "Make room on the disk of this machine, then try again"
    return StorageError(
        f"{mask_secrets(address)}: it cannot be read or written: {mask_secrets(reason)}. {fix}; "
        "nothing is half written."
    )


def list_folder(address: str, pattern: str = "*") -> list[Listed]:
    """Return the entries of a folder whose names match, in the order of their names; none where there is no folder."""
    try:
        with explain_store(address):
            place = Located(f"{address}/{FIRST_NAME}")
            listed = place.log_store.listFrom(place.path, place.settings).toVector()
            entries = _describe_entries(address, listed)
    except FileNotFoundError:
        return []
    return sorted((each for each in entries if fnmatch.fnmatchcase(each.name, pattern)), key=lambda each: each.name)


def _describe_entries(address: str, statuses: J) -> list[Listed]:
    """Describe entries by what Hadoop prints of them, in one call however many there are, if it prints all of it."""
    parts = STATUS.findall(str(statuses.mkString("\n")))
    above = address.rpartition("/")[2]
    if len(parts) == statuses.size() and all(path.split("/")[-2:-1] == [above] for path, _, _ in parts):
        return [Listed(path.rpartition("/")[2], kind == "true", int(size or 0)) for path, kind, size in parts]
    each_of = catalyst.sequence(statuses)
    return [Listed(str(e.getPath().getName()), bool(e.isDirectory()), int(e.getLen())) for e in each_of]


def walk_folder(address: str) -> list[Walked]:
    """Return all files below a folder, in no order.

    Raises FileNotFoundError where there is no folder, and NotADirectoryError for a file.
    """
    with explain_store(address):
        place = Located(address)
        listed = place.system.listFiles(place.path, True)
        files = place.java.org.apache.hadoop.util.functional.RemoteIterators.toList(listed)
        root = f"{str(place.system.makeQualified(place.path).toString()).rstrip('/')}/"
        text = str(files.toString())
        parts = FILE_STATUS.findall(text)
        # who names a file can write what looks like another's description, and viewfs describes nothing
        whole = len(parts) == text.count("; isDirectory=") == files.size()
        if not whole or not all(path.startswith(root) for path, *_ in parts):
            tagged = place.java.java.lang.Class.forName("org.apache.hadoop.fs.EtagSource")
            each = [files.get(i) for i in range(files.size())]
            tags = [e.getEtag() if tagged.isInstance(e) else "" for e in each]
            parts = [(e.getPath().toString(), e.getLen(), e.getModificationTime()) for e in each]
            parts = [(*part, tag or "") for part, tag in zip(parts, tags, strict=True)]
    if not all(str(path).startswith(root) for path, *_ in parts):
        raise NotADirectoryError(address)
    listed = ((str(path).removeprefix(root), int(size), int(time), str(tag)) for path, size, time, tag in parts)
    return [Walked(path, size, time, (tag,) if tag else ()) for path, size, time, tag in listed]


def copy_to_local(address: str, target: Path) -> None:
    """Copy an object to a file of this machine, as it is now; raises FileNotFoundError if it is missing.

    It is opened by what the store says of it now: opened by its path, S3A may give what it read there before.
    """
    with explain_store(address):
        place = Located(address)
        status = place.system.getFileStatus(place.path)
        stream = place.system.openFile(place.path).withFileStatus(status).build().get()
        file = place.java.java.io.FileOutputStream(str(target))
        place.java.org.apache.hadoop.io.IOUtils.copyBytes(stream, file, COPIED_AT_ONCE, True)


def log_store_class(address: str) -> str:
    """Return the name, without its package, of the class that writes the versions of Delta's logs at an address."""
    with explain_store(address, reads=False):
        place = Located(address)
        store = place.log_store.getDelegate(place.path)
        name = str(store.getClass().getSimpleName())
        return str(store.logStoreImpl().getClass().getSimpleName()) if name == "LogStoreAdaptor" else name


def put_if_absent(address: str, text: str) -> bool:
    """Write an object; returns False, with nothing written, if there is one, whichever machine wrote it."""
    with explain_store(address, reads=False):
        place = Located(address)
        try:
            return _put(place, text)
        except JavaError as error:
            if not is_caused_by(error, MISSING):
                raise
        place.system.mkdirs(place.path.getParent())  # HDFS has folders, and the log store expects this one
        return _put(place, text)


def _put(place: Located, text: str) -> bool:
    listed = place.java.java.util.List.of(*([text] if text else []))
    lines = place.java.scala.jdk.javaapi.CollectionConverters.asScala(listed.iterator())
    try:
        place.log_store.write(place.path, lines, False, place.settings)
    except JavaError as error:
        if is_caused_by(error, *TAKEN):
            return False
        raise
    return True


def read_object(address: str) -> str:
    """Return the text of an object; raises FileNotFoundError."""
    with explain_store(address):
        place = Located(address)
        return str(place.log_store.read(place.path, place.settings).mkString("\n"))


def delete(address: str) -> None:
    """Delete an object, or a folder with all in it; nothing happens if it is missing."""
    with explain_store(address):
        place = Located(address)
        place.system.delete(place.path, True)


def object_exists(address: str) -> bool:
    """Return whether there is an object, or a folder with anything in it."""
    with explain_store(address):
        place = Located(address)
        return bool(place.system.exists(place.path))


def usage(address: str) -> tuple[int, int]:
    """Return the number of objects below a folder and their bytes."""
    try:
        with explain_store(address):
            place = Located(address)
            summary = place.system.getContentSummary(place.path)
            return int(summary.getFileCount()), int(summary.getLength())
    except FileNotFoundError:
        return 0, 0
