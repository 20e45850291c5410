"""Language room: what Spark leaves open is settled. In: an analysed batch query. Out: the same with one answer.

| query | settled by |
| --- | --- |
| row_number, lag, lead, ntile, ROWS frames | all columns of the row, after the window's own order |
| a RANGE frame whose first, last, nth or listed values are asked for | the same, and peers stay in the frame |
| ORDER BY with LIMIT or OFFSET | all columns of the row, after its own order |
| aggregates that take one of several rows | choices.py |

Within subqueries as outside. The view takes these answers, and so does the batch query that it is verified against.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from incremental.language.choices import CHOOSING, Choices
from incremental.language.normalise import inlined
from incremental.language.subqueries import with_inner_plans
from incremental.spark import catalyst
from incremental.spark.catalyst import J

RANKING = {"Rank", "DenseRank", "PercentRank", "CumeDist"}  # peers have the same rank
# what they give depends on the order of peers
PEERLESS = {"First", "Last", "AnyValue", "NthValue", "CollectList", "ListAgg"}
ORDERLESS = {"Median", "PercentileCont", "PercentileDisc"}  # Spark allows no order beside them
FORWARD, BACKWARD = {"First", "AnyValue"}, {"Last"}
DEDUPLICATE = "ReplaceDeduplicateWithAggregate"
STACKED = {"Sort", "GlobalLimit", "LocalLimit", "Offset"}
UNORDERED = "without an order nobody knows which rows it keeps"
# what keeps an order
LIMITING = {"GlobalLimit", "LocalLimit", "Offset", "Project", "SubqueryAlias", "Filter", "PipeOperator"}


def settled(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The batch query with every choice settled; itself where it makes none."""
    plan = inlined(spark, catalyst.analysed(frame))
    found = Ties(spark, Choices(spark, by_order=True)).plan(plan)
    return frame if found is plan else catalyst.frame(spark, found)


def determined(spark: SparkSession, plan: J) -> J:
    """The plan to translate: settled but for max_by and min_by, whose monoids settle them."""
    return Ties(spark, Choices(spark, by_order=False)).plan(inlined(spark, plan))


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
        given = catalyst.sequence(node.windowExpressions())
        named = [self._chosen(expression) for expression in given]
        telling = [expression for expression in named if self._tells_peers_apart(expression)]
        if not telling and all(a is b for a, b in zip(given, named, strict=True)):
            return node
        order = self._total(node.orderSpec(), node.child())
        below = node.child()
        if len(telling) < len(named):
            rest = self._vector([expression for expression in named if expression not in telling])
            below = self._logical.Window(rest, node.partitionSpec(), node.orderSpec(), below, node.hint())
        to_peers = [expression for expression in telling if ends_at_peers(expression)]
        if len(to_peers) < len(telling):
            totally = [self._over(e, node.partitionSpec(), order) for e in telling if e not in to_peers]
            below = self._logical.Window(self._vector(totally), node.partitionSpec(), order, below, node.hint())
        return self._up_to_peers(node, to_peers, order, below) if to_peers else below

    def _chosen(self, named: J) -> J:
        """A function whose choice has an order of its own, settled by that as in a group."""
        function, frame = window_of(named)
        by_value = ranged(frame) and catalyst.kind(called(function)) in CHOOSING | {"Mode"}
        if not by_value and not says_its_order(function):
            return named
        settled_function = Choices(self._spark, by_order=True).call(function)
        return catalyst.rewrite(self._spark, named, lambda part: settled_function if part.equals(function) else None)

    def _over(self, named: J, partition: J, order: J) -> J:
        """A window function in another order."""

        def respecified(part: J) -> J | None:
            if catalyst.kind(part) != "WindowSpecDefinition":
                return None
            return self._expressions.WindowSpecDefinition(partition, order, part.frameSpecification())

        return catalyst.rewrite(self._spark, named, respecified)

    def _up_to_peers(self, node: J, named: list[J], order: J, below: J) -> J:
        """Functions over RANGE frames that end at peers: each peer gets what the farthest has in a total order.

        A total order alone would leave no peers, and so take them out of the frame.
        """
        partition = node.partitionSpec()
        keys = [each.child() for each in catalyst.sequence(node.orderSpec())]
        peers = self._vector([*catalyst.sequence(partition), *keys])
        ends = [catalyst.module(self._expressions, f"Unbounded{side}") for side in ("Preceding", "Following")]
        farthest: list[J] = []
        shared: list[J] = []
        for each in named:
            function, frame = window_of(each)
            if to_end(frame.lower()) or to_end(frame.upper()):
                running = self._windowed(function, partition, order, [frame.lower(), frame.upper()])
                farthest.append(self._alias(each.name(), running))
                pick = self._expressions.aggregate.Last if to_end(frame.lower()) else self._expressions.aggregate.First
                function = pick(farthest[-1].toAttribute(), False).toAggregateExpression()
            whole = self._windowed(function, peers, order, ends)
            shared.append(catalyst.alias(self._spark, whole, each.toAttribute()))
        if farthest:
            below = self._logical.Window(self._vector(farthest), partition, order, below, node.hint())
        return self._logical.Window(self._vector(shared), peers, order, below, node.hint())

    def _windowed(self, function: J, partition: J, order: J, edges: list[J]) -> J:
        """A function over a frame of ROWS."""
        frame = self._expressions.SpecifiedWindowFrame(catalyst.module(self._expressions, "RowFrame"), *edges)
        spec = self._expressions.WindowSpecDefinition(partition, order, frame)
        return self._expressions.WindowExpression(function, spec)

    def _alias(self, name: str, expression: J) -> J:
        """A new column of an expression."""
        identifier = catalyst.module(self._expressions, "NamedExpression").newExprId()
        attribute = catalyst.attribute(self._spark, name, expression.dataType(), True, identifier)
        return catalyst.alias(self._spark, expression, attribute)

    def _tells_peers_apart(self, named: J) -> bool:
        function, frame = window_of(named)
        if catalyst.kind(called(function)) in RANKING | ORDERLESS or says_its_order(function):
            return False
        return not ranged(frame) or (is_peerless(function) and not by_distance(frame))

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


