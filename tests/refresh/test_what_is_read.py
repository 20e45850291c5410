"""A view costs what its query reads: the tests count analyses, look-ups of schemas and looks at Delta's logs."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from deltafold import compilation
from deltafold.algebra.errors import QueryError, SourceError
from deltafold.api import Delta, Files, View, Warehouse
from deltafold.lake.delta_table import DeltaTable
from deltafold.language.analysis import Analysis
from deltafold.refresh.sources.source_catalog import Declared
from deltafold.resolution import Resolver
from tests.night import night
from tests.sandbox import DeltaSandbox, checked

BY_K = "select k, sum(v) v from {} group by k"
MANY = 40


class Calls:
    """How often queries were analysed and translated, which sources were looked up, which logs were looked at."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.analysed, self.translated, self.logs = 0, 0, 0
        self.looked_up = Counter[str]()
        analyse, translated, schema, log = (
            compilation.analyse,
            Analysis.translate,
            Declared.schema,
            DeltaTable.log.fget,
        )
        assert log is not None

        def analysing(*given: Any) -> Any:
            self.analysed += 1
            return analyse(*given)

        def translating(*given: Any) -> Any:
            self.translated += 1
            return translated(*given)

        def looking_up(declared: Declared, name: str) -> Any:
            self.looked_up[name] += 1
            return schema(declared, name)

        def looking_at(table: DeltaTable) -> Any:
            self.logs += 1
            return log(table)

        patch.setattr(compilation, "analyse", analysing)
        patch.setattr(Analysis, "translate", translating)
        patch.setattr(Declared, "schema", looking_up)
        patch.setattr(DeltaTable, "log", property(looking_at))

    def of(self, work: Any) -> tuple[int, int, dict[str, int], int]:
        """What some work takes: analyses, translations, look-ups by source, looks at logs."""
        self.analysed = self.translated = self.logs = 0
        self.looked_up.clear()
        work()
        return self.analysed, self.translated, dict(self.looked_up), self.logs


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


def warehouse_of(spark: SparkSession, folder: Path, sources: int) -> Warehouse:
    """Sources s0, s1, … of input files, whose schemas take no Delta table."""
    warehouse = Warehouse(spark, folder / "warehouse")
    for i in range(sources):
        warehouse.source(f"s{i}", Files(str(folder / "drop"), "csv", "k int, v int"))
    return warehouse


def declared(warehouse: Warehouse, name: str, query: Any) -> View:
    """A view that is a source of those after it."""
    view = warehouse.view(name, query)
    warehouse.source(name, view)
    return view


def test_a_view_among_many(spark: SparkSession, tmp_path: Path, calls: Calls) -> None:
    """Forty views and sources that a query does not read cost it nothing; of a chain each link is analysed once."""
    warehouse = warehouse_of(spark, tmp_path, MANY)
    for i in range(MANY):
        declared(warehouse, f"v{i}", BY_K.format(f"s{i}"))
    for i in range(5):
        declared(warehouse, f"c{i}", BY_K.format(f"c{i - 1}" if i else "s0"))
    top = warehouse.view("top", "with s5 as (select * from c4) select count(*) n from s5 join v3 using (k)")
    # the views below are analysed, which gives their columns; the query alone is translated
    assert calls.of(top.explain) == (7, 1, {"s0": 1, "s3": 1}, 0)
    assert calls.of(top.explain) == (0, 0, {"s0": 1, "s3": 1}, 0)
    assert calls.of(warehouse.view("next", "select k from c4").explain) == (1, 1, {"s0": 1}, 0)
    assert calls.of(
        warehouse.view("of_a_function", lambda s1, **rest: s1.join(rest["v2"], "k").select("k")).explain
    ) == (
        *(2, 1, {"s1": 1, "s2": 1}),
        1,  # which version s1 has
    )
    assert calls.of(top.status) == (0, 0, {}, 0)


