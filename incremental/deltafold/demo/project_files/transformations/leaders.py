"""Datasets of days and of routes, in Python."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
INCREMENTAL = {"deltafold.refresh_policy": "incremental"}


@dp.materialized_view(comment="Flights of each day and origin", table_properties=INCREMENTAL)
def origin_days() -> DataFrame:
    cancelled, late = F.count_if(F.col("dep_time").isNull()), F.count_if(F.col("dep_delay") > 15)
    days = spark.table("flights").groupBy("origin", "day")
    return days.agg(F.count("*").alias("flights"), cancelled.alias("cancelled"), late.alias("late"))


@dp.materialized_view(comment="The airline with most flights on each route", table_properties=INCREMENTAL)
def market_leaders() -> DataFrame:
    airlines = (
        spark.table("flights_of_airlines").groupBy("origin", "dest", "airline").agg(F.count("*").alias("flights"))
    )
    leader = F.max(F.struct("flights", "airline")).alias("leader")
    routes = airlines.groupBy("origin", "dest").agg(leader, F.sum("flights").alias("of_flights"))
    return routes.select("origin", "dest", "leader.airline", "leader.flights", "of_flights")
