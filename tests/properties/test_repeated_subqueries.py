"""Random queries that read one subquery several times, whole or in part: they equal the batch query at each refresh.

What is compared is a query whose group-bys share states, so a wrong idea of equality, or of columns, shows in rows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.properties.histories import Step, histories
from tests.properties.queries import LAYERS, grouped
from tests.properties.relation import EVENTS, Draw, Relation, condition
from tests.properties.test_random_histories import Paths, begun, failures, paths
from tests.reading import reading
from tests.sandbox import MemorySandbox

READERS = (
    "select {columns}, b.{x} as b_x from ({all}) a join ({one}) b on a.{x} <=> b.{x}",
    "select {columns}, b.{x} as b_x from ({all}) a left join ({one}) b on a.{x} = b.{x}",
    "select {columns} from ({all}) a where a.{x} = (select max({x}) from ({one}))",
    "select {columns} from ({all}) a where exists (select 1 from ({one}) b where b.{x} <> a.{x})",
    "select {columns} from ({all}) a where a.{x} not in (select {x} from ({one}) where {x} is not null)",
    "select {x} from ({one}) union all select {x} from ({one}) where {where}",
)


def together(draw: Draw, relation: Relation) -> str:
    """Two readers of a subquery in one query, one of which needs some of its columns."""
    columns = ", ".join(f"a.{name} as a_{name}" for name, type_ in relation.columns.items() if type_ != "array")
    if not relation.exact:
        return f"select {columns} from ({relation.sql}) a cross join (select count(*) from ({relation.sql}))"
    name = draw(st.sampled_from(relation.exact))
    narrow = Relation(f"select {name} from ({relation.sql})", {name: relation.columns[name]})
    parts = {"columns": columns, "x": name, "one": narrow.sql, "where": condition(draw, narrow)}
    return draw(st.sampled_from(READERS)).format(all=relation.sql, **parts)


@st.composite
def repeated(draw: Draw) -> str:
    """A query over `events` and `dim` that reads a group-by of one or two levels twice."""
    relation = Relation(f"select {', '.join(EVENTS)} from events", EVENTS)
    for operator in draw(st.lists(st.sampled_from(LAYERS), max_size=2)):
        relation = operator(draw, relation)
    for depth in range(draw(st.sampled_from([1, 1, 2]))):
        relation = grouped(draw, relation, depth)
    return together(draw, relation)


def test_repeated_subqueries_equal_their_queries(spark: SparkSession) -> None:
    """Any subquery, any history, any refreshes; and most of them do share states."""
    shared: list[bool] = []

    @settings(max_examples=max(2, settings().max_examples // 6))
    @given(repeated(), histories, paths)
    def run(sql: str, cuts: list[list[Step]], way: Paths) -> None:
        with tempfile.TemporaryDirectory() as folder, reading(way.reads):
            sandbox = MemorySandbox(spark, Path(folder))
            history, view = begun(sandbox, way), sandbox.view(sql)
            shared.append(" is shared by " in view.explain())
            for number in range(len(cuts) + 1):
                wrong = failures(view, cuts[:number], number == len(cuts))
                assert not wrong, f"{wrong}\n{way}"
                for step in cuts[number] if number < len(cuts) else []:
                    history.apply(step)

    run()
    assert sum(shared) > len(shared) / 2, f"{sum(shared)} of {len(shared)} queries share a state"
