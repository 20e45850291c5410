"""Create a DataFrame at its first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from deltafold.spark.catalyst import J, dataset


def defer(spark: SparkSession, make: Callable[[], DataFrame]) -> DataFrame:
    """Return a DataFrame that `make` creates at its first use."""
    return DeferredFrame(spark, make)


class DeferredFrame(ClassicDataFrame):
    """A DataFrame whose Java object, which all its methods use, is created at its first use."""

    def __init__(self, spark: SparkSession, make: Callable[[], DataFrame]) -> None:
        super().__init__(cast(Any, None), spark)
        del self._jdf  # so that the property below replaces it
        self._make = make

    @cached_property
    def _jdf(self) -> J:  # pyright: ignore[reportIncompatibleVariableOverride]
        return dataset(self._make())
