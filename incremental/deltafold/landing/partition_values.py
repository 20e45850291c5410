"""Cast partition keys, as folders spell them, to values of a type, as text.

A landed table knows values alone: to a DATE, 2024-5-1 and 2024-05-01 are two keys of one partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StringType

from deltafold.algebra.sqltext import literal


def values(spark: SparkSession, data_type: DataType, keys: Iterable[str]) -> dict[str, str | None]:
    """Return the value of each key, equal text for equal values; None for a key that does not fit the type."""
    if isinstance(data_type, StringType):
        return {key: key for key in keys}
    rows, type_ = ", ".join(f"({literal(key)})" for key in keys), data_type.simpleString()
    if not rows:
        return {}
    value = f"try_cast(k AS {type_})" + (" + 0" if type_ in ("float", "double") else "")  # 0 and -0 are one value
    found = cast(Any, spark).sql(f"SELECT k, CAST({value} AS STRING) FROM VALUES {rows} AS t(k)").collect()
    return {str(row[0]): row[1] for row in found}
