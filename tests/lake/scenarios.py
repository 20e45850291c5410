"""The operations that are done to a table of both lakes."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from deltafold.algebra.errors import SourceError
from deltafold.algebra.plain_options import PlainOptions
from deltafold.algebra.program import BUCKET, WEIGHT
from deltafold.algebra.sqltext import quoted
from deltafold.lake.protocol import Lake, Mark, Table, VersionedTable
from deltafold.lake.snapshot import Snapshot
from deltafold.lake.version_diff import file_difference
from deltafold.spark.catalyst import JavaError
from tests.lake.memory.table import MemoryLake, MemoryTable
from tests.local_rows import local

Rows = list[tuple[Any, ...]]
SCHEMA = f"{BUCKET} int, k int, v bigint"


class Scenario:
    """Operations on tables of one lake, and what they show."""

    def __init__(self, spark: SparkSession, lake: Lake, folder: Path) -> None:
        self.spark, self.lake, self.folder = spark, lake, folder
        self.shown: list[tuple[str, object]] = []

    def table(self, name: str = "t") -> Table:
        return self.lake.table(self.spark, str(self.folder / name))

    def rows(self, *rows: tuple[Any, ...], schema: str = SCHEMA) -> DataFrame:
        return local(self.spark, rows, schema).coalesce(1)

    def note(self, what: str, shown: object) -> None:
        self.shown.append((what, shown))

    def collected(self) -> list[tuple[str, object]]:
        """What was shown, with the rows of all its frames, which one query reads: no version changes later."""
        frames = [value for _, shown in self.shown if isinstance(shown, dict) for value in shown.values()]
        rows = iter(weights([frame for frame in frames if isinstance(frame, DataFrame)]))
        return [
            (what, {key: next(rows) if isinstance(value, DataFrame) else value for key, value in shown.items()})
            if isinstance(shown, dict) else (what, shown)
            for what, shown in self.shown
        ]  # fmt: skip

    def do(self, what: str, operation: Callable[[Table], object], name: str = "t") -> None:
        """One operation, and what the table shows before and after it."""
        before = self.table(name).version()
        try:
            operation(self.table(name))
        except (SourceError, *JavaError) as error:
            self.note(f"{what}: refused", type(error) is SourceError)
        self.note(what, state(self.table(name), before))


def mark(epoch: int, application: str = "a") -> Mark:
    return Mark(application, epoch, f"epoch {epoch}")


def own_writes(at: Scenario) -> None:
    """What Deltafold does to its own tables."""
    first = at.rows((0, 1, 10), (0, 2, 20), (1, 3, 30), (1, None, 40))
    at.do("append", lambda t: t.append(first, mark(1), BUCKET))
    at.do("append of an epoch that was written", lambda t: t.append(first, mark(1), BUCKET))
    at.do("append for another application", lambda t: t.append(at.rows((0, 5, 50)), mark(1, "b"), BUCKET))
    at.do("append without rows", lambda t: t.append(at.rows(), mark(2), BUCKET))
    at.do("touch", lambda t: t.touch(mark(3)))
    at.do("overwrite", lambda t: t.overwrite(first, mark(11), BUCKET))
    at.do("overwrite again", lambda t: t.overwrite(first, mark(11), BUCKET))
    at.do("append of more", lambda t: t.append(at.rows((1, 4, 4), (0, 0, 0)), mark(13), BUCKET))
    at.do("sort", lambda t: t.sort(["0", "1"], ["k"], 1, "{}"))
    at.do(
        "append of another type",
        lambda t: t.append(at.rows((0, "1", 1), schema="__bucket int, k string, v bigint"), mark(14), BUCKET),
    )
    at.do(
        "append of fewer columns", lambda t: t.append(at.rows((0, 7), schema="__bucket int, k int"), mark(15), BUCKET)
    )
    at.do(
        "append of another column", lambda t: t.append(at.rows((0, 7), schema="__bucket int, x int"), mark(16), BUCKET)
    )
    at.do("append by another partition", lambda t: t.append(first, mark(17), "k"))
    at.do("compact one partition", lambda t: t.compact(f"{BUCKET} IN (0)"))
    at.do("compact again", lambda t: t.compact(f"{BUCKET} IN (0)"))
    at.do("restore", lambda t: t.restore(1))
    at.do("append of an epoch that was taken back", lambda t: t.append(first, mark(13), BUCKET))
    at.do("append after it", lambda t: t.append(first, mark(18), BUCKET))
    at.do("publish", lambda t: t.publish(at.rows((0, 1, 1), (0, 1, 1)), PlainOptions(), "{}"), "plain")
    at.do("publish other rows", lambda t: t.publish(at.rows((1, 2, 2)), PlainOptions(), "{}"), "plain")
    at.do("publish the same", lambda t: t.publish(at.rows((1, 2, 2)), PlainOptions(), "{}"), "plain")
    at.note("features", [at.table(name).reader_features() for name in ("t", "plain")])
    at.do("clone", lambda t: t.clone(at.table(), 0), "clone")
    at.do("append to the clone", lambda t: t.append(first, mark(1), BUCKET), "clone")


def landing(at: Scenario) -> None:
    """What lands input files, and what replaces rows of a quarantine."""
    columns = "day string, v int"
    days = at.rows(("a", 1), ("b", 2), (None, 3), schema=columns)
    wrote: list[int] = []

    def replaced(
        what: str,
        rows: DataFrame,
        condition: str,
        partition: str | None = "day",
        reshape: bool = False,
        name: str = "landed",
    ) -> None:
        at.do(what, lambda t: wrote.append(t.replace_where(rows, condition, "{}", partition, reshape=reshape)), name)

    replaced("landed", days, "true")
    replaced("landed a day again", at.rows(("a", 5), ("a", 6), schema=columns), "`day` IN ('a')")
    replaced("landed a day that is empty now", at.rows(schema=columns), "`day` IN ('b') OR `day` IS NULL")
    replaced("landed what is of another day", at.rows(("c", 5), schema=columns), "`day` IN ('a')")
    replaced("landed all", days, "true")
    replaced("landed another schema", at.rows((1, "x"), schema="w int, day string"), "true")
    replaced("reshaped", at.rows((1, "x"), schema="w int, other string"), "true", "other", True)
    replaced("landed odd names", at.rows((1,), schema="`a b` int"), "true", None, name="odd")
    at.do("appended odd names", lambda t: t.append(at.rows((1,), schema="`a b` int"), mark(1), None), "odd too")
    at.do(
        "appended mapped",
        lambda t: t.append(at.rows((1,), schema="`a b` int"), mark(1), None, name_mapping=True),
        "mapped",
    )
    left_out = at.rows(("a", 1), ("b", 2), ("b", 3), schema="p string, v int")
    replaced("quarantined", left_out, "true", None, name="quarantine")
    replaced("quarantined again", at.rows(("b", 4), schema="p string, v int"), "p IN ('b')", None, name="quarantine")
    replaced("cleared", at.rows(schema="p string, v int"), "p IN ('a', 'c')", None, name="quarantine")
    at.note("rows written", wrote)


class OtherWriter:
    """Who writes a source: by SQL in Delta, or the memory's own methods."""

    def __init__(self, at: Scenario, name: str) -> None:
        self.at, self.name = at, name

    @property
    def _memory(self) -> MemoryTable | None:
        lake = self.at.lake
        return (
            lake.written_by_others(self.at.spark, str(self.at.folder / self.name))
            if isinstance(lake, MemoryLake)
            else None
        )

    def write(self, frame: DataFrame) -> None:
        if self._memory:
            self._memory.write(frame)
        else:
            writer = frame.write.format("delta").mode("append").option("delta.enableDeletionVectors", "true")
            writer.save(str(self.at.folder / self.name))

    def sql(self, text: str, memory: Callable[[MemoryTable], object]) -> None:
        if self._memory:
            memory(self._memory)
        else:
            self.at.spark.sql(text.format(t=f"delta.`{self.at.folder / self.name}`")).collect()


