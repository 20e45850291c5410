"""Language room: Catalyst's normal form → algebra, node by node. In: a plan of about a dozen kinds. Out: a `Plan`.

| Catalyst | algebra |
| --- | --- |
| LogicalRDD of a declared source | Source |
| Project, Filter, Generate, Expand, Union | the same |
| Join (inner, outer, semi, anti, existence) | Join with the equalities of its condition as keys |
| Aggregate | Project, Aggregate, Project (aggregates.py) |
| Window with PARTITION BY | KeyLocal by its partition |
| Pandas and Arrow functions of groups; sessions | KeyLocal by the group |
| Limit, Offset, global windows | KeyLocal without keys |
| uncorrelated scalar subquery | inner join with a one-row aggregate |
| Sort | dropped: a view is a bag; `answer()` sorts |
| anything else | Foreign, which the compiler refuses |
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from incremental.algebra.plan import (
    Column,
    Expand,
    Filter,
    Foreign,
    Generate,
    Item,
    Join,
    JoinKind,
    KeyLocal,
    Plan,
    Project,
    Reference,
    Scalar,
    Source,
    Union,
    Values,
)
from incremental.language.aggregates import Aggregates
from incremental.language.limits import is_ordered, limit_stack, limit_text
from incremental.language.names import Names
from incremental.language.normalise import TRANSPARENT, normal_form
from incremental.language.scalars import Scalars, numbered
from incremental.language.shapes import conjuncts, is_session, unaliased
from incremental.language.subqueries import inner_plans, one_row, sorted_by_rows, told_by_rows
from incremental.language.ties import UNORDERED, left_open
from incremental.language.used import used_attributes
from incremental.spark import catalyst
from incremental.spark.catalyst import J

JOINS: Mapping[str, JoinKind] = {
    "Inner": "inner", "Cross": "inner", "LeftOuter": "left", "RightOuter": "right", "FullOuter": "full",
    "LeftSemi": "semi", "LeftAnti": "anti", "LeftSingle": "single",
}  # fmt: skip
MEETING = {"Project", "Filter", "Aggregate", "Join"}  # with scalar subqueries within their expressions


class Translation:
    """One query's translation; `relations` maps the RDD number of a registered source to its name."""

    def __init__(self, spark: SparkSession, relations: Mapping[int, str], names: Sequence[str] = ()) -> None:
        self.names = Names(spark, names)
        self.scalars = Scalars(spark, self.names)
        self._spark, self._relations = spark, relations
        self._aggregates = Aggregates(spark, self.names, self.scalars)
        self._used: set[int] = set()

    def whole(self, node: J) -> Plan:
        """The algebra of a query or subquery; its sources get only the columns that it uses."""
        self._used |= used_attributes(node)
        return self.plan(node)

    def plan(self, node: J) -> Plan:
        """The algebra of a Catalyst node and all below it."""
        name = catalyst.kind(node)
        if name in TRANSPARENT:
            return self.plan(node.child())
        if name not in MEETING and (inner := inner_plans(self._spark, node)):
            return self._foreign(
                node, f"a subquery stands within Spark's operator {name}", "compute it in a query that is joined", inner
            )
        rule = getattr(self, f"_{name.lower()}", None)
        if rule is None:
            return self._foreign(
                node, f"Spark's operator {name} has no incremental rule", "rewrite the query without it"
            )
        return rule(node)

    def _logicalrdd(self, node: J) -> Plan:
        source = self._relations[node.rdd().id()]
        # a column nobody uses has no name here, so a new one in the source changes neither names nor fingerprint
        output = [a for a in catalyst.sequence(node.output()) if a.exprId().id() in self._used]
        return Source(source, tuple((str(a.name()), self.names.column(a)) for a in output))

    def _values(self, node: J) -> Plan:
        columns = tuple(self.names.column(a) for a in catalyst.sequence(node.output()))
        names = ", ".join(column.name for column in columns)
        text = str(node.simpleString(1000)) if catalyst.kind(node) == "Range" else f"values ({names})"
        if catalyst.kind(node) == "LocalRelation":
            text += f" ~ {self._content(node)}"
        return Values(columns, text, node)

    def _content(self, node: J) -> str:
        """A digest of constant rows, by Spark's binary form of them."""
        projections = catalyst.catalyst(self._spark).expressions
        binary = catalyst.module(projections, "UnsafeProjection").create(node.schema())
        rows = [str(binary.apply(row)) for row in catalyst.sequence(node.data())]
        return f"{len(rows)} rows {hashlib.sha256(repr(rows).encode()).hexdigest()[:12]}"

    _onerowrelation = _localrelation = _range = _values

    def _project(self, node: J) -> Plan:
        child = self.plan(node.child())
        named = catalyst.sequence(node.projectList())
        child, expressions = self._with_subqueries(child, [unaliased(n) for n in named])
        scalars = [self.scalars.scalar(e) for e in expressions]
        pairs = zip(named, scalars, strict=True)
        return narrow(child, tuple(Item(self.names.column(n.toAttribute()), scalar) for n, scalar in pairs))

    def _filter(self, node: J) -> Plan:
        child = self.plan(node.child())
        joined, (condition,) = self._with_subqueries(child, [node.condition()])
        filtered = Filter(joined, self.scalars.scalar(condition))
        if joined is child:
            return filtered
        return Project(filtered, tuple(Item(c, Reference(c)) for c in child.columns))

    def _generate(self, node: J) -> Plan:
        produced = tuple(self.names.column(a) for a in catalyst.sequence(node.generatorOutput()))
        return Generate(self.plan(node.child()), self.scalars.opaque(node.generator()), bool(node.outer()), produced)

    def _expand(self, node: J) -> Plan:
        child = self.plan(node.child())
        projections = tuple(
            tuple(self.scalars.scalar(e) for e in catalyst.sequence(projection))
            for projection in catalyst.sequence(node.projections())
        )
        return Expand(child, projections, tuple(self.names.column(a) for a in catalyst.sequence(node.output())))

    def _union(self, node: J) -> Plan:
        return Union(tuple(self._ordered(child) for child in catalyst.sequence(node.children())))

    def _ordered(self, node: J) -> Plan:
        """A translated node whose columns come in the order of Spark's output."""
        plan = self.plan(node)
        columns = tuple(self.names.column(a) for a in catalyst.sequence(node.output()))
        return plan if plan.columns == columns else Project(plan, tuple(Item(c, Reference(c)) for c in columns))

    def _aggregate(self, node: J) -> Plan:
        calls = [part for e in catalyst.sequence(node.expressions()) for part in catalyst.subexpressions(e)]
        keys = catalyst.sequence(node.groupingExpressions())
        lasting = [key for key in keys if not is_session(key)]
        if len(lasting) < len(keys) or any(catalyst.kind(part) == "PythonUDAF" for part in calls):
            return self._grouped(node, lasting, node.aggregateExpressions())
        return self._aggregates.translate(node, self.plan(node.child()), self._with_subqueries)

    def _flatmapgroupsinpandas(self, node: J) -> Plan:
        function = catalyst.vector(self._spark, [node.functionExpr()])
        return self._grouped(node, catalyst.sequence(node.groupingAttributes()), function)

    _flatmapgroupsinarrow = _flatmapgroupsinpandas

    def _grouped(self, node: J, keys: list[J], computed: J) -> Plan:
        """An operator of Spark's on each group, which computes touched groups anew."""
        child = self._ordered(node.child())
        scalars = [self.scalars.scalar(key) for key in keys]
        columns = tuple(self.names.column(a) for a in catalyst.sequence(node.output()))
        text = "; ".join(self.scalars.opaque(unaliased(e)).text for e in catalyst.sequence(computed))
        known = tuple(scalar.column for scalar in scalars if isinstance(scalar, Reference))
        return KeyLocal(child, "group function", known, columns, text, None, (node,))

    def _join(self, node: J) -> Plan:
        left, right = self.plan(node.left()), self.plan(node.right())
        join_type = node.joinType()
        exists = None
        if catalyst.kind(join_type) == "ExistenceJoin":
            kind, exists = "existence", self.names.column(join_type.exists())
        else:
            kind = JOINS.get(catalyst.kind(join_type).rstrip("$"))
        if kind is None:
            text = str(join_type.sql())
            return self._foreign(
                node, f"Spark's {text} join has no incremental rule", "write it as an inner or outer join"
            )
        condition, shown = catalyst.option(node.condition()), left
        if condition is not None:
            left, (condition,) = self._with_subqueries(left, [condition])
        scalar = None if condition is None else self.scalars.scalar(condition)
        parts = [] if condition is None else conjuncts(condition)
        keys = tuple(key for part in parts for key in self._equality(part, left, right))
        join = Join(left, right, kind, scalar, keys, exists, tuple(self.scalars.scalar(part) for part in parts))
        extra = set(left.columns) - set(shown.columns)
        return narrow(join, tuple(Item(c, Reference(c)) for c in join.columns if c not in extra))

    def _equality(self, condition: J, left: Plan, right: Plan) -> list[tuple[Scalar, Scalar, bool]]:
        kind = catalyst.kind(condition)
        if kind not in ("EqualTo", "EqualNullSafe"):
            return []
        one, other = (self.scalars.scalar(side) for side in catalyst.sequence(condition.children()))
        lefts, rights = ({c.name for c in plan.columns} for plan in (left, right))
        for here, there in ((one, other), (other, one)):
            if here.columns and there.columns and here.columns <= lefts and there.columns <= rights:
                return [(here, there, kind == "EqualNullSafe")]
        return []

    def _window(self, node: J) -> Plan:
        child = self.plan(node.child())
        items = [Item(c, Reference(c)) for c in child.columns]
        keys: list[Column] = []
        for expression in catalyst.sequence(node.partitionSpec()):
            scalar = self.scalars.scalar(expression)
            if not isinstance(scalar, Reference):
                items.append(Item(self.names.expression(expression, "partition"), scalar))
            keys.append(scalar.column if isinstance(scalar, Reference) else items[-1].column)
        expressions = catalyst.sequence(node.windowExpressions())
        produced = tuple(self.names.column(e.toAttribute()) for e in expressions)
        text = "; ".join(self.scalars.operated(unaliased(e)) for e in expressions)
        below = narrow(child, tuple(items))
        kind, ambiguous = left_open(node)
        return KeyLocal(below, kind, tuple(keys), below.columns + produced, text, ambiguous, (node,))

    def _limit(self, node: J) -> Plan:
        stack = limit_stack(node)
        for each in stack:
            if inner := told_by_rows(self._spark, each):
                because = "a subquery stands within what a LIMIT orders or shows"
                return self._foreign(node, because, "compute it in a query below the LIMIT", inner)
        child = self.plan(stack[-1].child())
        text = limit_text(stack, self.scalars, self.names)
        columns = tuple(self.names.column(a) for a in catalyst.sequence(node.output()))
        ambiguous = None if is_ordered(stack) else UNORDERED
        told = tuple(sorted_by_rows(self._spark, each) for each in stack)  # the rest would read data that is not there
        return KeyLocal(child, "limit", (), columns, text, ambiguous, told)

    _globallimit = _locallimit = _offset = _limit

    def _sample(self, node: J) -> Plan:
        because = "which rows it takes depends on files and partitions"
        instead = "take them by a hash of a key, such as WHERE pmod(xxhash64(id), 100) < 5"
        self.scalars.forbid("TABLESAMPLE", because, instead)
        return self.plan(node.child())

    def _unionloop(self, node: J) -> Plan:
        because = "a recursive query is a fixpoint, which has no incremental rule"
        return self._foreign(node, because, "rewrite it without recursion", name="WITH RECURSIVE")

    def _unionloopref(self, node: J) -> Plan:
        return Values(tuple(self.names.column(a) for a in catalyst.sequence(node.output())), "what the last round gave")

    def _foreign(self, node: J, because: str, instead: str, inner: Sequence[J] = (), name: str | None = None) -> Plan:
        columns = tuple(self.names.column(a) for a in catalyst.sequence(node.output()))
        children = tuple(self.plan(child) for child in catalyst.sequence(node.children()))
        children += tuple(self.whole(normal_form(self._spark, plan)) for plan in inner)
        said = [numbered(str(node.simpleString(1000)))]
        said += [self.scalars.text(e) for e in catalyst.sequence(node.expressions())]
        kind = catalyst.kind(node)
        return Foreign(kind, name or kind, because, instead, children, columns, " ~ ".join(said))

    def _with_subqueries(self, child: Plan, expressions: list[J]) -> tuple[Plan, list[J]]:
        """Uncorrelated scalar subqueries become inner joins with their one row, as DESIGN section 4 says."""
        joined = child

        def replace(node: J) -> J | None:
            nonlocal joined
            if catalyst.kind(node) != "ScalarSubquery":
                return None
            normal = one_row(self._spark, normal_form(self._spark, node.plan()))
            self._used |= used_attributes(normal)
            value = self.names.column(catalyst.sequence(normal.output())[0])
            joined = Join(joined, self._ordered(normal), "inner", None)
            return self.names.attribute(value)

        replaced = [catalyst.rewrite(self._spark, e, replace) for e in expressions]
        return joined, replaced


def narrow(child: Plan, items: tuple[Item, ...]) -> Plan:
    """A projection, unless it would change nothing."""
    if all(item.scalar == Reference(item.column) for item in items) and tuple(i.column for i in items) == child.columns:
        return child
    return Project(child, items)
