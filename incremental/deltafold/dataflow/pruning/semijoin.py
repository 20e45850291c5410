"""Restrict a relation by a semi-join to the rows that touched rows or keys can match.

NULL equals NULL. The right side gets attributes of its own, since a touched row may be from the input that is
restricted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import DataFrame

from deltafold.algebra.plan import Join
from deltafold.algebra.product import EqualKeys
from deltafold.dataflow.lowering import Lowering, Relation
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J


class Semijoin:
    """Builds semi-joins over the attributes of one lowering."""

    def __init__(self, lowering: Lowering) -> None:
        self._lowering = lowering
        self._expressions = lowering.catalyst.expressions
        self._pushdown = Pushdown(lowering)

    def touched_rows(self, node: Join, change: Relation) -> DataFrame:
        """Return the rows of a join's right side that were added or removed, without their weights."""
        named = [(column, column.name) for column in node.right.columns]
        return self._lowering.frame(Relation(change.plan), named)

    def matched_rows(self, node: Join, left: Relation, touched: DataFrame, *, few: bool) -> Relation:
        """Return the rows of the left side that some touched row of the right side matches; few: broadcast them."""
        plan, by_name = self._right_side(node, touched, few=few)
        if node.condition is None:
            return self._semi(left, plan, [])
        condition = self._lowering.substitute(node.condition, by_name)
        return self._semi(left, plan, [condition], cheap=few and bool(node.keys))

    def partners(self, node: Join, right: Relation, touched: DataFrame, *, few: bool) -> Relation:
        """Return the right rows that can match those of `matched_rows`; all of them if the join has no equality."""
        if not node.keys:
            return right
        plan, by_name = self._right_side(node, touched, few=few)
        pairs = [(self._lowering.expression(k), self._lowering.substitute(k, by_name)) for _, k, _ in node.keys]
        return self._semi(right, plan, [self._expressions.EqualNullSafe(*pair) for pair in pairs], cheap=few)

    def of_keys(
        self,
        relation: Relation,
        keys: Sequence[J],
        touched: DataFrame,
        condition: Callable[[J], J] | None = None,
        *,
        few: bool = False,
    ) -> Relation:
        """Return the rows whose key is among the touched ones; `touched` has the keys in the same order.

        condition: what a row also has to fulfil, of the column of `touched` that follows the keys.
        """
        if not keys:
            return relation
        plan, renamed = self._rename(touched, few=few)
        values = renamed[: len(keys)]
        conditions = [self._expressions.EqualNullSafe(*pair) for pair in zip(keys, values, strict=True)]
        if condition is not None:
            conditions.append(condition(renamed[-1]))
        return self._semi(relation, plan, conditions, cheap=few)

    def before_costly_work(self, relation: Relation, equalities: Sequence[EqualKeys], touched: DataFrame) -> Relation:
        """Return a relation whose costly filters and joins see only rows that equal few touched ones; or it unchanged.

        equalities: (of a column of `touched`, of one of the relation).
        """
        keys = [self._lowering.expression(other) for _, other in equalities]
        if not keys or not self._pushdown.reaches(relation.plan, keys):
            return relation
        mine = touched.select(*(self._lowering.over(touched, self._lowering.expression(one)) for one, _ in equalities))
        return self.of_keys(relation, keys, mine, few=True)

    def _right_side(self, node: Join, touched: DataFrame, *, few: bool) -> tuple[J, dict[str, J]]:
        plan, renamed = self._rename(touched, few=few)
        return plan, {column.name: a for column, a in zip(node.right.columns, renamed, strict=True)}

    def _rename(self, frame: DataFrame, *, few: bool) -> tuple[J, list[J]]:
        """Return a frame's plan under new attributes, and these."""
        plan = catalyst.analysed_plan(frame)
        output = catalyst.sequence(plan.output())
        fresh = [self._lowering.fresh(f"touched_{i}", a.dataType()) for i, a in enumerate(output)]
        items = [catalyst.alias(self._lowering.spark, *pair) for pair in zip(output, fresh, strict=True)]
        renamed = self._lowering.project(items, plan)
        return self._lowering.hint(renamed, "BROADCAST") if few else renamed, fresh

    def _semi(self, relation: Relation, other: J, conditions: Sequence[J], *, cheap: bool = False) -> Relation:
        """Return the rows that fulfil the conditions with some row; cheap: before the relation's costly work."""
        semi = catalyst.module(self._lowering.catalyst.plans, "LeftSemi")

        def restrict(plan: J, conditions: Sequence[J]) -> J:
            return self._lowering.join_on(Relation(plan), Relation(other), semi, conditions).plan

        if not cheap:
            return Relation(restrict(relation.plan, conditions), relation.weighted)
        return Relation(self._pushdown.restrict_below(relation.plan, conditions, restrict), relation.weighted)


