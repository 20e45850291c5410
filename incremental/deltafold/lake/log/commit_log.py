"""Read the commits of a Delta table between two versions from their files in the log, without Spark jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from pyspark.sql import SparkSession

from deltafold.lake.files import Action, Commit, commit_of
from deltafold.lake.log.actions import ACTIONS_AT_ONCE
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J, JavaError

MOST_BYTES = 128 << 20  # of commit files that the driver reads; beyond, Spark compares the snapshots


def commit_files(spark: SparkSession, log: J, first: int, last: int) -> Iterator[J]:
    """Yield the file of each commit from version `first` to `last`; raises JavaError if one is missing in between."""
    commits = log.getChangeLogFiles(first, last, catalyst.none(spark), True)
    while commits.hasNext():
        yield commits.next()._2()


def read_commit(log: J, file: J) -> list[Action]:
    """Return the actions of a commit."""
    lines = log.store().read(file, log.newDeltaHadoopConf())
    starts = range(0, int(lines.size()), ACTIONS_AT_ONCE)
    texts = (str(lines.slice(start, start + ACTIONS_AT_ONCE).mkString("\n")) for start in starts)
    return [json.loads(line) for text in texts for line in text.split("\n") if line]


def commit_id(spark: SparkSession, log: J, version: int) -> str:
    """Return the id of a commit, which its first action contains; empty if it has none, or the log was cleaned up."""
    try:
        for file in commit_files(spark, log, version, version):
            first: Action = json.loads(str(log.store().read(file, log.newDeltaHadoopConf()).head()))
            described: Action = first.get("commitInfo") or {}
            return str(described.get("txnId") or "")
    except JavaError:
        pass
    return ""


def commits_between(
    spark: SparkSession, log: J, before: int, after: int, partitions: Callable[[], list[str]]
) -> list[Commit] | None:
    """Return the files added and removed by each commit after `before` up to `after`.

    None where the log is not sufficient: a commit was cleaned up, the commits are larger than MOST_BYTES, or
    `commit_of` cannot read one. partitions: looks up the partition columns of `before`.
    """
    try:
        files = list(commit_files(spark, log, before + 1, after))
        if len(files) != after - before or sum(int(file.getLen()) for file in files) > MOST_BYTES:
            return None
        return whole(commit_of(read_commit(log, file), partitions) for file in files)
    except JavaError:
        return None


def whole(commits: Iterator[Commit | None]) -> list[Commit] | None:
    """Return all commits, None as soon as one of them is."""
    complete: list[Commit] = []
    for commit in commits:
        if commit is None:
            return None
        complete.append(commit)
    return complete


def first_removal(spark: SparkSession, log: J, first: int, last: int) -> float | None:
    """Return when the earliest file was removed by the first commit of some versions that removes any.

    In seconds since 1970, 0 where its writer did not record it; None if no commit removes a file. Raises JavaError
    where a commit is missing.
    """
    for file in commit_files(spark, log, first, last):
        removed: Sequence[Action] = [each["remove"] for each in read_commit(log, file) if each.get("remove")]
        if removed:
            return min(float(action.get("deletionTimestamp") or 0) for action in removed) / 1000
    return None
