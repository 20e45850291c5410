"""Translate Catalyst's normal form into the algebra, node by node.

| Catalyst | algebra |
| --- | --- |
| LogicalRDD of a declared source | SourceRead |
| UnionLoop, and LogicalRDD of a recorded loop | Loop (loops/recording.py) |
| Project, Filter, Generate, Expand, Union | the same |
| Join (inner, outer, semi, anti, existence) | Join with the equalities of its condition as keys |
| Aggregate | Project, Aggregate, Project (aggregates.py) |
| windows, functions of groups, sessions, Limit, Offset | GroupwiseOp (groupwise.py) |
| uncorrelated scalar subquery | inner join with a one-row aggregate |
| Sort | dropped: a view is a bag; `answer()` sorts |
| anything else | Unsupported, which the compiler refuses |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import SparkSession

from deltafold.algebra.monoids.declared import DeclaredMonoid
from deltafold.algebra.plan import (
    Expand,
    Filter,
    Generate,
    Item,
    Join,
    JoinKind,
    Plan,
    Project,
    Scalar,
    SourceRead,
    Union,
    Unsupported,
    UnsupportedReason,
    Values,
)
from deltafold.algebra.traversal import column_names, pass_columns, project
from deltafold.language.inner_plans import inner_plans
from deltafold.language.loops.recording import LoopTranslation, RecordedLoops
from deltafold.language.names import Names, renumber
from deltafold.language.normalise import TRANSPARENT, normal_form
from deltafold.language.translation.aggregates import Aggregates
from deltafold.language.translation.groupwise import group_function_op, limit_op, limit_stack, window_op
from deltafold.language.translation.scalars import Scalars, without_alias
from deltafold.language.translation.subqueries import one_row, row_dependent_plans
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

JOINS: Mapping[str, JoinKind] = {
    "Inner": "inner", "Cross": "inner", "LeftOuter": "left", "RightOuter": "right", "FullOuter": "full",
    "LeftSemi": "semi", "LeftAnti": "anti", "LeftSingle": "single",
}  # fmt: skip
# operators that read only the columns in their expressions
READS_EXPRESSIONS = {
    "Project", "Filter", "Generate", "Expand", "Join", "Aggregate", "Window", "Sort", "GlobalLimit", "LocalLimit",
    "Offset", "LogicalRDD", "LocalRelation", "OneRowRelation", "View", "SubqueryAlias", "ResolvedHint",
}  # fmt: skip
WITH_SUBQUERIES = {"Project", "Filter", "Aggregate", "Join"}  # whose scalar subqueries become joins


class Translation:
    """Translates one query; `relations` maps the RDD number of a registered source to its name.

    orders: the order in which the columns of a source are named, whatever their order in its schema. Only the numbers
    in names depend on it: nodes that match columns by position have them in Spark's order (`_order_columns`).
    types: of columns of a source, in place of the types in its schema.
    """

    def __init__(
        self,
        spark: SparkSession,
        relations: Mapping[int, str],
        names: Sequence[str] = (),
        recorded: RecordedLoops | None = None,
        monoids: Mapping[str, DeclaredMonoid] | None = None,
        orders: Mapping[str, Sequence[str]] | None = None,
        types: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.names = Names(spark, names)
        recorded = recorded or RecordedLoops()
        self.scalars = Scalars(spark, self.names, shapes=bool(recorded.loops))
        self._spark = spark
        self._relations = relations
        self._orders = orders or {}
        self._types = types or {}
        self._aggregates = Aggregates(spark, self.names, self.scalars, monoids or {})
        self._used: set[int] = set()
        self.loops = LoopTranslation(spark, self.names, recorded, self._order_columns, self._translate_ordered)
        self._rules: Mapping[str, Callable[[J], Plan]] = {
            "LogicalRDD": self._translate_relation,
            **dict.fromkeys(("OneRowRelation", "LocalRelation", "Range"), self._translate_values),
            "Project": self._translate_project,
            "Filter": self._translate_filter,
            "Generate": self._translate_generate,
            "Expand": self._translate_expand,
            "Union": self._translate_union,
            "Aggregate": self._translate_aggregate,
            **dict.fromkeys(("FlatMapGroupsInPandas", "FlatMapGroupsInArrow"), self._translate_grouped_function),
            "Join": self._translate_join,
            "Window": self._translate_window,
            **dict.fromkeys(("GlobalLimit", "LocalLimit", "Offset"), self._translate_limit),
            "Sample": self._translate_sample,
            "UnionLoop": self.loops.union_loop,
            "UnionLoopRef": self.loops.union_loop_rows,
        }

    def translate_query(self, node: J) -> Plan:
        """Return the plan of a query or subquery; its sources have only the columns that it uses."""
        self._used |= _used_attributes(node)
        return self.plan(node)

    def _translate_ordered(self, node: J) -> Plan:
        """Return the plan of a query of its own, with its columns in the order of Spark's output."""
        self._used |= _used_attributes(node)
        return self._order_columns(node)

    def plan(self, node: J) -> Plan:
        """Return the plan of a Catalyst node and all below it."""
        name = catalyst.kind(node)
        if name in TRANSPARENT:
            return self.plan(node.child())
        if name not in WITH_SUBQUERIES and (inner := inner_plans(self._spark, node)):
            return self._refuse(node, "subquery", name, inner)
        rule = self._rules.get(name)
        if rule is None:
            return self._refuse(node, "operator", name)
        return rule(node)

    def _translate_relation(self, node: J) -> Plan:
        source = self._relations.get(node.rdd().id())
        if source is None:
            return self.loops.relation(node)
        # unused columns get no name, so that a new column of the source changes neither names nor fingerprint
        output = {str(a.name()): a for a in catalyst.sequence(node.output()) if a.exprId().id() in self._used}
        types = self._types.get(source, {})
        self.names.types |= {a.exprId().id(): types[name] for name, a in output.items() if name in types}
        positions = {name: position for position, name in enumerate(self._orders.get(source, ()))}
        ordered = sorted(output, key=lambda name: positions.get(name, len(positions)))
        return SourceRead(source, tuple((name, self.names.column(output[name])) for name in ordered))

    def _translate_values(self, node: J) -> Plan:
        columns = tuple(self.names.column(a) for a in catalyst.sequence(node.output()))
        names = ", ".join(column.name for column in columns)
        text = str(node.simpleString(1000)) if catalyst.kind(node) == "Range" else f"values ({names})"
        if catalyst.kind(node) == "LocalRelation":
            text += f" ~ {self._content(node)}"
        return Values(columns, text, node)

    def _content(self, node: J) -> str:
        """Return the digest of constant rows in Spark's binary form."""
        projections = catalyst.catalyst(self._spark).expressions
        binary = catalyst.module(projections, "UnsafeProjection").create(node.schema())
        rows = [str(binary.apply(row)) for row in catalyst.sequence(node.data())]
        return f"{len(rows)} rows {hashlib.sha256(repr(rows).encode()).hexdigest()[:12]}"

    def _translate_project(self, node: J) -> Plan:
        child = self.plan(node.child())
        named = catalyst.sequence(node.projectList())
        if self._orders and _keeps_order(node, named):
            positions = {column: position for position, column in enumerate(child.columns)}
            named = sorted(named, key=lambda attribute: positions.get(self.names.column(attribute), len(positions)))
        child, expressions = self._join_subqueries(child, [without_alias(n) for n in named])
        scalars = [self.scalars.scalar(e) for e in expressions]
        pairs = zip(named, scalars, strict=True)
        return project(child, tuple(Item(self.names.column(n.toAttribute()), scalar) for n, scalar in pairs))

    def _translate_filter(self, node: J) -> Plan:
        child = self.plan(node.child())
        joined, (condition,) = self._join_subqueries(child, [node.condition()])
        filtered = Filter(joined, self.scalars.scalar(condition))
        if joined is child:
            return filtered
        return Project(filtered, pass_columns(child.columns))

    def _translate_generate(self, node: J) -> Plan:
        produced = tuple(self.names.column(a) for a in catalyst.sequence(node.generatorOutput()))
        return Generate(self.plan(node.child()), self.scalars.opaque(node.generator()), bool(node.outer()), produced)

    def _translate_expand(self, node: J) -> Plan:
        child = self.plan(node.child())
        projections = tuple(
            tuple(self.scalars.scalar(e) for e in catalyst.sequence(projection))
            for projection in catalyst.sequence(node.projections())
        )
        return Expand(child, projections, tuple(self.names.column(a) for a in catalyst.sequence(node.output())))

    def _translate_union(self, node: J) -> Plan:
        return Union(tuple(self._order_columns(child) for child in catalyst.sequence(node.children())))

    def _order_columns(self, node: J) -> Plan:
        """Return the plan of a node with its columns in the order of Spark's output."""
        plan = self.plan(node)
        columns = tuple(self.names.column(a) for a in catalyst.sequence(node.output()))
        return project(plan, pass_columns(columns))

    def _translate_aggregate(self, node: J) -> Plan:
        calls = [part for e in catalyst.sequence(node.expressions()) for part in catalyst.subexpressions(e)]
        keys = catalyst.sequence(node.groupingExpressions())
        keys_of_rows = [key for key in keys if not _is_session(key)]
        if len(keys_of_rows) < len(keys) or any(catalyst.kind(part) == "PythonUDAF" for part in calls):
            return self._recompute_groups(node, keys_of_rows, node.aggregateExpressions())
        return self._aggregates.translate(node, self.plan(node.child()), self._join_subqueries)

    def _translate_grouped_function(self, node: J) -> Plan:
        function = catalyst.vector(self._spark, [node.functionExpr()])
        return self._recompute_groups(node, catalyst.sequence(node.groupingAttributes()), function)

    def _recompute_groups(self, node: J, keys: list[J], computed: J) -> Plan:
        """Return an operator of Spark's on each group, which recomputes touched groups."""
        child = self._order_columns(node.child())
        return group_function_op(node, child, keys, computed, self.names, self.scalars)

    def _translate_join(self, node: J) -> Plan:
        own = left = self.plan(node.left())
        right = self.plan(node.right())
        join_type = node.joinType()
        exists = None
        if catalyst.kind(join_type) == "ExistenceJoin":
            kind = "existence"
            exists = self.names.column(join_type.exists())
        else:
            kind = JOINS.get(catalyst.kind(join_type).rstrip("$"))
        if kind is None:
            return self._refuse(node, "join type", str(join_type.sql()))
        condition = catalyst.option(node.condition())
        if condition is not None:
            left, (condition,) = self._join_subqueries(left, [condition])
        scalar = None if condition is None else self.scalars.scalar(condition)
        parts = [] if condition is None else catalyst.split_conjuncts(condition)
        keys = tuple(key for part in parts for key in self._equality(part, left, right))
        join = Join(
            left=left,
            right=right,
            kind=kind,
            condition=scalar,
            keys=keys,
            exists=exists,
            parts=tuple(self.scalars.scalar(part) for part in parts),
        )
        extra = set(left.columns) - set(own.columns)
        return project(join, pass_columns(c for c in join.columns if c not in extra))

    def _equality(self, condition: J, left: Plan, right: Plan) -> list[tuple[Scalar, Scalar, bool]]:
        kind = catalyst.kind(condition)
        if kind not in ("EqualTo", "EqualNullSafe"):
            return []
        one, other = (self.scalars.scalar(side) for side in catalyst.sequence(condition.children()))
        lefts = column_names(left)
        rights = column_names(right)
        for here, there in ((one, other), (other, one)):
            if here.columns and there.columns and here.columns <= lefts and there.columns <= rights:
                return [(here, there, kind == "EqualNullSafe")]
        return []

    def _translate_window(self, node: J) -> Plan:
        return window_op(node, self.plan(node.child()), self.names, self.scalars)

    def _translate_limit(self, node: J) -> Plan:
        stack = limit_stack(node)
        for part in stack:
            if inner := row_dependent_plans(self._spark, part):
                return self._refuse(node, "subquery in a limit", inner=inner)
        child = self.plan(stack[-1].child())
        return limit_op(self._spark, node, stack, child, self.names, self.scalars)

    def _translate_sample(self, node: J) -> Plan:
        because = "which rows it returns depends on files and partitions"
        instead = "select by a hash of a key, such as WHERE pmod(xxhash64(id), 100) < 5"
        self.scalars.forbid("TABLESAMPLE", because, instead)
        return self.plan(node.child())

    def _refuse(self, node: J, reason: UnsupportedReason, subject: str = "", inner: Sequence[J] = ()) -> Plan:
        columns = tuple(self.names.column(a) for a in catalyst.sequence(node.output()))
        children = tuple(self.plan(child) for child in catalyst.sequence(node.children()))
        children += tuple(self.translate_query(normal_form(self._spark, plan)) for plan in inner)
        details = [renumber(str(node.simpleString(1000)))]
        details += [self.scalars.text(e) for e in catalyst.sequence(node.expressions())]
        kind = catalyst.kind(node)
        return Unsupported(
            kind=kind,
            text=kind,
            reason=reason,
            subject=subject,
            children=children,
            columns=columns,
            detail=" ~ ".join(details),
        )

    def _join_subqueries(self, child: Plan, expressions: list[J]) -> tuple[Plan, list[J]]:
        """Join a plan with the one row of each uncorrelated scalar subquery."""
        joined = child

        def replace(node: J) -> J | None:
            nonlocal joined
            if catalyst.kind(node) != "ScalarSubquery":
                return None
            normal = one_row(self._spark, normal_form(self._spark, node.plan()))
            self._used |= _used_attributes(normal)
            value = self.names.column(catalyst.sequence(normal.output())[0])
            joined = Join(left=joined, right=self._order_columns(normal), kind="inner", condition=None)
            return self.names.attribute(value)

        replaced = [catalyst.rewrite(self._spark, e, replace) for e in expressions]
        return joined, replaced


