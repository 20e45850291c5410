"""Rows that SQL takes for equal are told apart by the bits of their floats and the bytes of their texts."""

from __future__ import annotations

from collections import Counter
from itertools import product, zip_longest
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from deltafold.lake.version_diff import sum_weights
from deltafold.spark.catalyst import schema_of
from deltafold.spark.row_identity import group_identical, identical_by_hash, identical_sql, identity_keys, row_keys
from tests.local_rows import local
from tests.properties.comparing import identity

NAN = float("nan")
FLOATS = [0.0, -0.0, 0.0, NAN, -NAN, float("-inf"), 1.5, None]
TEXTS = ["a", "A", "b", "", None]
VALUES: dict[str, list[Any]] = {
    "i int": [0, 1, None],
    "d double": FLOATS,
    "f float": FLOATS,
    "c string collate UTF8_LCASE": TEXTS,
    "u string collate UNICODE_CI": TEXTS,
    "a array<double>": [None, [], [0.0], [-0.0], [0.0, None], [NAN], [-NAN]],
    "s struct<`x.y`: float, c: array<string collate UTF8_LCASE>>": [
        None,
        *product([0.0, -0.0, None], [None, ["a"], ["A"]]),
    ],
    "m map<string, double>": [
        None,
        {},
        {"a": 0.0},
        {"a": -0.0},
        {"b": None},
        {"a": NAN, "b": 1.0},
    ],
    "n array<map<int, struct<d: double>>>": [None, [None], [{1: None}], [{1: (0.0,)}], [{1: (-0.0,)}], [{1: (None,)}]],
}
NAMES = [name.split()[0] for name in VALUES]
ROWS = [*zip_longest(*(values * 2 for values in VALUES.values()))]
SCHEMA = ", ".join(VALUES)


def test_rows_are_grouped_by_identity(spark: SparkSession) -> None:
    """Every value comes back as it was, beside the number of its copies."""
    rows = local(spark, ROWS, SCHEMA)
    wanted = rows.collect()
    for names in [*([name] for name in NAMES), ["c", "i", "d", "s"]]:
        grouped = group_identical(rows, names, ("n", F.count(F.lit(1))))
        assert [grouped.schema[name].dataType for name in names] == [rows.schema[name].dataType for name in names]
        found = {identity(row[:-1]): row[-1] for row in map(tuple, grouped.collect())}
        assert found == Counter(identity(tuple(row[name] for name in names)) for row in wanted)


def test_rows_are_joined_by_identity(spark: SparkSession) -> None:
    """The condition of a join compares as the grouping does, column by column."""
    rows = local(spark, ROWS, SCHEMA)
    same = [F.expr(identical_sql(rows.schema, [name])).alias(name) for name in NAMES]
    same += [F.expr(identical_by_hash(rows.schema, [name])).alias(f"{name} by hash") for name in NAMES]
    pairs = rows.alias("t").join(rows.alias("u"), how="cross")
    both = [F.struct(f"t.{name}", f"u.{name}").alias(f"both_{name}") for name in NAMES]
    for row in pairs.select(*same, *both).collect():
        for name in NAMES:
            one, other = row[f"both_{name}"]
            equal = identity(one) == identity(other)
            assert row[name] == row[f"{name} by hash"] == equal, (name, one, other)
    by_hash = F.expr(identical_by_hash(rows.schema, NAMES))
    identical = Counter(identity(tuple(row)) for row in rows.collect())
    assert rows.alias("t").join(rows.alias("u"), by_hash).count() == sum(n * n for n in identical.values())


@pytest.mark.usefixtures("spark")
def test_ordinary_columns_are_their_own_keys() -> None:
    """So the plans of rows without floats, collated texts and maps stay as they are."""
    schema = schema_of("`a b` int, c string, d decimal(9, 2), e array<struct<x: int>>, f struct<y: array<binary>>")
    assert row_keys(schema, schema.names, "t.") == ["t.`a b`", "t.`c`", "t.`d`", "t.`e`", "t.`f`"]
    assert identity_keys("d", schema_of("d double")["d"].dataType)[0] == "d"


def test_weights_of_identical_rows_are_summed(spark: SparkSession) -> None:
    """A change of only the sign of zero, or of only the case of a collated text, remains."""
    rows = [(0.0, "a", -1), (-0.0, "a", 1), (1.0, "b", 1), (1.0, "B", -1), (2.0, "c", 1), (2.0, "c", -1)]
    schema = "d double, c string collate UTF8_LCASE, __weight bigint"
    summed = sum_weights(local(spark, rows, schema))
    assert Counter(map(repr, summed.collect())) == Counter(map(repr, local(spark, rows[:4], schema).collect()))


def test_maps_are_compared_by_their_entries_in_order(spark: SparkSession) -> None:
    """At any depth; Spark itself sorts the entries of a map that it groups by."""
    one, other = "map(1, 'a', 2, 'b')", "map(2, 'b', 1, 'a')"
    rows = spark.sql(f"select array(m) m, w __weight from values ({one}, 1L), ({other}, -1L), ({one}, -2L) as t(m, w)")
    summed = sum_weights(rows).selectExpr("cast(m as string)", "__weight").collect()
    assert Counter(map(tuple, summed)) == Counter({("[{1 -> a, 2 -> b}]", -1): 1, ("[{2 -> b, 1 -> a}]", -1): 1})