def test_a_diamond_costs_its_views(spark: SparkSession, tmp_path: Path, calls: Calls) -> None:
    """Four diamonds one above the other have sixteen ways through them, and thirteen views."""
    warehouse = warehouse_of(spark, tmp_path, 1)
    top = declared(warehouse, "d0", BY_K.format("s0"))
    for i in range(4):
        for side in ("left", "right"):
            declared(warehouse, f"{side}{i}", BY_K.format(f"d{i}"))
        top = declared(warehouse, f"d{i + 1}", f"select k, l.v - r.v v from left{i} l join right{i} r using (k)")
    assert calls.of(top.explain) == (13, 1, {"s0": 1}, 0)
    # what a refresh looks at before it runs
    assert calls.of(lambda: Resolver().view(top).refresh) == (0, 12, {"s0": 1}, 0)
    inputs = Resolver().view(top).inputs
    assert calls.of(lambda: inputs.places) == (0, 0, {}, 1)
    assert (len(inputs.bases), len(inputs.chain)) == (2, 12)  # of the paths below each side, one


def test_what_is_not_read_may_be_wrong(delta: DeltaSandbox) -> None:
    """A source without a table, with a schema or a key that cannot be, or a view that Spark cannot analyse."""
    delta.source("t", "k int, v int", [(1, 1)])
    delta.declare("missing")
    delta.warehouse.source("keyless", Delta(delta.path("t"), primary_key=("nothing",)))
    delta.warehouse.source("wordless", Files(delta.path("drop"), "csv", "k banana"))
    delta.warehouse.source("broken", delta.view("select nothing from t", "broken"))
    for name, query in (("text", "select k, v from t"), ("function", lambda **tables: tables["t"].select("k", "v"))):
        view = delta.view(query, name)
        assert view.explain()
        checked(view)
        assert view.verify().ok
        assert view.status().current
    for read, error, says in (
        ("broken", QueryError, "Spark cannot analyse the query at line 1, column 8: .*nothing"),
        ("kayless", QueryError, "at line 1, column 15: it reads kayless, which is not a declared .* mean `keyless`"),
        ("missing", SourceError, "source missing has no data"),
        ("t join missing using (k)", SourceError, "source missing has no data"),
        ("keyless", SourceError, "unknown column 'nothing' in its primary key"),
        ("wordless", SourceError, "invalid schema"),
    ):
        with pytest.raises(error, match=says):
            delta.view(f"select * from {read}").explain()


def test_changes_are_noticed(delta: DeltaSandbox, calls: Calls) -> None:
    """A compilation is used again only while the sources it looked up and the settings are as they were."""
    delta.source("t", "k int", [(1,)])
    delta.source("u", "k int", [(1,)])
    low = delta.view("select * from t", "low")
    delta.warehouse.source("low", low)
    top = delta.view("select * from low", "top")
    assert "k" in top.explain()
    for change, analysed in (
        ("alter table {u} add columns (v int)", 0),
        ("insert into {t} values (2)", 0),
        ("alter table {t} add columns (v int)", 2),
    ):
        delta.sql(change)
        assert calls.of(top.explain) == (analysed, analysed and 1, {"t": 1}, 2), change
    assert [column.name for column in top.columns] == ["k", "v"]
    delta.spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        assert calls.of(top.explain)[0] == 2
    finally:
        delta.spark.conf.set("spark.sql.ansi.enabled", "true")


@night
def test_a_level_of_a_chain_costs_the_same(delta: DeltaSandbox, calls: Calls) -> None:
    """A refresh looks at each level as often as at the one below it; the lowest has none below it."""
    delta.source("t", "k int, v int", [(1, 1)])
    views = [declared(delta.warehouse, f"c{i}", BY_K.format(f"c{i - 1}" if i else "t")) for i in range(4)]
    views[-1].refresh()
    costs = [calls.of(view.refresh) for view in views]
    assert [cost[:3] for cost in costs] == [(0, 0, {"t": 1})] * 4
    more = [after[3] - before[3] for before, after in pairwise(costs)]
    assert len(set(more[1:])) == 1, costs
    delta.sql("insert into {t} values (1, 2), (2, 2)")
    views[-1].refresh()
    assert views[-1].verify().ok
    fresh = Warehouse(delta.spark, delta.folder / "warehouse")
    fresh.source("t", Delta(delta.path("t")))
    again = [declared(fresh, f"c{i}", BY_K.format(f"c{i - 1}" if i else "t")) for i in range(4)]
    assert calls.of(again[-1].refresh)[:3] == (4, 4, {"t": 1})