def _used_attributes(root: J) -> set[int]:
    """Return the identifiers of the attributes that operators of a plan read, or that its result contains."""
    used = {a.exprId().id() for a in catalyst.sequence(root.output())}
    pending = [root]
    while pending:
        node = pending.pop()
        used |= {a.exprId().id() for a in catalyst.sequence(node.references().toSeq())}
        children = catalyst.sequence(node.children())
        if catalyst.kind(node) not in READS_EXPRESSIONS:
            # it reads by position, or is unknown: it may read any column of its inputs
            used |= {a.exprId().id() for child in children for a in catalyst.sequence(child.output())}
        pending += children
    return used


def _keeps_order(project: J, named: Sequence[J]) -> bool:
    """Return whether a projection only drops columns; Catalyst adds such projections where a column is not needed."""
    if any(catalyst.kind(expression) != "AttributeReference" for expression in named):
        return False
    below = [attribute.exprId().id() for attribute in catalyst.sequence(project.child().output())]
    positions = [below.index(attribute.exprId().id()) for attribute in named]
    return positions == sorted(set(positions))


def _is_session(key: J) -> bool:
    """Return whether a grouping key is a session, whose rows depend on the rows between them."""
    return catalyst.kind(key) == "AttributeReference" and bool(key.metadata().contains("spark.sessionWindow"))
