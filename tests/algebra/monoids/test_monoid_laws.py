"""The laws of every monoid, over random bags, with Spark evaluating the very SQL that a refresh evaluates.

zero · associativity and commutativity of ⊗ · inverse · h(A ∪ B) = h(A) ⊗ h(B) · answer(h(A)) = Spark's aggregate of A.
All cases of a type are one DataFrame grouped by case and bag, so a type costs a few Spark jobs.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from deltafold.algebra.monoids.kinds import Group
from deltafold.algebra.plan import Plan, SourceRead
from deltafold.algebra.program import WEIGHT, InPlace, Slot, State
from deltafold.compiler.compile import compile_query
from deltafold.compiler.draft import Draft
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.dataflow.partial_aggregate import aggregate_change
from deltafold.dataflow.state_schema import Layout
from deltafold.language.evaluation import evaluate
from deltafold.language.query import Query
from deltafold.spark import catalyst
from tests.algebra.monoids.bags import KINDS, MOMENTS, Kind, bags
from tests.language.schemas import read_query
from tests.night import every, sampled

BY_NIGHT, SEED = 30, 7
CASES = 8  # by day
# by day; the values of other types are made and added as those of one of these
BY_DAY = ("bigint", "decimal(38,18)", "double", "double, special", "double, moments", "string", "boolean", "array<int>")
MADE = {"A": "A", "B": "B", "C": "C", "AB": "AB", "BC": "BC", "ABC": "ABC", "minus A": "A", "CBA": "CBA"}
NUMBERED = {name: number for number, name in enumerate(MADE)}


@dataclass(frozen=True)
class Laboratory:
    """One type's query, its state and layout, and the random bags."""

    spark: SparkSession
    kind: Kind
    query: Query
    state: State
    answer: InPlace
    rows: dict[tuple[int, str], list[tuple[Any, ...]]]
    cases: int

    @property
    def layout(self) -> Layout:
        return Layout(self.state, self.answer, 1)

    @property
    def lowering(self) -> Lowering:
        return Lowering(self.spark, self.query.attributes)

    def frame(self, weighted: bool) -> DataFrame:
        """Every bag of every case as rows; the group number encodes case and bag."""
        schema = f"{self.kind.schema}, {WEIGHT} bigint"
        made = [
            (case * len(MADE) + NUMBERED[name], *row, -1 if name == "minus A" else 1)
            for case in range(self.cases)
            for name, content in MADE.items()
            for bag in content
            for row in self.rows[case, bag]
        ]
        frame = self.spark.createDataFrame(made, schema)
        return frame if weighted else frame.where(f"{WEIGHT} > 0").drop(WEIGHT)

    def homomorphic(self, frame: DataFrame, layout: Layout | None = None) -> DataFrame:
        """h as a refresh computes it."""
        layout = layout or self.layout
        state = layout.state
        lowering = self.lowering
        relation = lowered(lowering, state.input, frame)
        rows = lowering.frame(relation, [(column, column.name) for column in state.reads])
        return aggregate_change(layout, rows, lowering)


def lowered(lowering: Lowering, plan: Plan, frame: DataFrame) -> Relation:
    if isinstance(plan, SourceRead):
        return lowering.leaf(frame, plan.fields, weighted=WEIGHT in frame.columns)
    (child,) = plan.children
    return lowering.linear(plan, lowered(lowering, child, frame))


@pytest.fixture(params=sampled(KINDS, BY_DAY.__contains__), scope="module")
def laboratory(request: pytest.FixtureRequest, spark: SparkSession, long: bool) -> Laboratory:
    kind = KINDS[request.param]
    query = read_query(spark, kind.query, {"t": schema(spark, kind)})
    program = compile_query(Draft(plan=query.plan, outputs=query.outputs))
    assert not query.forbidden and len(program.states) == 1 and isinstance(program.publication, InPlace)
    cases = BY_NIGHT if long else CASES
    return Laboratory(spark, kind, query, program.states[0], program.publication, bags(kind, cases, SEED), cases)


def schema(spark: SparkSession, kind: Kind) -> StructType:
    return spark.createDataFrame([], kind.schema).schema