def window_of(named: J) -> tuple[J, J]:
    """The function of a column of a window, and its frame."""
    call = next(node for node in catalyst.subexpressions(named) if catalyst.kind(node) == "WindowExpression")
    return call.windowFunction(), call.windowSpec().frameSpecification()


def called(function: J) -> J:
    """What a window function computes."""
    return function.aggregateFunction() if catalyst.kind(function) == "AggregateExpression" else function


def says_its_order(function: J) -> bool:
    """Whether it is a listagg WITHIN GROUP, beside whose order Spark allows no other."""
    return catalyst.kind(called(function)) == "ListAgg" and not called(function).orderExpressions().isEmpty()


def is_peerless(function: J) -> bool:
    """Whether a window function may give something else in another order of peers."""
    return catalyst.kind(called(function)) in PEERLESS


def ends_at_peers(named: J) -> bool:
    """Whether a function needs all the peers at the end of its RANGE frame; the first of an order is there at once."""
    function, frame = window_of(named)
    kind, lower, upper = catalyst.kind(called(function)), to_end(frame.lower()), to_end(frame.upper())
    if not ranged(frame) or (lower and upper):
        return False
    if kind in FORWARD | BACKWARD and not called(function).ignoreNulls():
        return not (lower if kind in FORWARD else upper)
    return True


def to_end(edge: J) -> bool:
    """Whether a frame reaches to the end of its partition there."""
    return catalyst.kind(edge).startswith("Unbounded")


def left_open(window: J) -> tuple[str, str | None]:
    """The kind of a window that is settled as far as it can be, and what is still open in it."""
    named = catalyst.sequence(window.windowExpressions())
    if window.orderSpec().isEmpty() and any(catalyst.kind(window_of(each)[0]) == "RowNumber" for each in named):
        return "limit", UNORDERED  # as Spark writes one in a correlated subquery
    calls = [window_of(each) for each in named]
    open_ended = any(by_distance(frame) and is_peerless(function) for function, frame in calls)
    return "window", "among peers of its order any may be the last" if open_ended else None


def ranged(frame: J) -> bool:
    """Whether a frame reaches as far as values do, not rows."""
    return catalyst.kind(frame.frameType()).startswith("Range")


def by_distance(frame: J) -> bool:
    """Whether an edge lies a distance away, which Spark allows for one order column alone: no other can settle it."""
    edges = [catalyst.kind(edge) for edge in (frame.lower(), frame.upper())]
    return ranged(frame) and not all(edge.startswith(("Unbounded", "CurrentRow")) for edge in edges)
