"""Compiler pass: where the answer is published. In: states and the answer plan. Out: a `Publication` with its reason.

When the answer is a function of one row of one state, its columns are kept in the state table itself: one MERGE and
one commit give both, and readers get an ordinary table. Anything else has a view table of its own.
"""

from __future__ import annotations

from typing import Literal

from incremental.algebra.plan import Column, Filter, Item, Opaque, Plan, Project, Reference, StateRead
from incremental.algebra.program import InPlace, OwnTable, Publication, State

Publish = Literal["auto", "table"]


def publication(
    states: tuple[State, ...], answer: Plan, outputs: tuple[tuple[Column, str], ...], publish: Publish
) -> Publication:
    """The cheapest publication that still gives readers an ordinary table."""
    if publish == "table":
        return OwnTable("the pipeline asks for a table of its own")
    chain: list[tuple[Item, ...]] = []
    node = answer
    while isinstance(node, Project):
        chain.append(node.items)
        node = node.child
    if isinstance(node, Filter):
        return OwnTable("a condition on the answer hides groups that the state must keep")
    if not isinstance(node, StateRead) or not states or node.state != states[-1].name:
        return OwnTable("the answer is not a function of one row of one state")
    if len(chain) > 1:
        return OwnTable("the answer is computed in several steps")
    given = {item.column: item for item in chain[0]} if chain else {c: Item(c, Reference(c)) for c in node.columns}
    items = tuple(Item(Column(name, column.type), given[column].scalar) for column, name in outputs)
    if any(isinstance(item.scalar, Opaque) and item.scalar.handle is None for item in items):
        return OwnTable("the answer is only known as text")
    return InPlace(node.state, items, "the answer is a function of one row of the state")
