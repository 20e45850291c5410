"""Scalar Python functions are evaluated by Spark, over changes as over everything."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.examples.scene import Scene, checked, rows


def test_python_function_in_a_group_by(scene: Scene) -> None:
    """Protects from a scan whose columns Spark hands over and then waits for, and from a key that is not a column."""

    def query(t: DataFrame) -> DataFrame:
        initial = F.udf(lambda name: name[:1] if name else None)
        return t.groupBy(initial("name").alias("first")).agg(F.sum("v").alias("s"), F.max("name").alias("last"))

    scene.source("t", "name string, v int", [("ann", 1), ("bob", 2), (None, 3), ("al", 4)])
    view = scene.view(query)
    assert view.verdict == "incremental"
    checked(view)
    scene.sql("insert into {t} values ('bea', 5), ('', 6)")
    checked(view)
    scene.sql("delete from {t} where name = 'bob' or name is null")
    checked(view)
    assert rows(view) == [("a", 5, "ann"), ("b", 5, "bea"), (None, 6, "")]
