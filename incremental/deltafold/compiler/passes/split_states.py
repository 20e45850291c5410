"""Pass: split the query into homomorphisms, loops and an answer (MRQL sections 8 and 9).

Each group-by becomes a state: the plan below it is h (over sources and over the answers of states further down), its
merge follows from its accumulators, and its readers read the state's answers instead. A loop becomes a stage in the
same way, after the states of its init and of its side inputs. What remains is the answer a.

A group-by below another starts its lineage key with the outer key, so that all inner groups of one outer group are
stored together, and both states in the same bucket.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from deltafold.algebra.loops import LoopState
from deltafold.algebra.monoids.family import infer_accumulator
from deltafold.algebra.monoids.kinds import Monoid
from deltafold.algebra.plan import Aggregate, Column, Item, Loop, Plan, Project, Reference, StateRead
from deltafold.algebra.program import Slot, Stage, State
from deltafold.algebra.traversal import replace_children
from deltafold.compiler.draft import Draft
from deltafold.compiler.loops.stages import loop_stage

LIST_MONOIDS = {"collectlist", "listagg"}


def split_states(draft: Draft) -> Draft:
    """Return the answer plan and its stages, inputs first, with a note for each answer that Spark leaves open."""
    states: list[State] = []
    stages: dict[str, Stage] = {}

    def cut_loop(loop: Loop) -> Plan:
        stage = stages.get(loop.name)  # a loop may be read several times
        if not isinstance(stage, LoopState):
            stage = loop_stage(loop, lambda plan: split(plan, ()))
        stages[stage.name] = stage
        read = StateRead(stage.name, stage.columns)
        items = tuple(Item(c, Reference(own)) for c, own in zip(loop.columns, stage.columns, strict=True))
        return read if loop.columns == stage.columns else Project(read, items)

    def split(node: Plan, outer: tuple[str, ...]) -> Plan:
        if isinstance(node, Loop):
            return cut_loop(node)
        inner = pass_key_down(node, outer)
        over_states = replace_children(node, tuple(split(child, inner) for child in node.children))
        if not isinstance(over_states, Aggregate):
            return over_states
        key = lineage_key(over_states, outer)
        slots = tuple(Slot(call, infer_accumulator(call)) for call in over_states.calls)
        state = State(
            name=f"state_{len(states) + 1}",
            input=over_states.child,
            keys=key.keys,
            bucket_by=key.bucket_by,
            slots=slots,
        )
        states.append(state)
        stages[state.name] = state
        return StateRead(state.name, over_states.columns)  # in the query's order: a union matches by position

    answer = split(draft.plan, ())
    return replace(draft, plan=answer, stages=tuple(stages.values()), notes=(*_tie_rules(states), *draft.notes))


def _tie_rules(states: list[State]) -> tuple[str, ...]:
    rules = [(slot.call.text, _tie_rule(slot)) for state in states for slot in state.slots]
    return tuple(dict.fromkeys(f"{text}: {rule}" for text, rule in rules if rule))


def _tie_rule(slot: Slot) -> str | None:
    """Return which of several equally good answers of an aggregate is taken; None if there is only one."""
    if slot.call.function in LIST_MONOIDS and not slot.call.distinct:
        return "sorted; the lists of a group-by are columns of its rows in one order"
    return slot.accumulator.tie_rule if isinstance(slot.accumulator, Monoid) else None


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
