"""A loop as its readers see it in one epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from deltafold.lake.protocol import Table
from deltafold.lake.version_diff import Difference, file_difference


class StoredAnswer(Protocol):
    """How the answer of a loop is read from its table."""

    @property
    def row(self) -> tuple[str, ...]:
        """The columns of a row."""
        ...

    def answer(self, table: DataFrame) -> DataFrame:
        """Return the rows of the answer in a version of the table."""
        ...

    def difference(self, versions: Difference) -> DataFrame:
        """Return the change of the answer between two versions, as rows with weights."""
        ...


@dataclass(frozen=True, kw_only=True)
class LoopVersions:
    """A loop in this epoch: its table before and after; change: of its answer, None where the files show it.

    same: the answer is the same, whether the table was written or not.
    """

    table: Table
    stored: StoredAnswer
    before: int | None
    after: int
    change: DataFrame | None
    same: bool

    @property
    def answer_change(self) -> DataFrame:
        """The change of the answer as rows with weights."""
        if self.change is not None:
            return self.change
        return self.stored.difference(file_difference(self.table, self.before, self.after))
