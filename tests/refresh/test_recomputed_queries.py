"""The refused queries of docs/reference/operators.md: which `policy: auto` recomputes, and which no policy takes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from deltafold import api
from deltafold.algebra.errors import RefusedError
from deltafold.api import fixpoint
from deltafold.compiler.passes.refuse_unmaintainable import CONVERSIONS
from tests.night import every
from tests.sandbox import MemorySandbox, checked
from tests.spark.machine import PROJECT

# as errors write functions: `pmod(…)`, `map_entries of it`, `use lower of that`
FUNCTION = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b(?!=)|\b[a-z][a-z_0-9]+(?=\()|(?<=use )[a-z]\w*(?= of )")


def grouping_step(t: DataFrame) -> Any:
    return fixpoint(t.select("k"), lambda r: r.groupBy().max("k").toDF("k"))


def negating_step(t: DataFrame) -> Any:
    def step(found: DataFrame) -> DataFrame:
        return t.select("k").subtract(found)

    return fixpoint(t.select("k").where("k < 2"), step)


def whole_partitions(t: DataFrame) -> Any:
    return t.select("k").mapInPandas(lambda parts: (p.assign(k=p.k + 1) for p in parts), "k int")


def cogrouped(t: DataFrame, u: DataFrame) -> Any:
    def count(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"n": [len(a) * 10 + len(b)]})

    return t.groupBy("k").cogroup(u.groupBy("k")).applyInPandas(count, "n int")


OF_PLANS = {"lambdafunction", "namedlambdavariable"}  # as Spark writes lambdas in its plans
MAP = "map('a', k, 'b', v)"
RECOMPUTED: dict[str, Any] = {
    "a step that groups": grouping_step,
    "a step that negates": negating_step,
    "a map as a group key": f"select to_json(m) m, n from (select {MAP} m, count(*) n from t group by all)",
    "a map as a group key that is not in the answer": f"select count(*) n from t group by {MAP}",
    "an interval as a group key": "select count(*) n from t group by make_dt_interval(k)",
    "an interval in a state": "select k, extract(day from max(make_dt_interval(v))) d from t group by k",
    "a collated group key": "select count(*) n, max(k) m from t group by s collate utf8_lcase",
    "a collated value in a state": "select k, upper(cast(max(s collate utf8_lcase) as string)) m from t group by k",
    "a scalar subquery within explode": "select k, explode(sequence(1, (select max(k) from t))) i from t",
    "mapInPandas": whole_partitions,
    "cogrouped applyInPandas": cogrouped,
}
NEVER = {
    "a map in a view that has no key": f"select {MAP} m from t",
    "a map as a group key of the answer": f"select {MAP} m, count(*) n from t group by all",
    "a VARIANT in a view that has no key": "select parse_json(s) j from t",
    "an interval in the answer": "select k, max(make_dt_interval(v)) i from t group by k",
    "a collated text in the answer": "select k, s collate utf8_lcase s from t",
}


@pytest.fixture
def tables(sandbox: MemorySandbox) -> MemorySandbox:
    rows = [(1, 2, '"a"'), (1, 2, '"A"'), (2, 3, '"b"'), (3, None, None)]
    return sandbox.sources({"t": ("k int, v int, s string", rows), "u": ("k int", [(1,), (4,)])})


@pytest.mark.parametrize("case", every(4, RECOMPUTED))
def test_recomputed_by_auto(tables: MemorySandbox, case: str) -> None:
    with pytest.raises(RefusedError):
        tables.another(RECOMPUTED[case]).explain()
    view = tables.view(RECOMPUTED[case], policy="auto")
    assert checked(view).verdict == "recomputed"
    tables.do(("insert", "t", [(4, 5, '"B"'), (2, 3, '"b"')]), ("delete", "t", "k = 3"))
    assert checked(view).verdict == "recomputed"


@pytest.mark.parametrize("case", NEVER)
def test_no_table_can_store_it(tables: MemorySandbox, case: str) -> None:
    with pytest.raises(RefusedError):
        tables.another(NEVER[case]).explain()
    with pytest.raises(RefusedError, match="even if it is recomputed"):
        tables.another(NEVER[case], policy="auto").explain()


CONVERTED = {
    "a map": f"select array_sort(map_entries({MAP})) m, count(*) n from t group by all",
    "a VARIANT": "select to_json(parse_json(s)) j from t",
    "an interval": "select k, cast(max(make_dt_interval(v)) as string) i from t group by k",
    "an interval, in days": "select k, timestampdiff(day, date '2026-01-01', date_add(date '2026-01-01', v)) n from t",
    "an interval, in parts": "select k, extract(day from make_dt_interval(v)) n from t",
    "a collated text": "select cast(s collate utf8_lcase as string) s from t",
    "a collated group key": "select lower(cast(s collate utf8_lcase as string)) s, count(*) n from t group by all",
    "a geometry": "select st_asbinary(st_geomfromwkb(X'0101000000000000000000F03F0000000000000040')) g from t",
}


def test_the_recommended_conversions_can_be_stored(tables: MemorySandbox) -> None:
    """Protects from advice that does not work, such as a function that Spark does not have."""
    for query in CONVERTED.values():
        checked(tables.another(query, policy="auto"))
    advice = " ".join(CONVERSIONS.values())
    tried = " ".join(CONVERTED.values()).lower()
    assert {word for word in FUNCTION.findall(advice) if word not in tried} == set()


UNDETERMINED = (
    "select rand() r from t",
    "select current_time() d from t",
    "select current_user() u from t",
    "select k from t limit 2",
    "select k from t tablesample (50 percent)",
    "select first_value(v) over (order by k range between 1 preceding and current row) f from t",
    f"select max_by(struct({MAP}), k) m from t",
    f"select mode({MAP}) m from t",
)


@pytest.mark.parametrize("query", UNDETERMINED)
def test_refused_under_every_policy(tables: MemorySandbox, query: str) -> None:
    for policy in ("incremental", "auto", "definition"):
        with pytest.raises(RefusedError):
            tables.another(query, policy=policy).explain()


def test_every_function_that_an_error_recommends_exists(spark: SparkSession) -> None:
    """Protects from fixes that no user can write."""
    known = {str(row[0]) for row in spark.sql("show functions").collect()} | {*api.__all__} | OF_PLANS
    found = dict[str, str]()
    library = PROJECT / "incremental" / "deltafold"
    for path in [*(library / "compiler").rglob("*.py"), *(library / "language").rglob("*.py")]:
        if "mrql" not in path.parts:
            found |= {word: path.name for text in sentences(path) for word in FUNCTION.findall(text)}
    assert {word: place for word, place in found.items() if word not in known} == {}
    assert {"map_entries", "st_asbinary", "pmod", "lower"} <= set(found)


def sentences(path: Path) -> Iterator[str]:
    """The texts in a module that are sentences, or parts of one, but for its docstrings."""
    tree = ast.parse(path.read_text())
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield from [node.value] if " " in node.value or "(" in node.value else []
