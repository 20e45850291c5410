"""Explain of queries with loops, compared as whole texts: places, side inputs, rules and states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.errors import QueryError, RefusedError
from deltafold.algebra.plan import Given, Project, StateRead
from deltafold.algebra.program import Program
from deltafold.algebra.traversal import walk
from deltafold.api import fixpoint, iterate
from deltafold.compiler.compile import compile_query
from deltafold.compiler.draft import Draft
from deltafold.compiler.explain import explain_program
from deltafold.spark.catalyst import schema_of
from tests.language.schemas import read_query
from tests.loops import queries

GOLDEN = Path(__file__).with_name("golden")
SCHEMAS = {
    "edges": "src int, dst int, weight int", "starts": "node int", "nodes": "node int",
    "points": "id int, x double, y double", "seeds": "x double, y double",
    "centers": "name string, x double, y double", "v": "i int, j int, x double", "w0": "i int, j int, x double",
    "h0": "i int, j int, x double",
}  # fmt: skip
QUERIES = (
    queries.closure, queries.doubling_closure, queries.components, queries.distances, queries.parity, queries.ranks,
    queries.ranks_after, queries.clusters, queries.factors, queries.assigned,
)  # fmt: skip


def compiled(spark: SparkSession, query: str | Callable[..., DataFrame]) -> Program:
    found = read_query(spark, query, {name: schema_of(ddl) for name, ddl in SCHEMAS.items()})
    return compile_query(
        Draft(plan=found.plan, outputs=found.outputs, fingerprint=found.fingerprint, refusals=found.refusals)
    )


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.__name__)
def test_explained(spark: SparkSession, query: Callable[..., DataFrame], regenerate: bool) -> None:
    """Protects fingerprint, stages and rules from unintended changes."""
    found = explain_program(query.__name__, compiled(spark, query)) + "\n"
    expected = GOLDEN / f"{query.__name__}.txt"
    if regenerate:
        expected.write_text(found)
    assert found == expected.read_text(), "pytest tests/loops --regenerate-golden writes the new text"


def test_every_text_has_its_query() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {query.__name__ for query in QUERIES}


@pytest.mark.parametrize("query", QUERIES[:-1], ids=lambda query: query.__name__)
def test_stages_read_what_is_before_them(spark: SparkSession, query: Callable[..., DataFrame]) -> None:
    """A step reads what it is given alone, and a stage only stages that are committed before it."""
    program, known = compiled(spark, query), set[str]()
    for stage in program.stages:
        if stage in program.states:
            plans = (stage.input,)  # type: ignore[union-attr]
        else:
            (loop,) = (loop for loop in program.loops if loop.name == stage.name)
            plans, given = loop.inputs, {loop.name, *(side.given.name for side in loop.sides)}
            leaves = [node for node in walk(loop.step) if not node.children]
            assert all(isinstance(leaf, Given) and leaf.name in given for leaf in leaves)
        assert {node.state for plan in plans for node in walk(plan) if isinstance(node, StateRead)} <= known
        known.add(stage.name)
    assert program.loops


def test_a_loop_that_is_read_twice_is_one_stage(spark: SparkSession) -> None:
    """Two uses of a loop are maintained once, in SQL and in Python."""

    def twice(edges: DataFrame) -> DataFrame:
        found = queries.closure(edges)
        return found.alias("a").join(found.alias("b"), F.col("a.dst") == F.col("b.src")).select("a.src", "b.dst")

    text = (
        "with recursive r(a, b) as (select src, dst from edges {} select r.a, e.dst from r join edges e on r.b = e.src)"
        " select x.a, y.b from r x join r y on x.b = y.a"
    )
    for query in (twice, text.format("union"), text.format("union all")):
        program = compiled(spark, query)
        assert [loop.name for loop in program.loops] == ["loop_1"]
        assert sum(isinstance(node, StateRead) for node in walk(program.answer)) == 2


def test_sql_and_python_are_maintained_alike(spark: SparkSession) -> None:
    """UNION is read as fixpoint; a semi join and a DISTINCT in its step only count duplicates."""
    text = "with recursive r(s, d) as (select src, dst from edges union select {} from r {}) select s, d from r"
    joined = compiled(spark, text.format("distinct r.s, e.dst", "join edges e on r.d = e.src")).loops[0]
    plain = compiled(spark, text.format("r.s, e.dst", "join edges e on r.d = e.src")).loops[0]
    assert joined.kind == plain.kind
    assert [type(node) for node in walk(joined.step) if not isinstance(node, Project)] == [
        type(node) for node in walk(plain.step) if not isinstance(node, Project)
    ]


REFUSED: dict[str, tuple[Callable[..., DataFrame], str, str]] = {
    "a group-by of the loop": (
        lambda edges: fixpoint(
            edges.select("src"), lambda r: r.groupBy("src").agg(F.max("src").alias("most")).select("most")
        ),
        "group by", "no least answer",
    ),
    "the loop on the right of an anti join": (
        lambda edges: fixpoint(
            edges.select("src"), lambda r: edges.select("dst").join(r, F.col("dst") == r["src"], "anti")
        ),
        "anti join", "no least answer",
    ),
    "a step that reads nothing of the loop": (
        lambda edges: fixpoint(edges.select("src"), lambda r: edges.select("dst")), "loop_1", "does not read",
    ),
    "a loop in a step that reads the rows around it": (
        lambda edges: fixpoint(edges.select("src"), lambda r: fixpoint(r, lambda q: q)),
        "loop_2", "within the step",
    ),
    "a column without a distance": (
        lambda points: iterate(
            points.select("id", "x", F.lit("a").alias("name")), lambda p: p.select("id", "x", F.upper("name")),
            key="id", residual=0.1,
        ), "loop_1", "has no distance",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(spark: SparkSession, case: str) -> None:
    """What has no exact rule is refused with node, reason and way out."""
    query, node, because = REFUSED[case]
    with pytest.raises(RefusedError) as refused:
        compiled(spark, query)
    assert refused.value.node.startswith(node) and because in refused.value.because
    assert refused.value.instead


def test_a_carried_column_follows_the_start(spark: SparkSession) -> None:
    """What a step takes over from the loop's own row is not compared, and not taken from the stored answer."""

    def query(points: DataFrame) -> DataFrame:
        start = points.select("id", "x", "y", F.col("id").cast("string").alias("name"))

        def step(known: DataFrame) -> DataFrame:
            return known.where("id > 0").select("id", (F.col("x") / 2).alias("x"), "y", "name")

        return iterate(start, step, key="id", residual=0.1)

    (loop,) = compiled(spark, query).loops
    assert [column.name for column in loop.warm] == ["x"]
    assert [column.name for column in loop.carried] == ["y", "name"]


