"""Compiler room: a program as text for people. In: a `Program` or the refusals of a query. Out: deterministic lines."""

from __future__ import annotations

import re

from incremental.algebra.errors import Refusal
from incremental.algebra.plan import Plan
from incremental.algebra.program import InPlace, Program, State
from incremental.compiler.verdicts import verdicts

DIGEST = re.compile(r" ~ python \S+ [0-9a-f]{12}")


def explain(name: str, program: Program, views: frozenset[str] = frozenset()) -> str:
    """The split, the states, the publication, and each node with the rule that maintains it; views: among sources."""
    lines = [f"view {name}: incremental  (fingerprint {program.fingerprint})", ""]
    for state in program.states:
        lines += state_lines(state)
    match program.publication:
        case InPlace(state=state_name, because=because):
            lines.append(f"answer: columns of {state_name}, one MERGE and one commit ({because})")
        case table:
            lines.append(f"answer: a table of its own, changed and never rewritten ({table.because})")
    lines += ["columns: " + ", ".join(f"{name} {column.type}" for column, name in program.outputs), ""]
    nodes = ["  " * v.depth + said(v.node, views) for v in program.verdicts]
    width = min(max(map(len, nodes)), 78)
    lines += [f"{node:<{width}}  | {v.rule}" for node, v in zip(nodes, program.verdicts, strict=True)]
    lines += [f"note: {note}" for note in program.notes]
    return "\n".join(lines)


def outline(plan: Plan) -> tuple[str, ...]:
    """The operators of a query as it was written, one a line, without the digests of functions."""
    found = verdicts(plan, frozenset())
    return tuple("  " * verdict.depth + DIGEST.sub("", verdict.node) for verdict in found)


def said(node: str, views: frozenset[str]) -> str:
    """A node's line; a source that is the answer of a view says so."""
    kind, _, rest = node.partition(" ")
    return f"view {rest}" if kind == "source" and rest.split(" ")[0] in views else node


def state_lines(state: State) -> list[str]:
    """One state: lineage key, buckets, monoid columns."""
    keys = f"({', '.join(column.name for column in state.keys)})" if state.keys else "() (one row)"
    buckets = ", ".join(column.name for column in state.bucket_by) or "none"
    stored = ["group row count", *(f"{slot.call.column.name}: {slot.accumulator.name}" for slot in state.slots)]
    merge = "additive" if state.invertible else "deletions subtract, or recompute the groups they reach"
    if state.recompute_always:
        merge = "none: touched groups are computed anew"
    return [
        f"{state.name}: lineage key {keys}, buckets by {buckets}",
        f"  keeps {'; '.join(stored)}",
        f"  merge {merge}",
    ]


def explain_refusal(name: str, refusals: tuple[Refusal, ...], policy: str = "incremental") -> str:
    """That a query is refused, or recomputed under another policy, and what is against maintaining it."""
    what = "refused" if policy == "incremental" else f"recompute at each refresh (policy {policy})"
    return "\n".join([f"view {name}: {what}", *(f"  {refusal}" for refusal in refusals)])
