"""Scalar Python functions are evaluated by Spark, over changes as over everything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from deltafold.algebra.errors import ChangedQueryError, QueryError, RefusedError, SourceError
from deltafold.api import Policy
from deltafold.spark import catalyst
from tests.language.schemas import read_query
from tests.night import every
from tests.sandbox import MemorySandbox, checked, rows


def test_python_function_in_a_group_by(sandbox: MemorySandbox) -> None:
    """Protects from a scan whose columns Spark hands over and then waits for, and from a key that is not a column."""

    def query(t: DataFrame) -> DataFrame:
        initial = F.udf(lambda name: name[:1] if name else None)
        return t.groupBy(initial("name").alias("first")).agg(F.sum("v").alias("s"), F.max("name").alias("last"))

    sandbox.source("t", "name string, v int", [("ann", 1), ("bob", 2), (None, 3), ("al", 4)])
    view = sandbox.view(query)
    assert view.mode == "incremental"
    checked(view)
    sandbox.sql("insert into {t} values ('bea', 5), ('', 6)")
    checked(view)
    sandbox.sql("delete from {t} where name = 'bob' or name is null")
    checked(view)
    assert rows(view) == [("a", 5, "ann"), ("b", 5, "bea"), (None, 6, "")]


@pytest.mark.parametrize(
    "query",
    [
        lambda t: t.where(t.v > t.count() - 1),
        lambda t: t.where(t.v == (t.agg(F.max("v")).collect()[0][0] or 0)),
        lambda t: t.groupBy("name").pivot("v").count(),
        lambda t: t.limit(1) if t.isEmpty() else t,
    ],
    ids=["count", "collect", "pivot", "isEmpty"],
)
@pytest.mark.parametrize("policy", every(3, ["incremental", "auto", "definition"]))
def test_a_function_that_runs_an_action_is_refused(
    sandbox: MemorySandbox, query: Callable[[DataFrame], DataFrame], policy: Policy
) -> None:
    """What it found when it was asked what the query is would stand in the query for ever."""
    sandbox.source("t", "name string, v int", [("ann", 1), ("bob", 2)])
    with pytest.raises(QueryError, match=r"runs an action .* or name the values of a pivot"):
        sandbox.view(query, policy=policy).refresh()


def test_a_pivot_with_its_values(sandbox: MemorySandbox) -> None:
    sandbox.source("t", "name string, v int", [("ann", 1), ("bob", 2), ("ann", 3)])
    view = sandbox.view(lambda t: t.groupBy("name").pivot("v", [1, 2]).count())
    checked(view)
    sandbox.sql("insert into {t} values ('bob', 2), ('ann', 9)")
    checked(view)
    assert rows(view) == [("ann", 1, None), ("bob", None, 2)]


def test_words_of_a_value_are_no_fault_of_the_disk(sandbox: MemorySandbox) -> None:
    """Protects from an advice about permissions where a row has these words."""
    sandbox.source("t", "s string", [("Permission denied",)])

    def refuse(value: str) -> str:
        raise PermissionError("No space left on device")

    for query in ("select cast(s as int) n from t", lambda t: t.select(F.udf(refuse)("s").alias("s"))):
        with pytest.raises(SourceError):
            sandbox.another(query).refresh()


def test_a_function_without_an_answer(sandbox: MemorySandbox) -> None:
    """Nothing returned: the commonest slip."""
    sandbox.source("t", "name string, v int", [("ann", 1)])
    forgetful: Any = lambda t: None  # noqa: E731
    with pytest.raises(QueryError, match="query function <lambda>: it returned NoneType, not a DataFrame"):
        sandbox.view(forgetful).refresh()


def test_a_function_that_raises(sandbox: MemorySandbox) -> None:
    """Protects from a bare ZeroDivisionError, and from a TypeError within it that is taken for a wrong parameter."""
    sandbox.source("t", "name string, v int", [("ann", 1)])

    def divide(t: DataFrame) -> DataFrame:
        return t.where(t.v > 1 / len(()))

    def add(t: DataFrame) -> DataFrame:
        return t.where(t.v > 1 + cast(Any, "1"))

    for query, error in ((divide, "ZeroDivisionError"), (add, "TypeError")):
        said = (
            rf"query function {query.__name__}: it raised {error} at test_python_functions\.py, line \d+: .*Correct it"
        )
        with pytest.raises(QueryError, match=said):
            sandbox.view(query).refresh()
    for wrong in (lambda x: x, lambda t, x: t):
        with pytest.raises(QueryError, match=r"query function <lambda>: it does not fit its sources \(t\): .*'x'"):
            sandbox.view(cast(Any, wrong)).refresh()


def test_the_name_of_a_computed_key(sandbox: MemorySandbox) -> None:
    """Protects from Catalyst's names in what users read."""
    sandbox.source("t", "name string, v int", [("ann", 1)])
    explained = sandbox.view("select upper(name) n, sum(v) s from t group by upper(name), v % 3").explain()
    assert "lineage key (computed_key, computed_key_2)" in explained and "grouping" not in explained
    with pytest.raises(RefusedError, match=r"^map\(name, v\) cannot be maintained.* compare values of type map"):
        sandbox.view("select map(name, v) m, count(*) n from t group by 1").refresh()
    for shown, node in (("", "collate(name, utf8_lcase)"), ("name collate utf8_lcase as who, ", "column who")):
        with pytest.raises(RefusedError, match="does not store values of type") as raised:
            sandbox.view(f"select {shown}count(*) n from t group by name collate utf8_lcase").refresh()
        assert [refusal.node for refusal in raised.value.refusals] == [node]


