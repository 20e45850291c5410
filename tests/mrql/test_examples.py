"""Every example three ways: the reference, the translated program in batch, and a view after random histories."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Row as SparkRow

from deltafold.algebra.errors import EvaluationError
from deltafold.api import Mrql
from deltafold.language.evaluation import evaluate
from deltafold.spark.catalyst import isolate_session
from tests.local_rows import local
from tests.mrql.examples import ALL, ARGUMENTS, ONE_STATE, TABLES
from tests.mrql.oracle.comparing import difference
from tests.mrql.oracle.reference import Reference
from tests.mrql.oracle.values import EvaluationError as OracleError
from tests.mrql.oracle.values import Row
from tests.night import every, sampled
from tests.sandbox import MemorySandbox, checked, confirm

SAMPLE = 64  # one example in so many is a view in `make test`, and every third of the papers'; the others at night

BATCH_BY_DAY = {*[*ALL][::4], *(title for title in ALL if title.startswith("papers"))}
ELSEWHERE = ("repeat: k-means",)  # histories of the same loop: tests/loops/clusters


def program(text: str) -> Mrql:
    return Mrql(text, args=ARGUMENTS)


def plain_row(row: Any) -> Any:
    """A row of Spark as the reference has rows of sources."""
    if isinstance(row, SparkRow):
        return Row({name: plain_row(value) for name, value in row.asDict().items()})
    return [plain_row(each) for each in row] if isinstance(row, list) else row


@pytest.fixture(scope="module")
def frames(spark: SparkSession) -> dict[str, DataFrame]:
    return {name: local(spark, rows, schema) for name, (schema, rows) in TABLES.items()}


@pytest.fixture(scope="module")
def rows(frames: dict[str, DataFrame]) -> dict[str, list[Any]]:
    return {name: [plain_row(row) for row in frame.collect()] for name, frame in frames.items()}


@pytest.mark.parametrize("title", sampled(ALL, BATCH_BY_DAY.__contains__))
def test_batch(spark: SparkSession, frames: dict[str, DataFrame], rows: dict[str, list[Any]], title: str) -> None:
    query = program(ALL[title])
    found = evaluate(isolate_session(spark), query, list(frames), frames.get)
    assert not difference(Reference(rows, ARGUMENTS).run(query.items), found.collect())


@pytest.mark.parametrize("part", ["[2:1]", "[-1:1]", "[n.id:0]", "[0 - n.id:n.id]"])
def test_wrong_ends_of_a_part_are_errors(
    spark: SparkSession, frames: dict[str, DataFrame], rows: dict[str, list[Any]], part: str
) -> None:
    query = program(f"select n.tags{part} from n in N;")
    with pytest.raises(OracleError):
        Reference(rows).run(query.items)
    with pytest.raises(SparkRuntimeException, match="the first index of a part of a list is negative, or greater"):
        evaluate(isolate_session(spark), query, list(frames), frames.get).collect()


def test_an_error_advises_what_mrql_has(sandbox: MemorySandbox) -> None:
    """Not functions of SQL; the advice is followed."""
    sandbox.source("L", "id int, tags array<string>", [(1, ["a", "b"])])
    view = sandbox.view(Mrql("select l.tags[1] from l in L;"))
    checked(view)
    sandbox.insert("L", "id int, tags array<string>", [(2, ["c"])])
    advice = r"the index is out of the range of its list\. .* or guard the expression \(if … then … else …\)\.$"
    with pytest.raises(EvaluationError, match=advice):
        view.refresh()
    guarded = sandbox.another(Mrql('select if count(l.tags) > 1 then l.tags[1] else "" from l in L;'))
    guarded.refresh()
    assert sorted(map(tuple, guarded.answer().collect())) == [("",), ("b",)]


BY_DAY = {*[*ALL][::SAMPLE], *[title for title in ALL if title.startswith("papers")][::3]} - {*ELSEWHERE}


@pytest.mark.parametrize("title", sampled(ALL, BY_DAY.__contains__))
def test_views(sandbox: MemorySandbox, title: str) -> None:
    query = program(ALL[title])
    read = [name for name in TABLES if name.lower() in query.names]
    for name in read:
        sandbox.source(name, *TABLES[name])
    view = sandbox.view(query)
    if title in ONE_STATE:
        assert len(view.description().states) == 1 and "collect_list" not in view.explain()
    view.refresh()
    confirm(view)
    chance = random.Random(title)
    for _ in range(2):
        for name in read:
            change(sandbox, name, chance)
        view.refresh()
        confirm(view)
    tables = {name: [plain_row(row) for row in sandbox.read(f"select * from {{{name}}}").collect()] for name in read}
    assert not difference(Reference(tables, ARGUMENTS).run(query.items), view.answer().collect())


def change(sandbox: MemorySandbox, name: str, chance: random.Random) -> None:
    """Insert rows that there were or are, and delete some."""
    column = TABLES[name][0].split()[0]
    rows = TABLES[name][1]
    sandbox.do(("insert", name, chance.sample(rows, min(2, len(rows)))))
    value = chance.choice(rows)[0]
    sandbox.do(("delete", name, f"{column} <=> {value!r}" if value is not None else f"{column} is null"))


SQL = {
    "papers: averages by key": "select x, avg(y) as mean from S group by x",
    "papers: join and average": "select p.X, avg(q.Z) as mean from P p join Q q on p.Y = q.Y group by p.X",
    "papers: matrix product": "select m.i, w.j, sum(m.v * w.v) as v from M m join W w on m.j = w.i group by m.i, w.j",
}
CHANGED = {"papers: averages by key": "S", "papers: join and average": "Q", "papers: matrix product": "W"}


@pytest.mark.parametrize("title", every(2, SQL))
def test_the_papers_programs_cost_what_their_sql_costs(sandbox: MemorySandbox, title: str) -> None:
    """Protects from a translation that keeps more than it has to: the states have the columns of those of the SQL."""
    for name, (schema, rows) in TABLES.items():
        sandbox.source(name, schema, rows)
    views = [sandbox.another(text) for text in (program(ALL[title]), SQL[title])]
    shapes = [[(len(s.keys), len(s.columns)) for s in view.description().states] for view in views]
    assert shapes[0] == shapes[1] and len(shapes[0]) == 1
    assert len({view.refresh().jobs for view in views}) == 1
    sandbox.do(("copy", CHANGED[title], "true"))
    assert len({view.refresh().jobs for view in views}) == 1
