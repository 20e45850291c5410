"""Pass: explain how each node of the query is maintained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import assert_never

from deltafold.algebra.constraints import AppendOnlyFact, ForeignKeyFact, find_reference
from deltafold.algebra.monoids.family import infer_accumulator
from deltafold.algebra.plan import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    Given,
    GroupwiseOp,
    Join,
    Loop,
    Plan,
    Project,
    SourceRead,
    StateRead,
    Union,
    Unsupported,
    Values,
)
from deltafold.algebra.product import flatten_joins, rank_inputs
from deltafold.algebra.program import NodeRule
from deltafold.algebra.traversal import source_names, walk
from deltafold.compiler.draft import Draft
from deltafold.compiler.loops.clusters import is_clustered
from deltafold.compiler.loops.steps import reads_loop
from deltafold.compiler.operators import (
    CLUSTERS,
    CONVERGENCE,
    DISTINCT,
    INNER,
    LEVELS,
    LINEAR,
    OUTER,
    RECURSION,
    REPLAY,
    WHOLE,
    WINDOW,
)
from deltafold.compiler.passes.refuse_unmaintainable import explain_unsupported
from deltafold.compiler.plan_text import condition_texts, node_text, shown_inputs

STEP_RULE = "evaluated in each step"


def explain_rules(draft: Draft) -> Draft:
    """Return the query with the rule for each node, from the answer down to the sources."""
    return replace(
        draft,
        node_rules=tuple(_node_rules(draft.plan, draft, 0)),
        notes=(*draft.notes, *_loop_notes(draft.plan), *_monoid_notes(draft.plan)),
    )


def _monoid_notes(plan: Plan) -> tuple[str, ...]:
    """Return the definitions of the declared monoids that a plan calls."""
    calls = (call for node in walk(plan) if isinstance(node, Aggregate) for call in node.calls)
    monoids = dict.fromkeys(call.declared for call in calls if call.declared is not None)
    return tuple(f"monoid {monoid.name}: {monoid.text}" for monoid in monoids)


def _node_rules(plan: Plan, draft: Draft, depth: int, loop: Loop | None = None) -> Iterator[NodeRule]:
    """Yield the rules of the nodes of a plan; loop: that whose step it is a part of."""
    if loop is not None and not reads_loop(plan, loop.name):
        loop = None
    rule = _rule(plan, draft) if loop is None else _step_rule(plan, loop)
    yield NodeRule(node_text(plan, draft.views), rule, depth)
    yield from (NodeRule(condition, "condition", depth + 1) for condition in condition_texts(plan))
    for child in shown_inputs(plan):
        step = isinstance(plan, Loop) and child is plan.step
        yield from _node_rules(child, draft, depth + 1, plan if step and isinstance(plan, Loop) else loop)


def _step_rule(plan: Plan, loop: Loop) -> str:
    """Return how a node that reads the rows of a loop is maintained in its step."""
    if isinstance(plan, Given):
        return "the rows of the loop"
    if is_clustered(loop):
        return "over the change alone, by the stored centers"
    return STEP_RULE if loop.traits.replayed else "linear, in each round"


def _loop_rule(loop: Loop) -> str:
    """Return how a loop is maintained."""
    if is_clustered(loop):
        return CLUSTERS.rule
    if loop.traits.replayed:
        return (REPLAY if loop.traits.fixed_steps else CONVERGENCE).rule
    return (RECURSION if loop.traits.is_set else LEVELS).rule


def _rule(plan: Plan, draft: Draft) -> str:
    match plan:
        case SourceRead(relation=name):
            if name in draft.invariant:
                return "declared invariant: no term"
            changing = "added" if AppendOnlyFact(name) in draft.facts else "added or removed"
            return f"files {changing} between two versions"
        case StateRead():
            return "touched groups, before and after"
        case Values():
            return "constant: no term"
        case Project() | Filter() | Generate() | Expand() | Union():
            return LINEAR.rule
        case Join():
            return "; ".join([_join_rule(plan, draft.invariant), *_omitted_terms(plan, draft)])
        case Aggregate(calls=calls):
            kept = [(call.text, infer_accumulator(call)) for call in calls]
            return "; ".join(f"{text}: {monoid.name}, {monoid.deletions}" for text, monoid in kept) or DISTINCT.rule
        case GroupwiseOp(keys=keys):
            return f"{(WINDOW if keys else WHOLE).rule}; ties broken by all columns"
        case Given():
            return "the rows of the loop"
        case Loop():
            return _loop_rule(plan)
        case Unsupported():
            return explain_unsupported(plan)[0]
        case _:
            assert_never(plan)


def _join_rule(node: Join, invariant: frozenset[str]) -> str:
    """Return which inputs contribute a term."""
    inputs = shown_inputs(node)
    fixed = [all(name in invariant for name in source_names(side)) for side in inputs]
    names = dict.fromkeys(name for side, f in zip(inputs, fixed, strict=True) if f for name in source_names(side))
    linear = f"linear: {', '.join(names) or 'constants'} does not change"
    if node.kind == "inner":
        changing = fixed.count(False)
        return linear if changing < 2 else f"{changing} terms: {INNER.rule}"
    if {"right": fixed[0], "full": all(fixed)}.get(node.kind, fixed[1]):
        return linear
    return OUTER.rule if node.keys else f"{OUTER.rule} (no equality: r is read in full)"


def _omitted_terms(node: Join, draft: Draft) -> list[str]:
    """Return the terms of a join that a foreign key makes empty, and why."""
    if node.kind == "inner":
        product = flatten_joins(node)
        references = product.references(draft.facts)
        rank = rank_inputs(len(product.inputs), [(referred, referring) for referring, referred, _ in references])
        empty = (fact for one, other, fact in references if rank[other] < rank[one] and fact.to not in draft.invariant)
        return list(dict.fromkeys(_no_term(fact, draft) for fact in empty))
    mirrored = node.kind == "right"
    left, right = (node.right, node.left) if mirrored else (node.left, node.right)
    pairs = [(two, one) if mirrored else (one, two) for one, two, _ in node.keys]
    lines: list[str] = []
    if (fact := find_reference(draft.facts, left, right, pairs)) is not None and fact.to not in draft.invariant:
        lines.append(_no_term(fact, draft) if node.kind != "full" else _no_match(fact))
    if (fact := find_reference(draft.facts, right, left, [(two, one) for one, two in pairs])) is not None:
        lines.append(_no_match(fact))
    return lines


def _no_term(fact: ForeignKeyFact, draft: Draft) -> str:
    when = "" if AppendOnlyFact(fact.to) in draft.facts else " if its rows were only added or only removed"
    return f"no term for {fact.to}{when}: no existing row of {fact.source} refers to a new row of it ({_key(fact)})"


def _no_match(fact: ForeignKeyFact) -> str:
    return f"new rows of {fact.to} match no existing row of {fact.source} ({_key(fact)})"


def _key(fact: ForeignKeyFact) -> str:
    return f"foreign key {', '.join(fact.columns)}"


def _loop_notes(plan: Plan) -> tuple[str, ...]:
    """Return the notes on the loops of a plan."""
    loops = {node.name: node for node in walk(plan) if isinstance(node, Loop)}
    return tuple(note for loop in loops.values() for note in _notes_of_loop(loop))


def _notes_of_loop(loop: Loop) -> Iterator[str]:
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
