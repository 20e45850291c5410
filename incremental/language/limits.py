"""Language room: LIMIT and OFFSET, with orders and projections among them. In: a limit. Out: its stack, its text."""

from __future__ import annotations

from collections.abc import Sequence

from incremental.language.names import Names
from incremental.language.scalars import Scalars
from incremental.language.shapes import is_projected_sort, unaliased
from incremental.spark import catalyst
from incremental.spark.catalyst import J

WORDS = {
    "GlobalLimit": "limit",
    "Offset": "offset",
    "Sort": "order by",
    "Project": "project",
}  # LocalLimit says no more


def limit_stack(node: J) -> list[J]:
    """A limit and all below it that decides which rows it keeps or how they look, outermost first."""
    stack: list[J] = []
    while catalyst.kind(node) in ("LocalLimit", *WORDS):
        if catalyst.kind(node) == "Project" and not is_projected_sort(node):
            break
        stack.append(node)
        node = node.child()
    return stack


def is_ordered(stack: Sequence[J]) -> bool:
    """Whether each limit has an order of its own, or that of a limit below it, whose rows stay in order."""
    deciding = [kind for node in stack if (kind := catalyst.kind(node)) != "Project"]
    return deciding[-1] == "Sort"


def limit_text(stack: Sequence[J], scalars: Scalars, names: Names) -> str:
    """What the nodes of a limit do, without Spark's expression numbers."""
    return ", ".join(text for node in stack if (text := node_text(node, scalars, names)))


def node_text(node: J, scalars: Scalars, names: Names) -> str:
    """What one of them does; nothing of a projection that only drops columns, and of what another node says."""
    kind = catalyst.kind(node)
    if kind == "LocalLimit" or (kind == "Project" and all(map(is_column, catalyst.sequence(node.projectList())))):
        return ""
    texts = [scalars.operated(unaliased(expression)) for expression in catalyst.sequence(node.expressions())]
    if kind == "Project":
        columns = [names.column(attribute) for attribute in catalyst.sequence(node.output())]
        texts = [f"{text} AS {column.name}" for text, column in zip(texts, columns, strict=True)]
    return f"{WORDS[kind]} {', '.join(texts)}"


def is_column(expression: J) -> bool:
    """Whether an expression is a column as it is."""
    return catalyst.kind(expression) == "AttributeReference"
