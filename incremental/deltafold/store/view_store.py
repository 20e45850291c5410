"""Locate the journal and the tables of one view in its folder, by generation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from deltafold.algebra.plain_options import PlainOptions, Publish
from deltafold.algebra.tuning import Tuning
from deltafold.lake.durable import make_private, make_shared
from deltafold.lake.protocol import Lake, Table
from deltafold.lake.remote.remote_path import Place
from deltafold.store.journal import Journal


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
        return Journal(self.folder / "journal")

    def unused_generation(self) -> int:
        """Return a number above all generations with a folder or an entry, so that its tables carry no marks yet."""
        folders = (folder.name[1:] for folder in self.folder.glob("g*") if folder.is_dir())
        last = self.journal.last()
        return 1 + max([0 if last is None else last.intent.generation, *(int(n) for n in folders if n.isdigit())])

    def create_folders(self, generation: int, tables: Iterable[str], answer: str) -> None:
        """Create the folders of a generation's tables before Spark does; that of the answer is not private."""
        folder = self.folder / f"g{generation}"
        for name in tables:
            make_shared(folder)
            (make_shared if name == answer else make_private)(folder / name)

    def table(self, generation: int, name: str) -> Table:
        """Return one of the view's own tables."""
        return self.table_at(f"g{generation}/{name}")

    def table_at(self, path: str) -> Table:
        """Return the table at a path below the view's folder, such as `g1/state_1`."""
        return self.lake.table(self.spark, str(self.folder / path))
