"""A folder of files of one format, and a warehouse in memory that lands them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources import Format
from deltafold.api import Files, Warehouse
from tests.lake.memory.table import MemoryLake


class Drop:
    """A folder of files of one format, and a warehouse in memory that lands them."""

    def __init__(self, spark: SparkSession, folder: Path, format: Format, schema: str, **options: Any) -> None:
        self.folder = folder / "drop"
        self.folder.mkdir()
        self.warehouse = Warehouse(spark, folder / "warehouse", lake=MemoryLake())
        self.warehouse.source("t", Files(str(self.folder), format, schema, **options))

    def put(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def rows(self) -> list[tuple[Any, ...]]:
        """Land, and return the rows of the landed table."""
        self.warehouse.land("t")
        table = self.warehouse.tables()["t"]
        version = table.version()
        assert version is not None
        return sorted((tuple(row) for row in table.at(version).collect()), key=repr)

    def refused(self, path: Path, reason: str) -> None:
        """Nothing is landed, and the error has the file and the reason."""
        before = self.warehouse.version("t")
        with pytest.raises(SourceError) as caught:
            self.warehouse.land("t")
        assert f"{path}{reason}" in str(caught.value) or (
            str(path) in str(caught.value) and reason in str(caught.value)
        )
        assert self.warehouse.version("t") == before