def other_writers(at: Scenario) -> None:
    """What happens to a source."""
    name = "source"
    other = OtherWriter(at, name)

    def do(text: str, memory: Callable[[MemoryTable], object]) -> None:
        at.do(text, lambda _: other.sql(text, memory), name)

    some = at.rows(*((k, 10 * k) for k in range(6)), schema="k int, v int")
    at.do("written", lambda _: other.write(some), name)
    at.do("written again", lambda _: other.write(at.rows((7, None), (8, 80), schema="k int, v int")), name)
    do("delete from {t} where v = 20", lambda t: t.delete("v = 20"))
    do("delete from {t} where false", lambda t: t.delete("false"))
    do("update {t} set v = v + 1 where k in (1, 4)", lambda t: t.update({"v": "v + 1"}, "k in (1, 4)"))
    do("delete from {t} where k in (1, 3)", lambda t: t.delete("k in (1, 3)"))
    do("optimize {t}", lambda t: t.compact("true"))
    do("optimize {t}", lambda t: t.compact("true"))
    do("update {t} set v = v", lambda t: t.update({"v": "v"}, "true"))
    do("delete from {t} where v > 70", lambda t: t.delete("v > 70"))
    do("restore table {t} to version as of 2", lambda t: t.restore(2))
    do("alter table {t} add column w string", lambda t: t.add_column("w", StringType()))
    at.do("written wider", lambda _: other.write(at.rows((9, 9, "w"), schema="k int, v int, w string")), name)
    do("delete from {t} where k = 9 or k = 5", lambda t: t.delete("k = 9 or k = 5"))
    found = at.table(name)
    at.note(
        "over several versions",
        [
            *weights(
                [
                    file_difference(found, before, after).frame(["k", "v"], consolidate=True)
                    for before, after in ((1, 5), (3, 9), (5, 2), (0, found.version() or 0))
                ]
            )
        ],
    )
    at.note("once with each column", [sorted(found.schema(version).names) for version in (0, found.version() or 0)])
    for version in (99, -1):
        try:
            found.at(version)
        except SourceError as error:
            at.note("a version that never was", str(error).replace(str(at.folder), ""))