def test_a_step_that_runs_an_action(spark: SparkSession) -> None:
    """What it counts would be a constant of the query for ever."""

    def query(edges: DataFrame) -> DataFrame:
        return fixpoint(edges.select("src"), lambda r: r.where(F.lit(r.count() > 0)))

    with pytest.raises(QueryError, match="runs an action"):
        compiled(spark, query)


def test_a_step_that_reads_what_is_not_declared(spark: SparkSession) -> None:
    """A change of it would never be seen."""
    other = spark.createDataFrame([(1,)], "src int")
    with pytest.raises(QueryError, match="not a declared source"):
        compiled(spark, lambda edges: fixpoint(edges.select("src"), lambda r: r.union(other)))


def test_fingerprints_see_the_step(spark: SparkSession) -> None:
    """A changed step, limit or tolerance is another query."""

    def query(factor: float, **options: Any) -> Callable[..., DataFrame]:
        return lambda nodes: iterate(
            nodes.select("node", F.lit(1.0).alias("x")), lambda r: r.select("node", F.col("x") * factor), key="node",
            **options,
        )  # fmt: skip

    calls = [(0.5, {"residual": 0.1}), (0.4, {"residual": 0.1}), (0.5, {"residual": 0.2}), (0.5, {"times": 3})]
    found = [compiled(spark, query(factor, **options)).fingerprint for factor, options in calls]
    assert len(set(found)) == len(calls)
    assert compiled(spark, query(0.5, residual=0.1)).fingerprint == found[0]
