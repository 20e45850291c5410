"""What a query reads beside its declared sources is refused by name, wherever it hides: nothing else would notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from deltafold.algebra.errors import QueryError, SourceError
from deltafold.language.analysis import analyse
from deltafold.spark.catalyst import schema_of
from tests.language.schemas import read
from tests.night import night

READS, NOT = "query: it reads ", ", which is not a declared source. "
TABLE = 'query: it reads table db.t, which is not a declared source. Declare it with Delta(table="db.t")'
HIDDEN = {
    "alone": "select * from db.t",
    "by an identifier": "select * from identifier('db.t')",
    "at a version": "select * from db.t version as of 0",
    "in a pipe": "from db.t |> select k",
    "joined": "select carrier from flights join db.t on k = seats",
    "in a common table expression": "with x as (select * from db.t) select carrier from flights, x where k = seats",
    "in one that nobody uses": "with x as (select * from db.t) select carrier from flights",
    "below EXISTS": "select carrier from flights where exists (select 1 from db.t where k = seats)",
    "below IN and OR": "select carrier from flights where seats in (select k from db.t) or seats = 1",
    "in a scalar subquery": "select (select max(k) from db.t) m, carrier from flights",
    "in a subquery of a subquery": (
        "select (select max(seats) from flights where seats in (select ok from orders where ok = (select k from db.t)))"
    ),
    "in a generator": "select explode(sequence(1, (select max(k) from db.t)))",
    "in a lateral subquery": "select carrier, m from flights, lateral (select max(v) m from db.t where k = seats)",
    "in HAVING": "select carrier from flights group by carrier having max(seats) > (select max(k) from db.t)",
    "in an order": "select carrier from flights order by (select max(k) from db.t), carrier limit 1",
    "in a window": "select sum((select max(k) from db.t)) over (partition by carrier) s from flights",
    "in a join's condition": "select f.carrier from flights f join orders on ok = (select max(k) from db.t)",
    "where Spark prunes it": "select carrier from flights where false and seats in (select k from db.t)",
    "in a recursion": (
        "with recursive r(n) as (select k from db.t union all select n + 1 from r where n < 5) select n from r"
    ),
    "in a set operation": "select seats from flights except select k from db.t",
    "in a pivot": "select * from db.t pivot (sum(v) for k in (1))",
    "in a table function's argument": "select * from explode(array((select max(k) from db.t)))",
    "in a function": "select carrier, largest(seats) from flights",
    "in a table function": "select * from rows_of_t()",
    "in a view of the catalog": "select k from db.w",
    "in a temporary view": "select k from of_table",
    "in a global temporary view": "select k from global_temp.of_table",
}


class Numbers(DataSource):
    """A data source written in Python."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "a int"

    def reader(self, schema: object) -> DataSourceReader:
        raise NotImplementedError


