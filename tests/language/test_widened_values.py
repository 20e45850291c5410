"""Which expressions have the same value for a wider type, by comparing the programs before and after."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from deltafold.compiler.compile import compile_query
from deltafold.compiler.draft import Draft
from deltafold.compiler.widening import DifferentError, compare_programs
from deltafold.language.analysis import analyse
from deltafold.language.fingerprint.equality import SparkEquality
from deltafold.language.fingerprint.widened_values import WidenedValues
from deltafold.language.query import ANSI
from deltafold.spark import catalyst

SHORT, LONG, FLOAT, DATE = "smallint to int", "int to bigint", "float to double", "date to timestamp_ntz"
DIGITS, SCALE = "decimal(5,2) to decimal(7,2)", "decimal(5,2) to decimal(7,4)"
SAME = {
    "v > 3": (SHORT, LONG, FLOAT, DIGITS, SCALE),
    "v + v > 3": (SHORT, LONG, DIGITS, SCALE),
    "v * v - v > 3": (SHORT, LONG, DIGITS),
    "abs(v) > 3 and -v < 2": (SHORT, LONG),
    "v % 3 = 1": (SHORT, LONG),
    "v / 2 > 1": (SHORT, LONG),
    "v div 2 > 1": (SHORT, LONG),
    "cast(v as string) like '1%'": (SHORT, LONG, DIGITS),
    "try_cast(v as tinyint) > 1": (SHORT, LONG),
    "cast(v as decimal(4,1)) > 1": (SHORT, LONG, DIGITS, SCALE),
    "cast(v as double) > w": (SHORT, LONG, FLOAT, DIGITS, SCALE),
    "cast(v as float) > w": (SHORT, LONG, FLOAT),
    "cast(v as bigint) = 4": (SHORT, LONG, DIGITS, SCALE),
    "v in (1, 2, w)": (SHORT, LONG, FLOAT),
    "nullif(v, 3) is null or v <=> null": (SHORT, LONG, FLOAT, DIGITS, SCALE),
    "greatest(v, 3) = least(v, 9)": (SHORT, LONG, FLOAT),
    "year(v) = 2020 or v between '2020-01-01' and date'2021-01-01'": (DATE,),
    "isnan(v) or sqrt(v) > 2": (FLOAT,),
}
DIFFERENT = {
    "v * v + 1 > 3": (FLOAT,),
    "v + v > 3": (FLOAT,),
    "cast(v as string) like '1%'": (FLOAT, DATE, SCALE),
    "concat(v, 'x') = '1x'": (FLOAT, DATE, SCALE),
    "cast(v as int) = 1": (FLOAT,),
    "cast(v as timestamp) > '2020-01-01'": (DATE,),
    "v + interval 1 day > '2020-01-01'": (DATE,),
    "try_add(v, v) > 1": (SHORT, LONG),
    "pmod(v, 3) = 1 or hash(v) = 1 or bit_count(v) = 1": (SHORT, LONG),
    "to_json(named_struct('v', v)) = ''": (SHORT, FLOAT, DATE, SCALE),
    "typeof(v) = 'int'": (SHORT, LONG),
    "v & 3 = 1": (LONG,),
    "array_contains(array(v), v)": (LONG,),
}


def difference(spark: SparkSession, condition: str, pair: str) -> str:
    """What may differ of a filter; empty if nothing does."""
    text, (old, new) = f"select k from t where {condition}", pair.split(" to ")
    schemas = ({"t": catalyst.schema_of(f"k int, v {type_}, w double")} for type_ in (old, new))
    narrow, wide = (analyse(spark, text, schema, schema.get) for schema in schemas)
    before = narrow.translate()
    after = wide.translate(before.names)
    one, other = (
        compile_query(Draft(plan=query.plan, outputs=query.outputs, equality=SparkEquality(spark, query.attributes)))
        for query in (before, after)
    )
    try:
        compare_programs(one, other, WidenedValues(spark, before.attributes, after.attributes))
    except DifferentError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("condition", SAME)
def test_same_values(spark: SparkSession, condition: str) -> None:
    assert {pair: difference(spark, condition, pair) for pair in SAME[condition]} == dict.fromkeys(SAME[condition], "")


@pytest.mark.parametrize("condition", DIFFERENT)
def test_values_that_may_differ(spark: SparkSession, condition: str) -> None:
    assert all(difference(spark, condition, pair) for pair in DIFFERENT[condition])


def test_arithmetic_without_ansi(spark: SparkSession) -> None:
    """An overflow wraps around: 30000 + 30000 is not what it is with a wider type."""
    session = spark.newSession()
    session.conf.set(ANSI, "false")
    assert "may have another value" in difference(session, "v + v > 3", SHORT)
    assert not difference(session, "v > 3", SHORT)
