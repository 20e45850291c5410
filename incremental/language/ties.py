"""Language room: what Spark leaves open is settled. In: an analysed batch query. Out: the same with one answer.

| query | settled by |
| --- | --- |
| row_number, lag, lead, ntile, ROWS frames | all columns of the row, after the window's own order |
| ORDER BY with LIMIT or OFFSET | all columns of the row, after its own order |
| aggregates that take one of several rows | choices.py |

The view takes these answers, and so does the batch query that it is verified against.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from incremental import catalyst
from incremental.catalyst import J
from incremental.language.choices import Choices

RANKING = {"Rank", "DenseRank", "PercentRank", "CumeDist"}  # peers have the same rank
PEERLESS = {"First", "Last", "NthValue", "CollectList", "ListAgg"}  # what they give depends on the order of peers
DEDUPLICATE = "ReplaceDeduplicateWithAggregate"
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
    """Rewrites plans, whose aggregates `choices` settles."""

    def __init__(self, spark: SparkSession, choices: Choices) -> None:
        self._spark, self._choices = spark, choices
        self._expressions, self._logical = catalyst.catalyst(spark).expressions, catalyst.catalyst(spark).plans.logical

    def plan(self, node: J) -> J:
        """A plan, inputs first."""
        old = catalyst.sequence(node.children())
        new = [self.plan(child) for child in old]
        if any(a is not b for a, b in zip(old, new, strict=True)):
            node = node.withNewChildren(self._vector(new))
        match catalyst.kind(node):
            case "Aggregate":
                return self._choices.settled(node)
            case "Deduplicate":
                deduplicated = catalyst.module(catalyst.catalyst(self._spark).optimizer, DEDUPLICATE).apply(node)
                return self._choices.settled(deduplicated)
            case "Window":
                return self._window(node)
            case "LocalLimit" | "Offset":
                return self._limited(node)
            case _:
                return node

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


def ranged(frame: J) -> bool:
    """Whether a frame reaches as far as values do, not rows."""
    return catalyst.kind(frame.frameType()).startswith("Range")


def by_distance(frame: J) -> bool:
    """Whether an edge lies a distance away, which Spark allows for one order column alone: no other can settle it."""
    edges = [catalyst.kind(edge) for edge in (frame.lower(), frame.upper())]
    return ranged(frame) and not all(edge.startswith(("Unbounded", "CurrentRow")) for edge in edges)
