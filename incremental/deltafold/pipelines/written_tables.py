"""Write the tables of a project that no view keeps, as Spark writes them.

A streaming table is appended to by its flows. A dataset whose query reads data without versions is replaced by each run
(D-189).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from deltafold.algebra.errors import CatalogError, QueryError
from deltafold.algebra.local_path import plain
from deltafold.algebra.sqltext import literal, quoted
from deltafold.language.determinism.clock import bind_clock
from deltafold.pipelines.graph import Graph, Leaves, Parts, Reads, Relation, merge_columns
from deltafold.pipelines.project import Dataset, StreamingTable, TableOptions

SESSION_CATALOG = "spark_catalog"
CATALOG_KIND, IN_MEMORY = "spark.sql.catalogImplementation", "in-memory"
STORAGE = "deltafold.storage"  # a property of streaming tables: the project's storage
CHECKPOINT = "deltafold.checkpoint"  # the number of the checkpoints of its flows, which a full refresh raises


@dataclass(frozen=True)
class WrittenTables:
    """The tables of a project on a running Spark that no view keeps.

    root: the folder or URI of the project's storage.
    """

    spark: SparkSession
    graph: Graph
    reads: Reads
    root: str

    def is_written(self, node: Dataset | StreamingTable) -> bool:
        """Return whether a table is written as Spark writes it: by streams, or completely at each run (D-189)."""
        return isinstance(node, StreamingTable) or self.graph.key(node) in self.reads.unversioned

    def location(self, key: Parts) -> str:
        """Return where a table is whose catalog ends with this process (D-233); empty where the catalog decides."""
        is_kept = key[0] != SESSION_CATALOG or self.spark.conf.get(CATALOG_KIND) != IN_MEMORY
        return "" if is_kept else f"{self.root}/tables/{'.'.join(key[1:])}"

    def checkpoints(self, key: Parts) -> str:
        """Return the folder or URI with the checkpoints of a streaming table."""
        return f"{self.root}/checkpoints/{'.'.join(key)}"

    def exists(self, table: Dataset | StreamingTable) -> bool:
        """Return whether a table has been made; names it in a catalog that ended with an earlier process."""
        key = self.graph.key(table)
        name, location = ".".join(map(quoted, key)), self.location(key)
        if self.spark.catalog.tableExists(name):
            return True
        if not location or not DeltaTable.isDeltaTable(self.spark, location):
            return False
        create_database(self.spark, ".".join(map(quoted, key[:-1])))
        cast(Any, self.spark).sql(f"CREATE TABLE {name} USING delta LOCATION {literal(location)}")
        return True

    def create(self, table: Dataset | StreamingTable, *, replace_checkpoint: int | None = None) -> None:
        """Create a table or the columns that it lacks, or an empty one with other checkpoints instead."""
        key = self.graph.key(table)
        name = ".".join(map(quoted, key))
        location = self.location(key)
        if replace_checkpoint is None and self.exists(table):
            if not self._is_own(table):
                raise CatalogError(
                    f"table {name}: it exists, and this project did not create it. Rename the dataset, or drop the "
                    "table."
                )
            present = self.spark.table(name).schema
            if added := merge_columns(present, self.reads.schemas[key]).fields[len(present) :]:
                cast(Any, self.spark).sql(f"ALTER TABLE {name} ADD COLUMNS ({nullable_ddl(StructType(added))})")
            return
        options = table.options
        properties = {**options.properties, STORAGE: self.root, CHECKPOINT: str(replace_checkpoint or 1)}
        head = "CREATE TABLE" if replace_checkpoint is None else "CREATE OR REPLACE TABLE"
        clauses = [f"{head} {name} ({nullable_ddl(self.reads.schemas[key])}) USING delta"]
        if options.partition_by:
            clauses.append(f"PARTITIONED BY ({', '.join(map(quoted, options.partition_by))})")
        if options.cluster_by:
            clauses.append(f"CLUSTER BY ({', '.join(map(quoted, options.cluster_by))})")
        if options.comment:
            clauses.append(f"COMMENT {literal(options.comment)}")
        if location:
            clauses.append(f"LOCATION {literal(location)}")
        clauses.append(f"TBLPROPERTIES ({assignments(properties)})")
        cast(Any, self.spark).sql(" ".join(clauses))

    def _is_own(self, table: Dataset | StreamingTable) -> bool:
        """Return whether this project made a table that exists, at its storage or where that was before it moved."""
        storage, key = self._properties(table).get(STORAGE), self.graph.key(table)
        if storage is None or storage == self.root:
            return storage is not None
        [detail] = cast(Any, self.spark).sql(f"DESCRIBE DETAIL {'.'.join(map(quoted, key))}").collect()
        return plain(detail["location"]) == self.location(key)

    def _properties(self, table: Dataset | StreamingTable) -> dict[str, str]:
        name = ".".join(map(quoted, self.graph.key(table)))
        rows = cast(Any, self.spark).sql(f"SHOW TBLPROPERTIES {name}").collect()
        return {row["key"]: row["value"] for row in rows}

    def append(self, table: StreamingTable, *, full: bool = False) -> int:
        """Run the flows of a streaming table until they have read everything; returns the rows read.

        Delta's transaction marks make each batch of a flow count once. full: empty the table and begin again; the
        emptied table names new checkpoints in the same commit, so that a crash leaves either both or none (D-181).
        """
        checkpoint = int(self._properties(table).get(CHECKPOINT, "1"))
        if full:
            checkpoint += 1
            self.create(table, replace_checkpoint=checkpoint)
        key, rows = self.graph.key(table), 0
        leaves = replace(stored_leaves(self.spark), stream=self._stream)
        for flow in table.flows:
            frame = self.graph.evaluate(flow.query, leaves)
            query = (
                frame.writeStream.format("delta")
                .outputMode("append")
                .option("mergeSchema", "true")
                .option("checkpointLocation", f"{self.checkpoints(key)}/{checkpoint}/{flow.name}")
                .trigger(availableNow=True)
                .toTable(".".join(map(quoted, key)))
            )
            query.awaitTermination()
            rows += sum(int(progress["numInputRows"]) for progress in query.recentProgress)
        return rows

    def _stream(self, relation: Relation, options: Mapping[str, Any]) -> DataFrame:
        reader = self.spark.readStream.options(**options)
        return reader.format("delta").load(relation.parts[-1]) if relation.is_path else reader.table(relation.sql)

    def recompute(self, dataset: Dataset, clock: str) -> int:
        """Replace the rows of a dataset whose query reads data without versions; returns the number of rows.

        A table with other columns is replaced first, which rebuilds what reads it. clock: the time at which the query
        reads the clock (ISO 8601).
        """
        name = ".".join(map(quoted, self.graph.key(dataset)))
        rows = self.graph.evaluate(dataset.query, stored_leaves(self.spark))
        rows = bind_clock(self.spark, rows, clock)
        if sorted(rows.dtypes) != sorted(self.spark.table(name).dtypes):
            self.create(dataset, replace_checkpoint=1)
        rows.writeTo(name).overwrite(F.lit(True))
        return self.spark.table(name).count()


def stored_leaves(spark: SparkSession) -> Leaves:
    """Return what a query reads by the names of tables as the catalog has them; a stream is refused."""
    return Leaves(table=lambda relation: spark.table(relation.sql), stream=refuse_stream)


def refuse_stream(relation: Relation, options: Mapping[str, Any]) -> NoReturn:
    """Raise QueryError for a table that is read as a stream where that has no meaning."""
    raise QueryError(f"query: it reads {relation.sql} as a stream. Read it as a table.")


def create_database(spark: SparkSession, database: str) -> None:
    """Create a database that does not exist; its name is quoted where necessary."""
    if not spark.catalog.databaseExists(database):
        cast(Any, spark).sql(f"CREATE DATABASE IF NOT EXISTS {database}")


def find_ignored(options: TableOptions) -> list[str]:
    """Return the options that the table of a maintained view does not have."""
    layout = {"partitioning": options.partition_by, "clustering": options.cluster_by}
    return [*(name for name, columns in layout.items() if columns), *filter(is_delta_property, options.properties)]


def is_delta_property(name: str) -> bool:
    """Return whether a table property has a meaning for Delta Lake."""
    return name.lower().startswith("delta.")


def nullable_ddl(schema: StructType) -> str:
    """Return the columns of a table that a stream writes, all of which may be NULL."""
    return ", ".join(f"{quoted(column.name)} {column.dataType.simpleString()}" for column in schema)


def assignments(properties: Mapping[str, str]) -> str:
    """Return the properties as SQL writes them."""
    return ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