def folders(at: Scenario) -> None:
    """A table is where its folder is."""
    table = at.table("moved")
    table.append(at.rows((1,), schema="k int"), mark(1), None)
    table.append(at.rows((2,), schema="k int"), mark(2), None)
    shutil.copytree(at.folder / "moved", at.folder / "copy")
    copy = at.table("copy")
    at.note("a copy is the same table", (copy.metadata() == table.metadata(), copy.commit_id(1) == table.commit_id(1)))
    copy.append(at.rows((3,), schema="k int"), mark(3), None)
    table.append(at.rows((4,), schema="k int"), mark(3), None)
    at.note("and goes its own way", (bag(copy.at(2)), bag(table.at(2)), copy.commit_id(2) == table.commit_id(2)))
    shutil.move(at.folder / "copy", at.folder / "other")
    at.note(
        "moved",
        (bag(at.table("other").at(2)), at.table(f"../{at.folder.name}/other/").place == at.table("other").place),
    )
    known = table.metadata().id
    shutil.rmtree(at.folder / "moved")
    if not isinstance(at.lake, MemoryLake):
        at.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    at.note("gone", at.table("moved").version())
    at.table("moved").append(at.rows((5,), schema="k int"), mark(1), None)
    at.note("made again", (at.table("moved").version(), at.table("moved").metadata().id == known))


def vacuumed(at: Scenario) -> None:
    """Files that no version of late has."""
    table = at.table("vacuumed")
    table.overwrite(at.rows((1,), schema="k int"), mark(1), None)
    table.append(at.rows((2,), schema="k int"), mark(2), None)
    table.overwrite(at.rows((3,), schema="k int"), mark(3), None)
    at.note("before", (table.usage()[0], [table.needed_hours(version) == 0 for version in range(3)]))
    table.remove_older(1)
    at.note("after an hour", (table.usage()[0], readable(table, 3)))
    table.remove_older(0)
    at.note("at once", (table.usage()[0], readable(table, 3), bag(table.at(2))))
    with pytest.raises(JavaError, match=r"FILE_NOT_EXIST|FileNotFound"):
        table.scan(0).collect()


def state(table: Table, before: int | None) -> dict[str, object]:
    """What a table shows, and how it differs from an earlier version."""
    version = table.version()
    if version is None:
        return {}
    files = table.files(version).values()
    shown: dict[str, object] = {
        "version": version,
        "schema": table.schema().simpleString(),
        "rows": table.at(version),
        "files": sorted((file.rows or 0, bool(file.identity[1])) for file in files),
        "rows known": table.rows(version),
        "size": (table.size()[0], table.size()[1] > 0),
        "epochs": [table.epoch(application) for application in "ab"],
        "partitions": sorted(map(repr, table.partitions(1 << 20))),
        "partitioned by": table.metadata(version).partition_columns,
        "mapped": table.metadata().is_mapped,
        "whole": [Snapshot(table, each).is_readable for each in (0, version, version + 1)],
        "made": [bool(table.commit_id(each)) for each in (version, version + 1)],
        "needed": [(hours := table.needed_hours(each)) and round(hours) for each in (0, version)],
        "used": table.usage()[0] > 0,
    }
    if before is not None:
        found = table.commits(before, version)
        shown["commits"] = found and [(rows(each.added), len(each.removed), each.compacts) for each in found]
        change = file_difference(table, before, version)
        columns = [name for name in table.schema(before).names if name in table.schema().names]
        shown["insert only"] = change.insert_only
        shown["differing files"] = [
            rows(side) for pair in ((before, version), (version, before)) for side in table.compare(*pair)
        ]
        shown["change"] = change.frame(columns, consolidate=True) if columns else None
    return shown


def rows(files: Any) -> list[int]:
    return sorted(-1 if file.rows is None else file.rows for file in files)


def bag(frame: DataFrame) -> Rows:
    return sorted((tuple(row) for row in frame.select(*sorted(frame.columns)).collect()), key=repr)


def weights(frames: Sequence[DataFrame]) -> list[Counter[str]]:
    """The rows of each frame, by their columns' names, with their weights; by one query."""
    bags = [Counter[str]() for _ in frames]
    numbered = [
        frame.select(F.lit(number), F.to_json(F.struct(*map(quoted, frame.columns)), {"ignoreNullFields": "false"}))
        for number, frame in enumerate(frames)
    ]
    for number, row in reduce(DataFrame.union, numbered).collect() if numbered else ():
        values = json.loads(row)
        weight = values.pop(WEIGHT, 1)
        bags[number][json.dumps(values, sort_keys=True)] += weight
    return [Counter({row: weight for row, weight in bag.items() if weight}) for bag in bags]


def readable(table: VersionedTable, versions: int) -> list[bool]:
    """Which of the first versions can be read."""
    return [Snapshot(table, version).is_readable for version in range(versions)]
