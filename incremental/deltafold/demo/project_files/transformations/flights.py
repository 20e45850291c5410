"""The flights as they are now: the latest event of each, unless that deletes it."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.temporary_view
def flight_events() -> DataFrame:
    return spark.readStream.table("nyc.flight_events")


dp.create_streaming_table("flights", table_properties={"deltafold.refresh_policy": "incremental"})
dp.create_auto_cdc_flow(
    target="flights",
    source="flight_events",
    keys=["day", "carrier", "flight", "origin", "sched_dep_time"],
    sequence_by="sequence",
    apply_as_deletes="operation = 'delete'",
    except_column_list=["operation", "sequence"],
)