Restriction = Callable[[J, Sequence[J]], J]
"""Restricts a plan by conditions over its attributes and others."""

TOTAL = frozenset({
    "AttributeReference", "Literal", "And", "Or", "Not", "IsNull", "IsNotNull", "EqualTo", "EqualNullSafe", "LessThan",
    "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "In", "InSet",
})  # fmt: skip
"""Expressions that have a value for every row, so that they may be evaluated before a condition that excludes some."""

COSTLY = frozenset({
    "Like", "LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny", "RLike", "RegExpReplace", "RegExpExtract",
    "RegExpExtractAll", "RegExpInStr", "RegExpCount", "RegExpSubStr", "GetJsonObject", "JsonToStructs", "CsvToStructs",
    "XmlToStructs", "ParseJson", "Levenshtein", "PythonUDF", "ScalaUDF",
})  # fmt: skip
"""Expressions that take about a microsecond a row, or more."""


KEEPS_LEFT = frozenset({"Inner", "LeftOuter", "LeftSemi", "LeftAnti", "ExistenceJoin"})
KEEPS_RIGHT = frozenset({"Inner", "RightOuter"})
"""Joins that commute with a restriction of one side: its rows meet the same rows of the other one."""


class Pushdown:
    """Puts restrictions of plans below costly filters (D-128) and below joins (D-177), where Spark leaves them above.

    A row takes longer to match with a pattern, or to be joined, than its key to be found among a few broadcast ones.
    """

    def __init__(self, lowering: Lowering) -> None:
        self._lowering, self._expressions = lowering, lowering.catalyst.expressions
        patterns = catalyst.module(lowering.catalyst.trees, "TreePattern")
        self._patterns = patterns.FILTER(), patterns.JOIN()

    def restrict_below(self, plan: J, conditions: Sequence[J], restrict: Restriction) -> J:
        """Return a plan restricted by conditions, below its costly filters and joins; at its top if it has none."""
        return self._sink(plan, conditions, restrict) or restrict(plan, conditions)

    def reaches(self, plan: J, keys: Sequence[J]) -> bool:
        """Return whether a plan has costly filters or joins below which it can be restricted by these keys."""
        return self._sink(plan, keys, lambda below, _: below) is not None

    def _sink(self, plan: J, conditions: Sequence[J], restrict: Restriction) -> J | None:
        resolved = self._lowering.resolve(plan) if self._may_reach(plan) else None
        return None if resolved is None else self._below(resolved, conditions, [], restrict)

    def _may_reach(self, plan: J) -> bool:
        return any(plan.containsPattern(pattern) for pattern in self._patterns)

    def _below(self, plan: J, conditions: Sequence[J], early: Sequence[J], restrict: Restriction) -> J | None:
        """Return a plan restricted below its costly filters and joins; None if it has none.

        early: conditions of filters above it. Spark has to see them below, so that it skips parts of files by them.
        """
        if not self._may_reach(plan) or not all(map(_is_total, conditions)):
            return None
        match catalyst.kind(plan):
            case "Filter":
                return self._below_filter(plan, conditions, early, restrict)
            case "Join":
                return self._below_join(plan, conditions, early, restrict)
            case "Project" if all(item.deterministic() for item in catalyst.sequence(plan.projectList())):
                helper = catalyst.module(self._lowering.catalyst.optimizer, "PushPredicateThroughNonJoin")
                aliases = helper.getAliasMap(plan)
                conditions, early = ([helper.replaceAlias(c, aliases) for c in each] for each in (conditions, early))
            case "ResolvedHint":
                pass
            case _:
                return None
        inner = self._below(plan.child(), conditions, [*filter(_is_total, early)], restrict)
        return None if inner is None else plan.withNewChildren(catalyst.vector(self._lowering.spark, [inner]))

    def _below_join(self, plan: J, conditions: Sequence[J], early: Sequence[J], restrict: Restriction) -> J | None:
        """Return a join whose side that the conditions refer to is restricted by them; None if it is not kept whole."""
        kind, _, _ = str(plan.joinType()).partition("(")
        left, right = plan.left(), plan.right()
        for position, side in enumerate((left, right)):
            if kind not in (KEEPS_LEFT, KEEPS_RIGHT)[position]:
                continue
            if all(_is_within(condition, plan, side) for condition in conditions):
                nearer = [condition for condition in early if _is_within(condition, plan, side)]
                inner = self._below(side, conditions, nearer, restrict) or restrict(side, conditions)
                children = [inner, right] if position == 0 else [left, inner]
                return plan.withNewChildren(catalyst.vector(self._lowering.spark, children))
        return None

    def _below_filter(self, node: J, conditions: Sequence[J], early: Sequence[J], restrict: Restriction) -> J | None:
        conjuncts = catalyst.split_conjuncts(node.condition())
        early = [*early, *filter(_is_total, conjuncts)]
        late = [conjunct for conjunct in conjuncts if not _is_total(conjunct)]
        costly = any(map(_is_costly, late))
        inner = self._below(node.child(), conditions, early, restrict)
        if not costly:
            return None if inner is None else self._filter(inner, conjuncts)
        if inner is None:
            inner, conjuncts = restrict(self._filter(node.child(), early), conditions), late
        return self._filter(inner, [self._hold(conjunct) if conjunct in late else conjunct for conjunct in conjuncts])

    def _hold(self, condition: J) -> J:
        """Return an equal condition that Spark leaves where it is, as all that depends on the partition.

        Every other condition of a costly filter is held too: one may fail for rows that another excludes.
        """
        if not condition.deterministic():  # held already
            return condition
        zero, false = (catalyst.parse_expression(self._lowering.spark, text) for text in ("0", "false"))
        always = self._expressions.GreaterThanOrEqual(self._expressions.SparkPartitionID(), zero)
        return self._expressions.If(always, condition, false)

    def _filter(self, plan: J, conditions: Sequence[J]) -> J:
        if not conditions:
            return plan
        return self._lowering.catalyst.plans.logical.Filter(reduce(self._expressions.And, conditions), plan)


def _is_within(condition: J, join: J, side: J) -> bool:
    """Return whether a condition refers to no columns of a join, which may make one itself, but those of a side."""
    return bool(condition.references().intersect(join.outputSet()).subsetOf(side.outputSet()))


def _is_total(condition: J) -> bool:
    """Return whether a condition has a value for every row; a literal's cast has."""
    if catalyst.kind(condition) == "Cast":
        return catalyst.kind(condition.child()) == "Literal"
    return catalyst.kind(condition) in TOTAL and all(map(_is_total, catalyst.sequence(condition.children())))


def _is_costly(condition: J) -> bool:
    return any(catalyst.kind(each) in COSTLY and not _is_plain(each) for each in catalyst.subexpressions(condition))


def _is_plain(expression: J) -> bool:
    """Return whether an expression is a LIKE of the beginning, the end or a part, which needs no pattern."""
    if catalyst.kind(expression) != "Like" or catalyst.kind(expression.right()) != "Literal":
        return False
    return not {"%", "_", str(expression.escapeChar())} & set(str(expression.right().value()).strip("%"))
