"""Pass: split the query into homomorphisms and an answer (MRQL sections 8 and 9).

Each group-by becomes a state: the plan below it is h (over sources and over the answers of states further down), its
merge follows from its accumulators, and its readers read the state's answers instead. What remains is the answer a.

A group-by below another starts its lineage key with the outer key, so that all inner groups of one outer group are
stored together, and both states in the same bucket.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from incremental.algebra.monoids.family import infer_accumulator
from incremental.algebra.monoids.kinds import Monoid
from incremental.algebra.plan import Aggregate, Column, Plan, Project, Reference, StateRead
from incremental.algebra.program import Slot, State
from incremental.algebra.traversal import replace_children
from incremental.compiler.draft import Draft


def split_states(draft: Draft) -> Draft:
    """Return the answer plan and its states, inputs first, with a note for each answer that Spark leaves open."""
    states: list[State] = []

    def split(node: Plan, outer: tuple[str, ...]) -> Plan:
        inner = pass_key_down(node, outer)
        over_states = replace_children(node, tuple(split(child, inner) for child in node.children))
        if not isinstance(over_states, Aggregate):
            return over_states
        key = lineage_key(over_states, outer)
        slots = tuple(Slot(call, infer_accumulator(call)) for call in over_states.calls)
        state = State(f"state_{len(states) + 1}", over_states.child, key.keys, key.bucket_by, slots)
        states.append(state)
        return StateRead(state.name, over_states.columns)  # in the query's order: a union matches by position

    answer = split(draft.plan, ())
    return replace(draft, plan=answer, states=tuple(states), notes=(*_tie_rules(states), *draft.notes))


def _tie_rules(states: list[State]) -> tuple[str, ...]:
    slots = [slot for state in states for slot in state.slots]
    rules = [(slot.call.text, slot.accumulator.tie_rule) for slot in slots if isinstance(slot.accumulator, Monoid)]
    return tuple(dict.fromkeys(f"{text}: {rule}" for text, rule in rules if rule))


@dataclass(frozen=True)
class LineageKey:
    """The key of a state: all its columns in storage order, and the prefix shared with the group-by above."""

    keys: tuple[Column, ...]
    bucket_by: tuple[Column, ...]


def lineage_key(aggregate: Aggregate, outer: tuple[str, ...]) -> LineageKey:
    """Return the key of a group-by below one that groups by the columns `outer`."""
    by_name = {column.name: column for column in aggregate.keys}
    shared = tuple(by_name[name] for name in outer if name in by_name)
    rest = tuple(column for column in aggregate.keys if column not in shared)
    return LineageKey(shared + rest, shared or aggregate.keys)


def pass_key_down(plan: Plan, outer: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the outer key in a node's first input; () if the node does not pass it through."""
    match plan:
        case Project(items=items):
            names = {item.column.name: item.scalar.column.name for item in items if isinstance(item.scalar, Reference)}
            return tuple(names[name] for name in outer) if all(name in names for name in outer) else ()
        case Aggregate(keys=keys):
            own = tuple(column.name for column in keys)
            return tuple(name for name in outer if name in own) or own
        case _:
            return outer
