"""Read LIMIT and OFFSET with the orders and projections among them."""

from __future__ import annotations

from collections.abc import Sequence

from deltafold.language.names import Names
from deltafold.language.translation.scalars import Scalars
from deltafold.language.translation.shapes import is_projected_sort, without_alias
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

KEYWORDS = {
    "GlobalLimit": "limit",
    "Offset": "offset",
    "Sort": "order by",
    "Project": "project",
}  # a LocalLimit repeats its GlobalLimit


def limit_stack(node: J) -> list[J]:
    """Return a limit and the nodes below it that decide which rows it keeps or shows, outermost first."""
    stack: list[J] = []
    while catalyst.kind(node) in ("LocalLimit", *KEYWORDS):
        if catalyst.kind(node) == "Project" and not is_projected_sort(node):
            break
        stack.append(node)
        node = node.child()
    return stack


def is_ordered(stack: Sequence[J]) -> bool:
    """Return whether each limit has an order of its own, or that of a limit below it, whose rows stay in order."""
    deciding = [kind for node in stack if (kind := catalyst.kind(node)) != "Project"]
    return deciding[-1] == "Sort"


def limit_text(stack: Sequence[J], scalars: Scalars, names: Names) -> str:
    """Return the text of a limit's nodes, without Spark's expression numbers."""
    return ", ".join(text for node in stack if (text := _node_text(node, scalars, names)))


def _node_text(node: J, scalars: Scalars, names: Names) -> str:
    """Return the text of one node; none of a projection that only drops columns, or repeats another node."""
    kind = catalyst.kind(node)
    if kind == "LocalLimit" or (kind == "Project" and all(map(_is_column, catalyst.sequence(node.projectList())))):
        return ""
    texts = [scalars.operator_text(without_alias(expression)) for expression in catalyst.sequence(node.expressions())]
    if kind == "Project":
        columns = [names.column(attribute) for attribute in catalyst.sequence(node.output())]
        texts = [f"{text} AS {column.name}" for text, column in zip(texts, columns, strict=True)]
    return f"{KEYWORDS[kind]} {', '.join(texts)}"


def _is_column(expression: J) -> bool:
    return catalyst.kind(expression) == "AttributeReference"
