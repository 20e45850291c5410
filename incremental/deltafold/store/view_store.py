"""Locate the journal and the tables of one view in its folder, by generation."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from deltafold.algebra.plain_options import PlainOptions, Publish
from deltafold.algebra.tuning import Tuning
from deltafold.lake.protocol import Lake, Table
from deltafold.lake.records import records_at
from deltafold.lake.remote.remote_path import Place
from deltafold.store.journal import JOURNAL, Journal


@dataclass(frozen=True, kw_only=True)
class Store:
    """The files of one view: its folder with the journal, and one folder per generation with its tables, in one lake.

    publish_as: the SQL view that selects its answer; publish, plain_options: whether it is published as a plain table,
    too, and that table's options.
    """

    spark: SparkSession
    folder: Place
    view: str
    lake: Lake
    tuning: Tuning = field(default_factory=Tuning)
    publish_as: str | None = None
    publish: Publish = "auto"
    plain_options: PlainOptions = field(default_factory=PlainOptions)

    @property
    def publication(self) -> str:
        """What is declared of its publication, in one word and a digest."""
        return f"{self.publish} {self.plain_options.digest}".rstrip()

    @property
    def journal(self) -> Journal:
        """The journal of the view."""
        return Journal(self.folder / JOURNAL)

    def unused_generation(self) -> int:
        """Return a number above all generations with a folder or an entry, so that its tables carry no marks yet."""
        last = self.journal.last()
        return 1 + max([0 if last is None else last.intent.generation, *self.generations()])

    def generations(self) -> list[int]:
        """Return the generations that have a folder, in order."""
        numbers = (name[1:] for name in records_at(self.folder).folders("g*"))
        return sorted(int(number) for number in numbers if number.isdigit())

    def lock(self, work: str) -> AbstractContextManager[None]:
        """Take the lock of the view; work: what others are told, such as `refreshed`."""
        return records_at(self.folder).lock(f"view {self.view}", work, self.tuning.lock_seconds)

    def create_folders(self, generation: int, tables: Iterable[str], answer: str) -> None:
        """Create the folders of a generation's tables before Spark does; that of the answer is not private."""
        folder = self.folder / f"g{generation}"
        for name in tables:
            records_at(folder).create(shared=True)
            records_at(folder / name).create(shared=name == answer)

    def table(self, generation: int, name: str) -> Table:
        """Return one of the view's own tables."""
        return self.table_at(f"g{generation}/{name}")

    def table_at(self, path: str) -> Table:
        """Return the table at a path below the view's folder, such as `g1/state_1`."""
        return self.lake.table(self.spark, str(self.folder / path))
