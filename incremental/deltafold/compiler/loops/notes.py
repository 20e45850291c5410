"""Explain properties of a loop that its printed plan does not show."""

from __future__ import annotations

from collections.abc import Iterator

from deltafold.algebra.plan import Aggregate, Join, Loop, Plan
from deltafold.algebra.traversal import walk
from deltafold.compiler.loops.places import reads_loop


def loop_notes(plan: Plan) -> tuple[str, ...]:
    """Return the notes on the loops of a plan."""
    loops = {node.name: node for node in walk(plan) if isinstance(node, Loop)}
    return tuple(note for loop in loops.values() for note in _notes(loop))


def _notes(loop: Loop) -> Iterator[str]:
    products = [node for node in walk(loop.step) if isinstance(node, Join) and _both_read(node, loop.name)]
    if loop.traits.by_one_level and products:
        yield (
            f"{loop.name} joins its rows with themselves: Spark joins those of one level only, which gives no "
            "transitive closure; write UNION, or join with the edges"
        )
    totals = [node for node in walk(loop.step) if isinstance(node, Aggregate) and not node.keys]
    if loop.traits.tolerant and any(not reads_loop(node, loop.name) for node in totals):
        yield (
            f"the step of {loop.name} reads a total of its other inputs, so any change of them changes every row; "
            "scale the answer by it above the loop instead"
        )


def _both_read(join: Join, name: str) -> bool:
    return all(reads_loop(child, name) for child in join.children)
