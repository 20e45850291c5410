"""Tables that tests change, in Delta by SQL or in memory by rewriting rows, with the same few verbs."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from incremental.lake.physical_layout import Storage
from tests.corpus.memory import MemoryTable


class Lake(Protocol):
    """Where a table of a history lies, and what can be done to it."""

    def write(self, rows: DataFrame, mode: str) -> None: ...

    def update(self, values: dict[str, str], where: str) -> None: ...

    def delete(self, where: str) -> None: ...

    def copy(self, where: str) -> None: ...

    def optimize(self) -> None: ...

    def merge(self, values: dict[str, str], where: str) -> None: ...

    def rows(self) -> DataFrame: ...


class DeltaLake:
    """A Delta table, changed by SQL."""

    def __init__(self, spark: SparkSession, path: str, deletion_vectors: bool = True) -> None:
        self.spark, self.path, self.table = spark, path, f"delta.`{path}`"
        self._options = {"delta.enableDeletionVectors": str(deletion_vectors).lower()}

    def write(self, rows: DataFrame, mode: str) -> None:
        rows.coalesce(1).write.format("delta").mode(mode).options(**self._options).save(self.path)
        self._options = {}

    def update(self, values: dict[str, str], where: str) -> None:
        self._sql(f"update {self.table} set {assignments(values)} where {where}")

    def delete(self, where: str) -> None:
        self._sql(f"delete from {self.table} where {where}")

    def copy(self, where: str) -> None:
        self._sql(f"insert into {self.table} select * from {self.table} where {where} limit 9")

    def optimize(self) -> None:
        self._sql(f"optimize {self.table}")

    def merge(self, values: dict[str, str], where: str) -> None:
        source = f"select distinct u, u + 1000000 * (u % 2) as other from {self.table} where {where}"
        self._sql(
            f"merge into {self.table} e using ({source}) n on e.u = n.other "
            f"when matched and k = 1 then delete when matched then update set {assignments(values)} "
            "when not matched then insert (k, u, v) values (1, n.other, 0.5)"
        )

    def restore(self, back: int) -> None:
        """What the table was some versions ago, or at first."""
        latest = Storage(self.spark, self.path).version() or 0
        self._sql(f"restore table {self.table} to version as of {max(0, latest - back)}")

    def rows(self) -> DataFrame:
        return self.spark.read.format("delta").load(self.path)

    def _sql(self, text: str) -> None:
        self.spark.sql(text).collect()


class MemoryLake:
    """A table in memory, changed by rewriting all of its rows, or by adding a file."""

    def __init__(self, table: MemoryTable) -> None:
        self.table = table

    def write(self, rows: DataFrame, mode: str) -> None:
        version = self.table.version()
        kept = list(self.table.files(version)) if mode == "append" and version is not None else []
        self.table.commit(kept, rows)

    def update(self, values: dict[str, str], where: str) -> None:
        items = {name: F.expr(f"if({where}, {value}, {name})").alias(name) for name, value in values.items()}
        self.write(self.rows().select(*(items.get(name, F.col(name)) for name in self.rows().columns)), "overwrite")

    def delete(self, where: str) -> None:
        self.write(self.rows().where(f"not coalesce({where}, false)"), "overwrite")

    def copy(self, where: str) -> None:
        self.write(self.rows().where(where).limit(9), "append")

    def optimize(self) -> None:
        self.write(self.rows(), "overwrite")

    def merge(self, values: dict[str, str], where: str) -> None:
        self.delete(f"({where}) and k = 1")
        self.update(values, where)

    def rows(self) -> DataFrame:
        version = self.table.version()
        assert version is not None
        return self.table.at(version)


def assignments(values: dict[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())
