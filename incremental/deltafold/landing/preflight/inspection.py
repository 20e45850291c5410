"""Look into the files of partitions before Spark reads them, for their faults and a digest of their content.

Texts are read to their end, in parts of bounded size, and so is every file for its digest. Many bytes are read by tasks
of Spark, whose workers need this package then; what asks the driver's Spark (Avro's schemas) stays in the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from deltafold.algebra.errors import DeltafoldError, SourceError
from deltafold.algebra.sources import Files
from deltafold.landing.folder import Partition, content_digest, file_digest
from deltafold.landing.preflight.file_checks import check_content
from deltafold.spark.catalyst import JavaError
from deltafold.spark.java_errors import cause, python_error

TASK_BYTES = 1 << 28  # from so many bytes on, tasks of Spark look into the files
BATCH_BYTES = 1 << 32  # of files that are looked into before the next ones
TASKS_PER_CORE = 4
READ_BY_HEAD = ("avro", "parquet", "orc")  # formats of which only the head or the end is checked

Look = Callable[[Path], str | Exception]


@dataclass(frozen=True)
class Inspection:
    """Looks into files of one source; columns: of its files; root: the folder that they are in."""

    spark: SparkSession
    source: str
    files: Files
    columns: Sequence[StructField]
    root: Path

    def digests(self, partitions: Sequence[Partition]) -> Iterator[str]:
        """Return a digest of the content of each partition.

        Raises SourceError for the first file that Spark would read wrongly, or not at all because of its size.
        """
        paths = [path for partition in partitions for path in partition.paths]
        in_tasks = sum(partition.bytes for partition in partitions) >= TASK_BYTES
        if in_tasks and self.files.format in READ_BY_HEAD:
            for path in paths:
                check_content(self.source, self.files, self.columns, self.root, path)
        look = partial(look_into, self.source, self.files, self.columns, self.root, in_tasks)
        found = iter(self._run_tasks(look, paths) if in_tasks else map(look, paths))
        for partition in partitions:
            names = [path.name for path in partition.paths]
            yield content_digest(dict(zip(names, map(_digest_of, found), strict=False)))

    def _run_tasks(self, look: Look, paths: Sequence[Path]) -> list[str | Exception]:
        context = self.spark.sparkContext
        slices = min(len(paths), TASKS_PER_CORE * context.defaultParallelism)
        try:
            return context.parallelize(paths, slices).map(look).collect()
        except JavaError as error:
            reason = (python_error(error) or cause(error)).rstrip(".")
            raise SourceError(
                f"source {self.source} was not landed: Spark's tasks could not look into its files: {reason}. "
                "Install Deltafold for the Python of Spark's workers, and land again."
            ) from error


def look_into(
    source: str, files: Files, columns: Sequence[StructField], root: Path, in_task: bool, path: Path
) -> str | Exception:
    """Return the digest of a file, or the error if it cannot be read or has a fault."""
    try:
        if not (in_task and files.format in READ_BY_HEAD):
            check_content(source, files, columns, root, path)
        return file_digest(source, root, path)
    except (DeltafoldError, OSError) as error:
        return error


def in_batches(partitions: Iterable[Partition]) -> Iterator[list[Partition]]:
    """Return the partitions in groups, each of which has BATCH_BYTES at least, except for the last."""
    batch: list[Partition] = []
    for partition in partitions:
        batch.append(partition)
        if sum(each.bytes for each in batch) >= BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def _digest_of(found: str | Exception) -> str:
    if isinstance(found, Exception):
        raise found
    return found
