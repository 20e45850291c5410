"""Language room: what Catalyst's plans look like. In: a node or an expression. Out: yes or no, or its parts."""

from __future__ import annotations

from incremental.spark import catalyst
from incremental.spark.catalyst import J


def is_session(key: J) -> bool:
    """Whether a grouping key is a session: which rows share one depends on the rows between them."""
    return catalyst.kind(key) == "AttributeReference" and bool(key.metadata().contains("spark.sessionWindow"))


def conjuncts(condition: J) -> list[J]:
    """What a condition is the conjunction of."""
    if catalyst.kind(condition) != "And":
        return [condition]
    return [part for side in catalyst.sequence(condition.children()) for part in conjuncts(side)]


def is_projected_sort(node: J) -> bool:
    """Whether a projection only stands between a limit and the order that decides what it keeps."""
    return catalyst.kind(node) == "Project" and catalyst.kind(node.child()) == "Sort"


def unaliased(named: J) -> J:
    """The value of a named expression."""
    return named.child() if catalyst.kind(named) == "Alias" else named