class Wide:
    """For each case one row with h of every bag side by side, and SQL over them."""

    def __init__(self, laboratory: Laboratory) -> None:
        self.laboratory, self.layout = laboratory, laboratory.layout
        h = laboratory.homomorphic(laboratory.frame(weighted=True)).localCheckpoint()
        key = self.layout.keys[0]
        sides = [laboratory.spark.range(laboratory.cases).select(F.col("id").cast("int").alias("case"))]
        for name, number in NUMBERED.items():
            one = h.where(f"{key} % {len(MADE)} = {number}")
            columns = [F.col(f"`{stored}`").alias(f"{name}.{stored}") for _, _, stored in self.layout.parts]
            sides.append(one.select(F.expr(f"{key} div {len(MADE)}").cast("int").alias("case"), *columns))
        self.columns: dict[str, str] = {}
        self.frame = reduce(lambda left, right: left.join(right, "case", "left"), sides)

    def bag(self, name: str, slot: Slot) -> dict[str, str]:
        """SQL of each part of a bag; an empty bag is zero."""
        return {
            p.name: f"CAST(coalesce(`{name}.{slot.stored_name(p)}`, {p.zero}) AS {p.type})"
            for p in slot.accumulator.components
        }

    def stored(self, name: str, slot: Slot, value: dict[str, str]) -> dict[str, str]:
        """Record the SQL of a bag to be evaluated by `store`, and return SQL that reads it: merges do not nest."""
        for part in slot.accumulator.components:
            self.columns[f"{name}.{slot.stored_name(part)}"] = value[part.name]
        return self.bag(name, slot)

    def store(self) -> None:
        """Evaluate what `stored` recorded."""
        columns = [F.expr(sql).alias(name) for name, sql in self.columns.items()]
        self.frame, self.columns = self.frame.select("*", *columns).localCheckpoint(), {}

    def merged(self, left: dict[str, str], right: dict[str, str], slot: Slot) -> dict[str, str]:
        """⊗ as the merge computes it."""
        parts = slot.accumulator.components
        return {p.name: f"CAST({p.merge.format(t=left, u=right)} AS {p.type})" for p in parts}

    def values(self, name: str, slot: Slot, value: dict[str, str]) -> str:
        """Record the SQL of a value under a name, and return the name."""
        for part, sql in value.items():
            self.columns[f"{name}/{slot.call.column.name}/{part}"] = sql
        return name


def test_laws(laboratory: Laboratory) -> None:
    """A law that fails for one value of one type makes views wrong without any error.

    Changes may be cut into any refreshes: (A ⊗ B) ⊗ C and A ⊗ (B ⊗ C) are h(A ∪ B ∪ C).
    """
    wide = Wide(laboratory)
    equal: list[tuple[str, str, Slot]] = []
    pairs: list[tuple[dict[str, str], dict[str, str]]] = []
    for slot in laboratory.state.slots:
        a, b, c = (wide.bag(name, slot) for name in "ABC")
        pairs.append(
            (wide.stored("A+B", slot, wide.merged(a, b, slot)), wide.stored("B+C", slot, wide.merged(b, c, slot)))
        )
    wide.store()
    for slot, (ab, bc) in zip(laboratory.state.slots, pairs, strict=True):
        a, b, c = (wide.bag(name, slot) for name in "ABC")
        zero = {part.name: f"CAST({part.zero} AS {part.type})" for part in slot.accumulator.components}
        abc, whole = wide.merged(ab, c, slot), wide.bag("ABC", slot)
        laws = {
            "zero on the right": (wide.merged(a, zero, slot), a),
            "zero on the left": (wide.merged(zero, a, slot), a),
            "commutative": (wide.merged(b, a, slot), ab),
            "associative": (abc, wide.merged(a, bc, slot)),
            "homomorphism": (wide.bag("AB", slot), ab),
            "homomorphism of three": (whole, abc),
        }
        if isinstance(slot.accumulator, Group):
            laws["inverse"] = (wide.merged(a, wide.bag("minus A", slot), slot), zero)
        for name, (one, other) in laws.items():
            equal.append((wide.values(f"{name} 1", slot, one), wide.values(f"{name} 2", slot, other), slot))
    found = evaluated(wide)
    for one, other, slot in equal:
        check(laboratory, found, slot, one, other)


def evaluated(wide: Wide) -> list[Row]:
    columns = [F.expr(sql).alias(name) for name, sql in wide.columns.items()]
    return wide.frame.select("case", *columns).collect()


def check(laboratory: Laboratory, found: list[Row], slot: Slot, one: str, other: str) -> None:
    for row in found:
        slack = rounding(laboratory, row["case"])
        for part in slot.accumulator.components:
            left, right = (row[f"{name}/{slot.call.column.name}/{part.name}"] for name in (one, other))
            if not_finite(left) and not_finite(right) and slot.accumulator.name.endswith("moments"):
                continue  # the mean may be infinite here and NaN there: the second moment is NaN in any case
            said = f"{one}: {slot.call.text}, part {part.name}, case {row['case']}: {left!r} and {right!r}"
            assert same(left, right, slack), said


