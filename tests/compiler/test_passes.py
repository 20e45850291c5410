"""Each pass on real queries: passes/<pass>.sql holds SQL with the plan before and after the pass.

`pytest tests/compiler/test_passes.py --regenerate-golden` rewrites the plans; then read the diff.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.algebra.errors import RefusedError
from deltafold.algebra.plan import Aggregate, Plan, SourceRead
from deltafold.compiler.compile import PASSES, run_passes
from deltafold.compiler.draft import Draft
from deltafold.compiler.explain import draft_lines
from deltafold.compiler.invariants import join_stages
from deltafold.dataflow.lowering import Lowering, Relation
from tests.language.schemas import DECLARED, draft, draft_of, read, schemas

NAMES = [each.__name__ for each in PASSES]
FOLDER = Path(__file__).parent / "passes"
CASE = re.compile(r"-- case: (?P<title>.*)\n(?P<sql>(?:(?!-- ).*\n)*)(?P<rest>(?:(?!-- case: ).*\n)*)")


@dataclass(frozen=True)
class Case:
    """A query, and the recorded lines before and after a pass."""

    title: str
    sql: str
    recorded: str = ""

    @property
    def text(self) -> str:
        return f"-- case: {self.title}\n{self.sql}{self.recorded}"


def cases(name: str) -> list[Case]:
    found = CASE.finditer((FOLDER / f"{name}.sql").read_text())
    return [Case(match["title"], f"{match['sql'].strip()}\n", match["rest"].rstrip("\n") + "\n") for match in found]


def shown(draft: Draft) -> Iterator[str]:
    yield from draft_lines(draft)
    yield from (f"note: {note}" for note in draft.notes)


def around(name: str, before: Draft) -> tuple[list[str], list[str]]:
    """The query before and after one pass; a refusal and the rules of nodes stand for what two passes do."""
    for each in PASSES:
        try:
            after = each(before)
        except RefusedError as error:
            assert each.__name__ == name, f"refused by {each.__name__}: {error}"
            return [*shown(before)], [f"refused: {refusal}" for refusal in error.refusals]
        if each.__name__ == name:
            rules = [f"{'  ' * v.depth}{v.node} | {v.rule}" for v in after.node_rules]
            return [*shown(before)], rules if name == "explain_rules" else [*shown(after)]
        before = after
    raise AssertionError(f"{name} is not a pass")


def commented(head: str, lines: list[str]) -> str:
    return "".join(f"-- {line}\n" for line in (f"{head}:", *(f"  {line}" for line in lines)))


@pytest.mark.parametrize("name", NAMES)
def test_pass(spark: SparkSession, name: str, regenerate: bool) -> None:
    """A pass changes what its rule names and nothing else."""
    found: list[Case] = []
    for case in cases(name):
        before, after = around(name, draft(spark, case.sql, DECLARED))
        found.append(replace(case, recorded=commented("before", before) + commented("after", after)))
    if regenerate:
        (FOLDER / f"{name}.sql").write_text("\n".join(case.text for case in found))
    assert [case.text for case in found] == [case.text for case in cases(name)]


def rows_of(spark: SparkSession, name: str) -> DataFrame:
    """Random rows of a source, with a seed: a few values of each column, so that rows meet, repeat and are NULL."""
    schema, chance = schemas()[name], Random(name)
    values: dict[str, list[object]] = {
        "bigint": [1, 2, None],
        "int": [1, 2, None],
        "double": [0.5, 20.0, None],
        "boolean": [True, False, None],
        "string": ["1", "AA", "open", None],
        "date": [date(2024, 1, 1), date(2024, 2, 1), None],
        "decimal(12,2)": [Decimal("1.50"), Decimal("200.00"), None],
        "array<string>": [["1", "AA"], [], None],
    }
    kinds = [values[field.dataType.simpleString()] for field in schema]
    rows = [tuple(map(chance.choice, kinds)) for _ in range(30)]
    match name:  # as DECLARED says
        case "orders":
            rows = list({row[0]: row for row in rows if row[0] is not None}.values())
        case "lines":
            rows = list({row[:2]: row for row in rows if None not in row[:2]}.values())
        case _:
            rows += rows[:5]
    return spark.createDataFrame(rows, schema)


class Evaluation:
    """The definition of a plan over rows."""

    def __init__(self, spark: SparkSession, attributes: Mapping[str, Any]) -> None:
        self._spark, self._lowering = spark, Lowering(spark, attributes)

    def bag(self, draft: Draft) -> Counter[str]:
        frame = self._lowering.frame(self._relation(join_stages(draft)), draft.outputs)
        return Counter(map(str, frame.collect()))

    def _relation(self, plan: Plan) -> Relation:
        if isinstance(plan, SourceRead):
            return self._lowering.leaf(rows_of(self._spark, plan.relation), plan.fields, weighted=False)
        children = [self._relation(child) for child in plan.children]
        if isinstance(plan, Aggregate) and any(call.handle is None for call in plan.calls):
            return self._aggregate(plan, children[0])
        return self._lowering.rows(plan, children)

    def _aggregate(self, plan: Aggregate, child: Relation) -> Relation:
        """Return a group-by whose aggregates have no expression of Spark's, by the names of their functions."""
        frame = self._lowering.frame(child, [(column, column.name) for column in plan.child.columns])
        names = {"average": "avg"}
        calls = [
            F.expr(f"{names.get(call.function, call.function)}({', '.join(column.name for column in call.arguments)})")
            .cast(call.column.type)
            .alias(call.column.name)
            for call in plan.calls
        ]
        grouped = frame.groupBy(*(key.name for key in plan.keys)).agg(*calls)
        return self._lowering.leaf(grouped, [(column.name, column) for column in plan.columns], weighted=False)


def evaluated_cases() -> list[Case]:
    """The cases of all passes with a plan that can be evaluated: no loop, nothing that is refused."""
    return [
        case for name in NAMES for case in cases(name) if not re.search(r"recursive|after:\n--   refused", case.text)
    ]


@pytest.mark.parametrize("case", evaluated_cases(), ids=lambda case: case.title)
def test_no_pass_changes_the_answer(spark: SparkSession, case: Case) -> None:
    """Protects from a pass that loses, doubles or changes rows: the query has the same bag before and after it."""
    query = read(spark, case.sql)
    first = draft_of(spark, query, DECLARED)
    evaluation, passed = Evaluation(spark, query.attributes), 0
    expected, last = evaluation.bag(first), join_stages(first)
    for name, after in run_passes(first, checked=True):
        if join_stages(after) != last:
            last, passed = join_stages(after), passed + 1
            assert evaluation.bag(after) == expected, name
    assert passed or "distinct" not in case.sql


def test_every_pass_has_cases() -> None:
    """A new pass needs a file, and a file needs its pass."""
    assert {path.stem for path in FOLDER.glob("*.sql")} == {*NAMES}
    assert all(len(cases(name)) >= 2 for name in NAMES)