def test_what_a_python_function_raises_is_said(sandbox: MemorySandbox) -> None:
    """Protects from advice to run it again, and from a message without the error."""

    def query(t: DataFrame) -> DataFrame:
        def shout(name: str) -> str:
            raise KeyError("boom " + name)

        return t.select(F.udf(shout)("name").alias("loud"))

    sandbox.source("t", "name string", [("ann",)])
    with pytest.raises(
        SourceError, match=r"it raised KeyError: 'boom ann' \(File .*, in shout\)\. Correct the function"
    ):
        sandbox.view(query).refresh()


def test_a_module_imported_within_a_function(
    sandbox: MemorySandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from a state of two meanings: what a function imports while it runs was not part of its digest."""
    monkeypatch.syspath_prepend(str(tmp_path))
    module = tmp_path / "cleaning_of_this_test.py"

    def clean(value: Any) -> Any:
        import cleaning_of_this_test as cleaning  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]

        return cleaning.clean(value)

    def query(t: DataFrame) -> DataFrame:
        return t.select(F.udf(clean)("v").alias("c"))

    module.write_text("def clean(value): return value % 2\n")
    found = read_query(sandbox.spark, query, {"t": catalyst.schema_of("v int")}).functions
    module.write_text("# remainders\ndef clean(value): return value % 2\n")
    assert read_query(sandbox.spark, query, {"t": catalyst.schema_of("v int")}).functions == found
    module.write_text("def clean(value): return value % 3\n")
    assert read_query(sandbox.spark, query, {"t": catalyst.schema_of("v int")}).functions != found


def test_a_registered_function_that_is_registered_anew(sandbox: MemorySandbox) -> None:
    """Protects from a view object that keeps the function of its first refresh, while its batch query runs the new."""
    spark = sandbox.spark
    sandbox.source("t", "k int, v int", [(1, 1), (2, 2)])
    create = "create or replace temporary function plus_of_this_test(x int) returns int return x + {}"
    try:
        spark.udf.register("udf_of_this_test", lambda x: x + 1, "int")
        spark.sql(create.format(1)).collect()
        views = [sandbox.another(f"select k, {name}(v) w from t") for name in ("udf_of_this_test", "plus_of_this_test")]
        for view in views:
            checked(view)
        spark.udf.register("udf_of_this_test", lambda x: x + 100, "int")
        spark.sql(create.format(100)).collect()
        sandbox.sql("insert into {t} values (3, 3)")
        for view in views:
            with pytest.raises(ChangedQueryError):
                view.refresh()
    finally:
        for name in ("udf_of_this_test", "plus_of_this_test"):
            spark.sql(f"drop temporary function if exists {name}").collect()