def rounding(laboratory: Laboratory, case: int) -> float:
    """The rounding errors of a case: of the size of its largest finite number, of its square for second moments."""
    values = [abs(float(v)) for bag in "ABC" for row in laboratory.rows[case, bag] for v in row if is_number(v)]
    largest = max((v for v in values if math.isfinite(v)), default=0.0)
    return 1e-14 * max(largest, largest**2 if MOMENTS in laboratory.kind.aggregates else 0.0)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal)


def not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def same(one: Any, other: Any, slack: float) -> bool:
    """Equal; floats up to rounding errors."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(same(a, b, slack) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other or math.isclose(one, other, rel_tol=1e-9, abs_tol=slack)
    return type(one) is type(other) and one == other


def test_h_of_no_rows_is_zero(laboratory: Laboratory) -> None:
    """Merges and the filter of cancelled groups rely on it."""
    total = replace(laboratory.state, keys=(), bucket_by=())
    frame = laboratory.spark.createDataFrame([], f"{laboratory.kind.schema}, {WEIGHT} bigint")
    h = laboratory.homomorphic(frame, Layout(total, None, 1))
    tests = [
        F.expr(f"`{slot.stored_name(part)}` <=> CAST({part.zero} AS {part.type})").alias(slot.stored_name(part))
        for slot in total.slots
        for part in (*slot.accumulator.components, *slot.accumulator.watched)
    ]
    (row,) = h.select(*tests).collect()
    assert all(row), row


def test_answers_are_sparks(laboratory: Laboratory) -> None:
    """Type and value of every aggregate, from its state and from Spark itself."""
    frame = laboratory.frame(weighted=False)
    answers = answered(laboratory, laboratory.homomorphic(frame))
    spark = laboratory.spark
    expected = evaluate(catalyst.isolate_session(spark), laboratory.kind.query, ["t"], {"t": frame}.get)
    assert [(f.name, f.dataType) for f in answers.schema] == [(f.name, f.dataType) for f in expected.schema]
    ours, theirs = ({row["g"]: row for row in found.collect()} for found in (answers, expected))
    assert ours.keys() == theirs.keys()
    for group, wanted in theirs.items():
        slack = rounding(laboratory, group // len(MADE))
        for name, value in wanted.asDict().items():
            if name == "ts" and laboratory.kind.type == "bigint":
                value = exact_sum(laboratory, group)  # Spark's own NULL depends on the order of the rows
            said = f"{name} of group {group}: {ours[group][name]!r}, Spark says {value!r}"
            assert same(ours[group][name], value, slack), said


def answered(laboratory: Laboratory, h: DataFrame) -> DataFrame:
    """The answer over h, in the order of the query."""
    layout = laboratory.layout
    values = layout.answer_values(laboratory.lowering, lambda name: f"`{name}`")
    columns = {name: catalyst.column(laboratory.spark, value).alias(name) for name, value in values.items()}
    return h.select(*(columns.get(name, F.col(name)) for _, name in laboratory.query.outputs))


def exact_sum(laboratory: Laboratory, group: int) -> int | None:
    case, number = divmod(group, len(MADE))
    content = next(MADE[name] for name, n in NUMBERED.items() if n == number)
    values = [row[-1] for bag in content for row in laboratory.rows[case, bag] if row[-1] is not None]
    return sum(values) if values and -(2**63) <= sum(values) < 2**63 else None


@pytest.mark.parametrize("laboratory", every(2, ["double", "float"]), indirect=True)
def test_sums_of_doubles_do_not_depend_on_the_order(laboratory: Laboratory) -> None:
    """Bit for bit: otherwise a sum drifts under insertions and deletions, and no two runs agree."""
    frame = laboratory.frame(weighted=False)
    runs = [frame, frame.repartition(7, "n").sortWithinPartitions("n"), frame.orderBy(F.desc("c"), "n").coalesce(1)]
    found = [
        {row["g"]: row["s"] for row in answered(laboratory, laboratory.homomorphic(run)).collect()} for run in runs
    ]
    for group, value in found[0].items():
        case, number = divmod(group, len(MADE))
        bits = {struct.pack("d", run[group]) if run[group] is not None else None for run in found}
        assert len(bits) == 1, (group, [run[group] for run in found])
        turned = case * len(MADE) + NUMBERED["CBA"]
        if number == NUMBERED["ABC"] and value is not None:
            assert struct.pack("d", value) == struct.pack("d", found[0][turned])
        content = next(MADE[name] for name, n in NUMBERED.items() if n == number)
        values = [row[-1] for bag in content for row in laboratory.rows[case, bag] if row[-1] is not None]
        if value is not None and all(map(math.isfinite, values)):
            assert math.isclose(value, math.fsum(values), rel_tol=1e-15, abs_tol=0.0), (value, math.fsum(values))
