"""Recognise the shapes of Catalyst's plans and expressions."""

from __future__ import annotations

from deltafold.spark import catalyst
from deltafold.spark.catalyst import J


def is_session(key: J) -> bool:
    """Return whether a grouping key is a session, whose rows depend on the rows between them."""
    return catalyst.kind(key) == "AttributeReference" and bool(key.metadata().contains("spark.sessionWindow"))


def is_projected_sort(node: J) -> bool:
    """Return whether a node is a projection between a limit and the order that decides which rows it keeps."""
    return catalyst.kind(node) == "Project" and catalyst.kind(node.child()) == "Sort"


def without_alias(named: J) -> J:
    """Return the value of a named expression."""
    return named.child() if catalyst.kind(named) == "Alias" else named
