"""Actions of Delta's log reach Python as they are in Java, however many there are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltafold.lake.log.actions import MOST_PIECES, PIECE, from_java, java_list, to_java


def added(number: int) -> dict[str, Any]:
    """An AddFile; the pair of surrogates is at another place in each."""
    stats = json.dumps({"maxValues": {"name": "x" * (number % 7) + '\U0001f600 "ü" \\'}}, ensure_ascii=False)
    part = {"day": None if number % 3 else f"tag \U0001f680 {number}"}
    return {"path": f"a%20b/{number}.parquet", "partitionValues": part, "size": number, "stats": stats}


@pytest.mark.parametrize("count", [0, 1, 150, 12_000])
def test_actions_are_passed_whole(spark: SparkSession, count: int) -> None:
    """Protects from characters that are lost where a long text is passed in pieces."""
    files = [added(number) for number in range(count)]
    java = to_java(spark, [json.dumps({**each, "modificationTime": 0, "dataChange": True}) for each in files])
    found = list(from_java(spark, java_list(spark, java)))
    assert [{key: each.get(key) for key in added(0)} for each in found] == files
    length = len(json.dumps(files))
    assert {150: PIECE < length < MOST_PIECES * PIECE, 12_000: length > MOST_PIECES * PIECE}.get(count, True)
