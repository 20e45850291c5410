"""Lower plans of the algebra to Catalyst plans, and those to DataFrames.

Every column of a plan has one Catalyst attribute, the one its expressions already refer to, so the user's expressions
are used unchanged; only the leaves are renamed. A *weighted* relation has the reserved weight column too. Nodes
are built directly: a DataFrame call for each would cost a hundred times more analysis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, assert_never

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession

from deltafold.algebra.plan import (
    Aggregate,
    Column,
    Expand,
    Filter,
    Generate,
    Given,
    GroupwiseOp,
    Item,
    Join,
    Loop,
    Opaque,
    Plan,
    Project,
    Reference,
    Scalar,
    SourceRead,
    Sql,
    StateRead,
    Union,
    Unsupported,
    Values,
)
from deltafold.algebra.program import WEIGHT
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J
from deltafold.spark.peers import order_rows

JOIN_TYPES = {
    "inner": "Inner", "left": "LeftOuter", "right": "RightOuter", "full": "FullOuter",
    "semi": "LeftSemi", "anti": "LeftAnti", "single": "LeftSingle",
}  # fmt: skip


@dataclass(frozen=True)
class Relation:
    """A lowered plan; weighted: it has the weight column and is a Z-set."""

    plan: J
    weighted: bool = False


class Lowering:
    """Builds Catalyst nodes over one set of attributes."""

    def __init__(self, spark: SparkSession, attributes: Mapping[str, Any]) -> None:
        self.spark = spark
        self._attributes: dict[str, J] = dict(attributes)
        self.catalyst: J = catalyst.catalyst(spark)
        self._logical: J = self.catalyst.plans.logical
        self.weight = self.attribute(Column(WEIGHT, "bigint"))

    def attribute(self, column: Column) -> J:
        """Return the attribute of a column; a column that the compiler added gets one at its first use."""
        if column.name not in self._attributes:
            self._attributes[column.name] = self.fresh(column.name, self.data_type(column.type))
        return self._attributes[column.name]

    def data_type(self, text: str) -> J:
        """Spark's data type of its DDL text."""
        return catalyst.sql(self.spark).types.DataType.fromDDL(text)

    def resolve(self, plan: J) -> J:
        """Return a plan whose expressions Spark has analysed: some were parsed from text."""
        return plan if plan.resolved() else catalyst.analysed_plan(catalyst.frame(self.spark, plan))

    def expression(self, scalar: Scalar) -> J:
        """Return a scalar over the attributes of its columns."""
        match scalar:
            case Reference(column=column):
                return self.attribute(column)
            case Opaque(handle=handle):
                return handle
            case Sql(text=text, type=type_):
                return catalyst.parse_expression(self.spark, f"CAST(({text}) AS {type_})")
            case _:
                assert_never(scalar)

    def leaf(self, frame: DataFrame, columns: Sequence[tuple[str, Column]], *, weighted: bool) -> Relation:
        """Return a DataFrame's columns under the plan's attributes; weighted: it has the weight column too."""
        plan = catalyst.analysed_plan(frame)
        attributes = {str(a.name()): a for a in catalyst.sequence(plan.output())}
        items = [catalyst.alias(self.spark, attributes[name], self.attribute(column)) for name, column in columns]
        if weighted:
            items.append(catalyst.alias(self.spark, attributes[WEIGHT], self.weight))
        return Relation(self.project(items, plan), weighted)

    def compute(self, frame: DataFrame, items: Iterable[tuple[Column, J]], *, weighted: bool = False) -> Relation:
        """Compute expressions over a DataFrame's column names, under the plan's attributes; weighted: as of `leaf`."""
        named = [catalyst.alias(self.spark, expression, self.attribute(column)) for column, expression in items]
        if weighted:
            named.append(catalyst.alias(self.spark, catalyst.parse_expression(self.spark, WEIGHT), self.weight))
        return Relation(self.project(named, catalyst.analysed_plan(frame)), weighted)

    def empty(self, columns: Sequence[Column]) -> Relation:
        """Return a relation with these columns and no rows."""
        nil = catalyst.vector(self.spark, [])
        output = catalyst.vector(self.spark, [self.attribute(column) for column in columns])
        return Relation(self._logical.LocalRelation(output, nil, False, catalyst.none(self.spark)))

    def linear(self, node: Plan, child: Relation) -> Relation:
        """Return a unary operator that distributes over union, on rows or on a Z-set."""
        carried = [self.weight] if child.weighted else []
        match node:
            case Project(items=items):
                return Relation(
                    self.project([self._item(item) for item in items] + carried, child.plan), child.weighted
                )
            case Filter(condition=condition):
                return Relation(self._logical.Filter(self.expression(condition), child.plan), child.weighted)
            case Generate():
                return Relation(self._generate(node, child), child.weighted)
            case Expand(projections=projections, columns=columns):
                rows = [
                    catalyst.vector(self.spark, [self.expression(s) for s in projection] + carried)
                    for projection in projections
                ]
                output = catalyst.vector(self.spark, [self.attribute(column) for column in columns] + carried)
                return Relation(
                    self._logical.Expand(catalyst.vector(self.spark, rows), output, child.plan), child.weighted
                )
            case _:
                raise TypeError(f"{type(node).__name__} is not linear")

    def union(self, columns: Sequence[Column], terms: Sequence[tuple[Sequence[Column], Relation]]) -> Relation:
        """Terms one after the other, their columns matched by position; weighted if any of them is.

        The first term gives the attribute ids, as in Spark; a term that has the required ids is not changed.
        """
        weighted = any(relation.weighted for _, relation in terms)
        (first, relation), *others = terms
        attributes = [self.attribute(column) for column in first]
        items = [self._as(*pair) for pair in zip(attributes, (self.attribute(c) for c in columns), strict=True)]
        items += [self._weight_of(relation, self.weight)] if weighted else []
        plans = [self.project(items, relation.plan)]
        for others_columns, other in others:
            attributes = [self.attribute(column) for column in others_columns]
            plans.append(self._renew(attributes, other, weighted=weighted))
        if len(plans) == 1:
            return Relation(plans[0], weighted)
        return Relation(self._logical.Union(catalyst.vector(self.spark, plans), False, False), weighted)

    def narrow(self, columns: Sequence[Column], rows: Relation) -> Relation:
        """Return some columns of rows, without their weights."""
        return Relation(self.project([self.attribute(column) for column in columns], rows.plan))

    def negate(self, columns: Sequence[Column], rows: Relation) -> tuple[Sequence[Column], Relation]:
        """Return rows with weight -1 each, as a term of a union."""
        minus = catalyst.alias(self.spark, catalyst.parse_expression(self.spark, "-1L"), self.weight)
        plan = self.project([*(self.attribute(column) for column in columns), minus], rows.plan)
        return columns, Relation(plan, weighted=True)

    def join(self, node: Join, left: Relation, right: Relation) -> Relation:
        """Return a join of which at most one side is weighted."""
        if node.kind == "existence":
            assert node.exists is not None
            join_type = self.catalyst.plans.ExistenceJoin(self.attribute(node.exists))
        else:
            join_type = catalyst.module(self.catalyst.plans, JOIN_TYPES[node.kind])
        return self.join_on(left, right, join_type, [] if node.condition is None else [self.expression(node.condition)])

    def product(
        self, left: Relation, right: Relation, conditions: Sequence[Scalar], equal: Sequence[tuple[Scalar, Scalar]] = ()
    ) -> Relation:
        """Return an inner join by conditions and by equal scalars; at most one side is weighted."""
        inner, equals = catalyst.module(self.catalyst.plans, "Inner"), self.catalyst.expressions.EqualTo
        pairs = [equals(self.expression(one), self.expression(other)) for one, other in equal]
        return self.join_on(left, right, inner, [*map(self.expression, conditions), *pairs])

    def join_on(self, left: Relation, right: Relation, join_type: J, conditions: Sequence[J]) -> Relation:
        """Return Spark's join on all of the conditions; at most one side is weighted."""
        if left.weighted and right.weighted:
            raise TypeError("the product of two changes never occurs in the bilinear rule")
        condition = catalyst.none(self.spark)
        if conditions:
            condition = catalyst.some(self.spark, reduce(self.catalyst.expressions.And, conditions))
        hint = catalyst.module(self._logical, "JoinHint").NONE()
        plan = self._logical.Join(left.plan, right.plan, join_type, condition, hint)
        return Relation(plan, left.weighted or right.weighted)

    def aggregate(self, node: Aggregate, child: Relation) -> Relation:
        """Return a group-by as Spark itself runs it, over rows."""
        keys = [self.attribute(column) for column in node.keys]
        calls = [catalyst.alias(self.spark, call.handle, self.attribute(call.column)) for call in node.calls]
        by, output = catalyst.vector(self.spark, keys), catalyst.vector(self.spark, keys + calls)
        return Relation(self._logical.Aggregate(by, output, child.plan, catalyst.none(self.spark)))

    def over(self, frame: DataFrame, expression: J) -> SparkColumn:
        """Return an expression over a frame whose columns have the names of the plan's."""
        attributes = {str(a.name()): a for a in catalyst.sequence(catalyst.analysed_plan(frame).output())}

        def replace(node: J) -> J | None:
            return attributes[str(node.name())] if catalyst.kind(node) == "AttributeReference" else None

        return catalyst.column(self.spark, catalyst.rewrite(self.spark, expression, replace))

    def key_local(self, node: GroupwiseOp, child: Relation) -> Relation:
        """Spark's own operators over other rows.

        Their order depends on the types of the rows, which Spark has to find where a state's columns are given as SQL.
        """
        plan = child.plan
        if not plan.resolved():
            plan = catalyst.analysed_plan(catalyst.frame(self.spark, plan))
        for operator in reversed(node.handle):
            rebuilt: J = operator
            plan = order_rows(self.spark, rebuilt.withNewChildren(catalyst.vector(self.spark, [plan])))
        return Relation(plan)

    def rows(self, node: Plan, children: Sequence[Relation]) -> Relation:
        """Any operator over rows (not Z-sets): the definition of the query."""
        match node:
            case Project() | Filter() | Generate() | Expand():
                return self.linear(node, children[0])
            case Union(children=plans, columns=columns):
                return self.union(columns, [(p.columns, r) for p, r in zip(plans, children, strict=True)])
            case Join():
                return self.join(node, *children)
            case Aggregate():
                return self.aggregate(node, children[0])
            case GroupwiseOp():
                return self.key_local(node, children[0])
            case Values(handle=handle):
                return Relation(handle)
            case SourceRead() | StateRead() | Given() | Loop() | Unsupported():
                raise TypeError(f"{type(node).__name__} is not an operator")
            case _:
                assert_never(node)

    def frame(self, relation: Relation, outputs: Sequence[tuple[Column, str]]) -> DataFrame:
        """Return a DataFrame with the given columns under new names, and the weight if the relation has one."""
        named = [(self.attribute(column), name) for column, name in outputs]
        items = [catalyst.new_alias(self.spark, attribute, name) for attribute, name in named]
        if relation.weighted:
            items.append(catalyst.new_alias(self.spark, self.weight, WEIGHT))
        return catalyst.frame(self.spark, self.project(items, relation.plan))

    def substitute(self, scalar: Scalar, values: Mapping[str, J]) -> J:
        """Return a scalar with columns replaced by expressions."""

        def replace(node: J) -> J | None:
            return values.get(str(node.name())) if catalyst.kind(node) == "AttributeReference" else None

        return catalyst.rewrite(self.spark, self.expression(scalar), replace)

    def _generate(self, node: Generate, child: Relation) -> J:
        output = catalyst.vector(self.spark, [self.attribute(column) for column in node.produced])
        nil, none = catalyst.vector(self.spark, []), catalyst.none(self.spark)
        return self._logical.Generate(node.generator.handle, nil, node.outer, none, output, child.plan)

    def _item(self, item: Item) -> J:
        if item.scalar == Reference(item.column):
            return self.attribute(item.column)
        return catalyst.alias(self.spark, self.expression(item.scalar), self.attribute(item.column))

    def _as(self, given: J, target: J) -> J:
        """Return an expression as an attribute; unchanged if it is that attribute already."""
        return given if given.equals(target) else catalyst.alias(self.spark, given, target)

    def _weight_of(self, relation: Relation, target: J) -> J:
        """Return the weight of a relation's rows, 1 each where it has none."""
        if relation.weighted:
            return self._as(self.weight, target)
        return catalyst.alias(self.spark, catalyst.parse_expression(self.spark, "1L"), target)

    def _renew(self, attributes: Sequence[J], relation: Relation, *, weighted: bool) -> J:
        """Return the relation with new attribute ids, so that two terms of a union never share one."""
        items = [catalyst.new_alias(self.spark, attribute, attribute.name()) for attribute in attributes]
        if weighted:
            items.append(self._weight_of(relation, self.fresh(WEIGHT, self.weight.dataType())))
        return catalyst.analysed_plan(catalyst.frame(self.spark, self.project(items, relation.plan)))

    def project(self, items: Sequence[J], plan: J) -> J:
        """Return a projection of Catalyst expressions."""
        return self._logical.Project(catalyst.vector(self.spark, items), plan)

    def hint(self, plan: J, strategy: str) -> J:
        """Ask Spark to join a plan by a strategy, such as BROADCAST or SHUFFLE_HASH."""
        hint = self._logical.HintInfo(catalyst.some(self.spark, catalyst.module(self._logical, strategy)))
        return self._logical.ResolvedHint(plan, hint)

    def fresh(self, name: str, data_type: J) -> J:
        """Return an attribute with a new id."""
        return catalyst.attribute(self.spark, name, data_type, catalyst.new_id(self.spark), nullable=True)
