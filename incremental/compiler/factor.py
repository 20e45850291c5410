"""Compiler pass: split the query into homomorphisms and an answer (MRQL section 9). In: a plan. Out: states and a plan.

Each group-by becomes a state: what is below it is h (over sources and over the answers of states further down), its
merge comes from the monoids, and whoever reads it reads the state's answers. What is left on top is the answer a.
"""

from __future__ import annotations

from incremental.algebra.monoids.family import infer_accumulator
from incremental.algebra.plan import Aggregate, Plan, StateRead
from incremental.algebra.program import Slot, State
from incremental.algebra.traversal import replace_children
from incremental.compiler.lineage import below, lineage_key


def factor(plan: Plan) -> tuple[tuple[State, ...], Plan]:
    """All states, inputs first, and the answer plan over them."""
    states: list[State] = []

    def cut(node: Plan, outer: tuple[str, ...]) -> Plan:
        inner = below(node, outer)
        node_below = replace_children(node, tuple(cut(child, inner) for child in node.children))
        if not isinstance(node_below, Aggregate):
            return node_below
        key = lineage_key(node_below, outer)
        slots = tuple(Slot(call, infer_accumulator(call)) for call in node_below.calls)
        state = State(f"state_{len(states) + 1}", node_below.child, key.keys, key.bucket_by, slots)
        states.append(state)
        return StateRead(state.name, node_below.columns)  # in the query's order: a union goes by position

    answer = cut(plan, ())
    return tuple(states), answer
