"""Language room: what Spark leaves open is settled. In: an analysed batch query. Out: the same with one answer.

| query | settled by |
| --- | --- |
| row_number, lag, lead, ntile, ROWS frames | all columns of the row, after the window's own order |
| ORDER BY with LIMIT or OFFSET | all columns of the row, after its own order |
| aggregates that take one of several rows | choices.py |

Within subqueries as outside. The view takes these answers, and so does the batch query that it is verified against.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from incremental import catalyst
from incremental.catalyst import J
from incremental.language.choices import Choices
from incremental.language.subqueries import with_inner_plans

RANKING = {"Rank", "DenseRank", "PercentRank", "CumeDist"}  # peers have the same rank
PEERLESS = {"First", "Last", "NthValue", "CollectList", "ListAgg"}  # what they give depends on the order of peers
DEDUPLICATE = "ReplaceDeduplicateWithAggregate"
STACKED = {"Sort", "GlobalLimit", "LocalLimit", "Offset"}
UNORDERED = "without an order nobody knows which rows it keeps"
LIMITING = {"GlobalLimit", "LocalLimit", "Offset", "Project", "SubqueryAlias"}


def settled(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The batch query with every choice settled; itself where it makes none."""
    plan = catalyst.analysed(frame)
    found = Ties(spark, Choices(spark, by_order=True)).plan(plan)
    return frame if found is plan else catalyst.frame(spark, found)


def determined(spark: SparkSession, plan: J) -> J:
    """The plan to translate: settled but for max_by and min_by, whose monoids settle them."""
    return Ties(spark, Choices(spark, by_order=False)).plan(plan)


class Ties:
    """Rewrites plans, whose aggregates `choices` settles; `correlated`: of subqueries that refer to a query around."""

    def __init__(self, spark: SparkSession, choices: Choices, correlated: bool = False) -> None:
        self._spark, self._choices, self._correlated = spark, choices, correlated
        self._expressions, self._logical = catalyst.catalyst(spark).expressions, catalyst.catalyst(spark).plans.logical

    def plan(self, node: J) -> J:
        """A plan, inputs and subqueries first."""
        old = catalyst.sequence(node.children())
        new = [self.plan(child) for child in old]
        if any(a is not b for a, b in zip(old, new, strict=True)):
            node = node.withNewChildren(self._vector(new))
        node = with_inner_plans(self._spark, node, self._inner)
        match catalyst.kind(node):
            case "Aggregate":
                return self._choices.settled(node)
            case "Deduplicate":
                deduplicated = catalyst.module(catalyst.catalyst(self._spark).optimizer, DEDUPLICATE).apply(node)
                return self._choices.settled(deduplicated)
            case "Window":
                return self._window(node)
            case "LocalLimit" | "Offset":
                return self._beside_its_order(self._limited(node))
            case "GlobalLimit":
                return self._beside_its_order(node)
            case _:
                return node

    def _inner(self, plan: J, correlated: bool) -> J:
        return Ties(self._spark, self._choices, correlated).plan(plan)

    def _beside_its_order(self, node: J) -> J:
        """A correlated limit next to its order, below what drops the columns of the order.

        Spark takes it for one without an order otherwise, and keeps any rows of each outer one.
        """
        shown = node.child()
        if not self._correlated or catalyst.kind(shown) != "Project" or catalyst.kind(shown.child()) not in STACKED:
            return node
        return shown.withNewChildren(self._vector([node.withNewChildren(shown.children())]))

    def _window(self, node: J) -> J:
        """Functions that tell peers apart move to a window of their own, whose order is total."""
        named = catalyst.sequence(node.windowExpressions())
        telling = [expression for expression in named if self._tells_peers_apart(expression)]
        if not telling:
            return node
        order = self._total(node.orderSpec(), node.child())

        def respecified(part: J) -> J | None:
            if catalyst.kind(part) != "WindowSpecDefinition":
                return None
            return self._expressions.WindowSpecDefinition(part.partitionSpec(), order, part.frameSpecification())

        rest = self._vector([expression for expression in named if expression not in telling])
        below = node.child()
        if len(telling) < len(named):
            below = self._logical.Window(rest, node.partitionSpec(), node.orderSpec(), below, node.hint())
        new = self._vector([catalyst.rewrite(self._spark, expression, respecified) for expression in telling])
        return self._logical.Window(new, node.partitionSpec(), order, below, node.hint())

    def _tells_peers_apart(self, named: J) -> bool:
        for node in catalyst.nodes(named):
            if catalyst.kind(node) == "WindowExpression":
                function, spec = node.windowFunction(), node.windowSpec()
                if catalyst.kind(function) == "AggregateExpression":
                    frame, peerless = spec.frameSpecification(), catalyst.kind(function.aggregateFunction()) in PEERLESS
                    return not ranged(frame) or (peerless and not by_distance(frame))
                return catalyst.kind(function) not in RANKING
        return False

    def _limited(self, node: J) -> J:
        if catalyst.kind(node) == "Sort":
            order = self._total(node.order(), node.child())
            if order.size() == node.order().size():
                return node
            return self._logical.Sort(order, True, node.child(), node.hint())
        if catalyst.kind(node) not in LIMITING:
            return node
        below = self._limited(node.child())
        return node if below is node.child() else node.withNewChildren(self._vector([below]))

    def _total(self, order: J, child: J) -> J:
        """An order, then all columns that have one."""
        known = catalyst.sequence(order)
        plain = {int(o.child().exprId().id()) for o in known if catalyst.kind(o.child()) == "AttributeReference"}
        ascending = catalyst.module(self._expressions, "Ascending")
        nil = self._vector([])
        more = [
            self._expressions.SortOrder(attribute, ascending, ascending.defaultNullOrdering(), nil)
            for attribute in catalyst.sequence(child.output())
            if int(attribute.exprId().id()) not in plain and self._choices.orderable(attribute)
        ]
        return self._vector([*known, *more])

    def _vector(self, items: list[J]) -> J:
        return catalyst.vector(self._spark, items)