@pytest.fixture(scope="module")
def home(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A table, and what reads it, in the catalog and the session; files beside it."""
    folder = tmp_path_factory.mktemp("undeclared")
    (folder / "lines.csv").write_text("k\n1\n")
    for text in (
        f"create database db location '{folder / 'db'}'",
        "create table db.t (k int, v int) using delta",
        "create table db.p (k int) using parquet",
        "create view db.w as select k from db.t",
        "create temporary view of_table as select * from db.t",
        "create global temporary view of_table as select * from db.t",
        f"create temporary view of_files using csv options (path '{folder / 'lines.csv'}', header true)",
        "create temporary view constants as values (1), (2)",
        "create temporary function largest(x int) returns int return x + (select max(k) from db.t)",
        "create temporary function rows_of_t() returns table(k int) return select k from db.t",
    ):
        spark.sql(text)
    session: Any = spark
    session.dataSource.register(Numbers)
    yield folder
    for text in (
        "drop view of_table", "drop view global_temp.of_table", "drop view of_files", "drop view constants",
        "drop temporary function largest", "drop temporary function rows_of_t", "drop database db cascade",
    ):  # fmt: skip
        spark.sql(text)


def refusal(spark: SparkSession, query: str | Callable[..., DataFrame]) -> str:
    with pytest.raises(QueryError) as error:
        read(spark, query)
    return str(error.value)


def test_a_table_of_the_catalog_wherever_it_hides(spark: SparkSession, home: Path) -> None:
    """Protects from a view that is computed once and says "nothing to do" for ever after."""
    through = {"in a view of the catalog": "spark_catalog.db.w", "in a temporary view": "of_table"}
    through |= {"in a global temporary view": "global_temp.of_table"}
    for case, query in HIDDEN.items():
        said = refusal(spark, query)
        view = f" (read through the view {through[case]})" if case in through else ""
        assert said.startswith(TABLE.replace(", which", f"{view}, which")), (case, said)
        assert len(said.splitlines()) == 1


@night
def test_what_is_read_has_a_way_out_that_fits(spark: SparkSession, home: Path) -> None:
    """A sentence that advises what cannot be done is none."""
    lines, delta = home / "lines.csv", home / "db" / "t"
    copied = "Write {} to a Delta table and declare that with Delta(path)"
    table = TABLE.removeprefix(READS)
    cases: dict[str, str | Callable[..., DataFrame]] = {
        f'the Delta table {delta}{NOT}Declare it with Delta("{delta}")': f"select * from delta.`{delta}`",
        f'the csv data in {lines}{NOT}Declare its folder with Files(path, "csv", schema)': (
            f"select * from csv.`{lines}`"
        ),
        f"the csv data in {lines} (read through the view of_files){NOT}Declare its folder": "select * from of_files",
        f'the text data in {lines}{NOT}Declare its folder with Files(path, "text", schema)': (
            lambda **_: spark.read.text(str(lines))
        ),
        f"table db.p{NOT}" + copied.format("what it holds (parquet)"): "select * from db.p",
        f"an RDD (createDataFrame, a checkpoint){NOT}Write constant rows as VALUES": (
            lambda **_: spark.createDataFrame([(1,)], "a int")
        ),
        "an RDD ": lambda flights, **_: spark.createDataFrame(flights.rdd, flights.schema),
        f"a stream{NOT}Declare it with Stream(format, schema), which lands it in a Delta table": (
            lambda **_: spark.readStream.format("rate").load()
        ),
        f"numbers{NOT}" + copied.format("its rows"): (lambda **_: spark.read.format("numbers").load()),
        "what Spark's ": lambda **_: spark.sql("show tables in db"),
        table: lambda flights, **_: flights.join(spark.table("db.t").cache(), F.col("seats") == F.col("k")),
        f"{table} and read it by the source's name. Also, it reads table ": (
            "select k from db.t union all select k from db.p"
        ),
    }
    for begins, query in cases.items():
        assert refusal(spark, query).startswith(READS + begins)


def test_a_function_that_reads_by_an_action(spark: SparkSession, home: Path) -> None:
    """What it counts or collects would be a constant of its query, which no plan shows."""

    def after(action: Callable[[], object]) -> Callable[..., DataFrame]:
        def query(flights: DataFrame, **_: DataFrame) -> DataFrame:
            action()
            return flights

        return query

    for action in (
        spark.table("db.t").count,
        spark.read.text(str(home / "lines.csv")).first,
        spark.table("db.p").toPandas,
    ):
        assert "runs an action" in refusal(spark, after(action))


def test_a_lookup_of_a_declared_source_is_no_action(spark: SparkSession, home: Path) -> None:
    """Delta runs a job for the schema of a table whose newest commit has no checksum; the function runs none."""

    def look_up(name: str) -> StructType:
        spark.table("db.t").count()
        return spark.table(f"db.{name}").schema

    for query in (lambda t: t.limit(1), lambda **tables: tables["t"].limit(1)):
        analyse(spark, query, ["t"], look_up)
    with pytest.raises(QueryError, match="runs an action"):
        analyse(spark, lambda t: (spark.table("db.t").count(), t)[1], ["t"], look_up)


def test_constant_rows_are_no_reads(spark: SparkSession, home: Path) -> None:
    """Literal rows, ranges and views of these change with the query alone."""
    queries: tuple[Any, ...] = (
        "select carrier, a from flights, values (1), (2) as t(a)",
        "select * from range(3) union all select 1",
        "select * from constants",
        "select * from sql_keywords()",
        lambda **_: spark.createDataFrame(pd.DataFrame({"a": [1]})),
        lambda flights, **_: flights.join(spark.range(3), F.col("seats") == F.col("id")),
        lambda flights, **_: (
            flights.createOrReplaceTempView("mine"), flights.sparkSession.sql("select carrier from mine"),
        )[1],
    )  # fmt: skip
    for query in queries:
        read(spark, query)
    schemas = {"flights": schema_of("carrier string, seats int")}
    assert analyse(spark, "select * from constants", schemas, schemas.get).replaceable
    assert not analyse(spark, "select carrier, a from flights, values (1) as t(a)", schemas, schemas.get).replaceable


def test_a_source_without_data_is_told_from_what_has_its_name(spark: SparkSession, home: Path) -> None:
    """A table or a view of the session must not stand for a declared source until its data is there."""
    schemas = {"flights": schema_of("carrier string, seats int")}
    declared = (*schemas, "t", "Constants", "gone")
    spark.sql("use db")
    try:
        for query, says in (
            ("select k from t", "t"),
            ("select * from flights where seats in (select k from T)", "t"),
            ("select * from constants", "Constants"),
            ("select x from gone", "gone"),
            (lambda flights, gone: flights.join(gone, "carrier"), "gone"),
            (lambda **tables: tables["gone"], "gone"),
        ):
            with pytest.raises(SourceError, match=f"source {says} has no data yet"):
                analyse(spark, query, declared, schemas.get)
        analyse(spark, "with gone as (select 1 x) select x from gone", declared, schemas.get)
    finally:
        spark.sql("use default")
