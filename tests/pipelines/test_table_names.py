"""The tables that a project's SQL reads, and the names by which its columns cite them, are Spark's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.errors import QueryError
from deltafold.pipelines.graph import Graph, Leaves, Relation
from deltafold.pipelines.project import Project

QUERIES = (
    "select id from raw.t where exists (select 1 from raw2.t where t.id > 3) and exists (select 1 from raw.t)",
    "select id, (select max(t.id) from raw2.t) m from raw.t",
    "select t.id from raw.t union all select t.id + 1 from raw2.t",
    "select raw.t.k from raw.t",
    "select spark_catalog.raw.t.id from spark_catalog.raw.t",
    "select raw.t.k, raw2.t.z from raw.t join raw2.t on raw.t.id = raw2.t.id",
    "with t as (select t.id, t.k from raw.t where t.k > 0) select t.id from t",
    "select t.id from raw.t where exists (with t as (select 1 z) select * from t)",
    "select a.id, b.z from raw.t a, raw2.t as b where a.id = b.id",
    "select t.k, u.z from raw.t tablesample (100 percent) t join raw2.t u using (id)",
    "table raw2.t",
    "select * from raw.t |> where t.k > 2 |> select raw.t.id",
    "select V1.id from raw.v1",
    "select T.Id, RAW.t.K from Raw.T",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 4) select k from r, raw.t where n = id",
    "with recursive r(n) as (select 1 union select n + 1 from r where n < 4) select n, t.k from r join raw.t on n = id",
    "select x.id, y.z from raw.t x, lateral (select t.z from raw2.t where t.id = x.id) y",
    "select id, k in (select t.z from raw2.t where raw2.t.id = raw.t.id) i from raw.t",
    "select * from (select t.id i from raw.t) join (select t.id j from raw2.t) on i = j",
)


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> Iterator[None]:
    """Tables of one name in two databases."""
    for name in ("raw", "raw2"):
        spark.sql(f"create database {name}")
    spark.sql("create view raw.t as select id, id * 2 k from range(10)")
    spark.sql("create view raw2.t as select id, id * 3 z from range(5)")
    spark.sql("create view raw.v1 as select id from range(3)")
    yield
    for name in ("raw", "raw2"):
        spark.sql(f"drop database {name} cascade")


def evaluate(spark: SparkSession, folder: Path, query: str) -> DataFrame:
    """Evaluate a query of a project without datasets, over the tables of the catalog."""

    def table(relation: Relation) -> DataFrame:
        return spark.table(relation.sql)

    def stream(relation: Relation, options: object) -> DataFrame:
        raise AssertionError(relation)

    graph = Graph(spark, Project(name="p", folder=folder, storage=str(folder), datasets=()), lambda _: StructType())
    return graph.evaluate(query, Leaves(table=table, stream=stream))


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("query", QUERIES)
def test_columns_are_found_as_in_spark(spark: SparkSession, tmp_path: Path, query: str) -> None:
    """Protects from a column that names a table and is found in another one, and from valid names that are refused."""
    answer = evaluate(spark, tmp_path, query)
    expected = spark.sql(query) if "union select" not in query else spark.sql(query.replace("union", "union all"))
    assert answer.dtypes == expected.dtypes
    assert sorted(answer.collect(), key=str) == sorted(expected.collect(), key=str)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    "query",
    [
        "select * from raw.t version as of 1",
        "with a as (select * from raw.t timestamp as of '2026-01-01') select * from a",
    ],
)
def test_a_version_in_a_query_is_refused(spark: SparkSession, tmp_path: Path, query: str) -> None:
    """Protects from a table of the session's that has the name of a project's, which has no such version."""
    with pytest.raises(QueryError, match=r"^query: it reads raw\.t at a version of its own\. Read it without"):
        evaluate(spark, tmp_path, query)