def depends_on_peers(named: J) -> bool:
    """Whether a window function gives one of the rows at the edge of a RANGE frame, which are peers."""
    for node in catalyst.nodes(named):
        if catalyst.kind(node) == "AggregateExpression" and catalyst.kind(node.aggregateFunction()) in PEERLESS:
            frame = next(n for n in catalyst.nodes(named) if catalyst.kind(n) == "SpecifiedWindowFrame")
            edge = frame.lower() if catalyst.kind(node.aggregateFunction()) == "First" else frame.upper()
            return by_distance(frame) or (ranged(frame) and not catalyst.kind(edge).startswith("Unbounded"))
    return False


def left_open(window: J) -> tuple[str, str | None]:
    """The kind of a window that is settled as far as it can be, and what is still open in it."""
    named = catalyst.sequence(window.windowExpressions())
    numbering = any(catalyst.kind(node) == "RowNumber" for each in named for node in catalyst.nodes(each))
    if numbering and window.orderSpec().isEmpty():
        return "limit", UNORDERED  # as Spark writes one in a correlated subquery
    open_ended = any(depends_on_peers(each) for each in named)
    return "window", "among peers of its order any may be the last" if open_ended else None


def ranged(frame: J) -> bool:
    """Whether a frame reaches as far as values do, not rows."""
    return catalyst.kind(frame.frameType()).startswith("Range")


def by_distance(frame: J) -> bool:
    """Whether an edge lies a distance away, which Spark allows for one order column alone: no other can settle it."""
    edges = [catalyst.kind(edge) for edge in (frame.lower(), frame.upper())]
    return ranged(frame) and not all(edge.startswith(("Unbounded", "CurrentRow")) for edge in edges)
