"""Write a history of sources once, and replay it for every query: the versions of a table in memory never change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.lake.memory.log import Version
from tests.sandbox import MemorySandbox, Step, checked


@dataclass(frozen=True)
class Recording:
    """The versions of sources by name: the first ones, then those after each round."""

    moments: tuple[Mapping[str, Version], ...]

    def check(self, sandbox: MemorySandbox, query: str) -> None:
        """Compare a view with its query at the first versions, and after each round."""
        self._advance(sandbox, self.moments[0])
        for name in self.moments[0]:
            sandbox.declare(name)
        view = sandbox.view(query)
        checked(view)
        for versions in self.moments[1:]:
            self._advance(sandbox, versions)
            checked(view)

    @staticmethod
    def _advance(sandbox: MemorySandbox, versions: Mapping[str, Version]) -> None:
        for name, version in versions.items():
            sandbox.tables.log.advance(Path(sandbox.path(name)), version)


def record(
    spark: SparkSession, folder: Path, tables: Mapping[str, tuple[str, Sequence[Any]]], rounds: Sequence[Sequence[Step]]
) -> Recording:
    """Create tables of a schema and rows each, and run the steps of each round, a commit each."""
    sandbox = MemorySandbox(spark, folder).sources(tables)
    moments = []
    for steps in ((), *rounds):
        sandbox.do(*steps)
        written = {name: sandbox.tables.written_by_others(spark, sandbox.path(name)) for name in tables}
        moments.append({name: table.latest for name, table in written.items()})
    return Recording(tuple(moments))
