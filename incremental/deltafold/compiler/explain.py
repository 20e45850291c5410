"""Explain a compiled program, a refusal, or the passes of the compiler as deterministic text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from deltafold.algebra.errors import Refusal, RefusedError
from deltafold.algebra.loops import LoopState
from deltafold.algebra.program import InPlace, OwnTable, Program, Publication, State
from deltafold.algebra.recipe import name_computed_keys
from deltafold.compiler.compile import PASSES, run_passes
from deltafold.compiler.draft import Draft
from deltafold.compiler.plan_text import plan_lines

WIDEST_NODE = 78


def explain_program(name: str, program: Program) -> str:
    """Return the split, the states, the publication, and each node with the rule that maintains it."""
    lines = [f"view {name}: incremental  (fingerprint {program.fingerprint})", ""]
    for stage in program.stages:
        lines += _state_lines(stage) if isinstance(stage, State) else _loop_lines(stage)
    lines.append(f"answer: {_publication_text(program.publication)}")
    lines += ["columns: " + ", ".join(f"{name} {column.type}" for column, name in program.outputs), ""]
    nodes = ["  " * rule.depth + name_computed_keys(rule.node) for rule in program.node_rules]
    width = min(max(map(len, nodes)), WIDEST_NODE)
    lines += [f"{node:<{width}}  | {rule.rule}" for node, rule in zip(nodes, program.node_rules, strict=True)]
    lines += [f"note: {note}" for note in program.notes]
    return name_computed_keys("\n".join(lines))


def explain_refusal(name: str, refusals: Sequence[Refusal], policy: str = "incremental") -> str:
    """Return the text for a query that is refused, or recomputed under another policy, with the reasons."""
    outcome = "refused" if policy == "incremental" else f"recompute at each refresh (policy {policy})"
    return name_computed_keys("\n".join([f"view {name}: {outcome}", *(f"  {refusal}" for refusal in refusals)]))


def explain_passes(draft: Draft) -> str:
    """Return the plan of a translated query, and the plan after each pass; a refused query ends at its refusal."""
    shown = draft_lines(draft)
    lines = ["translated:", *_indent(shown)]
    pending = [compiler_pass.__name__ for compiler_pass in PASSES]
    try:
        for name, after in run_passes(draft, checked=True):
            pending.remove(name)
            before = shown
            shown = draft_lines(after)
            lines += [f"{name}: no change"] if shown == before else [f"{name}:", *_indent(shown)]
    except RefusedError as error:
        lines += [f"{pending[0]}: refused", *_indent([str(refusal) for refusal in error.refusals])]
    return name_computed_keys("\n".join(lines))


def draft_lines(draft: Draft) -> list[str]:
    """Return the draft of a query after some passes: its states, its publication and its plan."""
    lines: list[str] = []
    for stage in draft.stages:
        if isinstance(stage, State):
            lines.append(f"{stage.name} by ({', '.join(key.name for key in stage.keys)}):")
            lines += _indent(plan_lines(stage.input))
        else:
            lines.append(f"{stage.name}:")
            for part, plan in (("init", stage.init), ("step", stage.step)):
                lines += _indent([f"{part}:", *_indent(plan_lines(plan))])
            for side in stage.sides:
                lines += _indent([f"{side.given.name}:", *_indent(plan_lines(side.plan))])
    if draft.publication is not None:
        lines.append(f"publish {_publication_text(draft.publication)}")
    return [*lines, *plan_lines(draft.plan)]


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _publication_text(publication: Publication) -> str:
    match publication:
        case InPlace(state=state, because=because):
            return f"columns of {state}, one MERGE and one commit ({because})"
        case OwnTable(because=because):
            return f"a table of its own, updated and never rewritten ({because})"
        case _:
            assert_never(publication)


def _state_lines(state: State) -> list[str]:
    """Return lineage key, buckets, accumulators and merge of a state."""
    keys = f"({', '.join(column.name for column in state.keys)})" if state.keys else "() (one row)"
    buckets = ", ".join(column.name for column in state.bucket_by) or "none"
    stored = ["group row count", *(f"{slot.call.column.name}: {slot.accumulator.name}" for slot in state.slots)]
    merge = "additive" if state.invertible else "deletions subtract, or recompute the groups they reach"
    if state.recompute_always:
        merge = "none: touched groups are recomputed"
    return [
        f"{state.name}: lineage key {keys}, buckets by {buckets}",
        f"  keeps {'; '.join(stored)}",
        f"  merge {merge}",
    ]


def _loop_lines(stage: LoopState) -> list[str]:
    """Return the lines of a loop: how a refresh changes it, and its table."""
    columns = ", ".join(column.name for column in stage.columns)
    if stage.levelled:
        stored = f"rows ({columns}) by level, with the number of derivations at each"
        order = "removals first, then additions" if stage.traits.is_set else "levels in rising order"
        return [f"{stage.name}: recursion ({stage.kind}), {order}, at most {stage.limit:,} rounds", f"  keeps {stored}"]
    if stage.clusters is not None:
        return [
            f"{stage.name}: {stage.limit} steps of k-means, by the centers of the last evaluation and their margins",
            f"  keeps the centers ({columns}) and the sums of their points in each step, and the answer",
            f"  keeps the points with their margins in {stage.points}, from the first refresh on that needs them: "
            "those that are not much nearer to their center than to the next one are read again when centers move",
        ]
    if stage.tolerance is None:
        first = f"{stage.name}: {stage.limit} steps, evaluated from the start ({stage.replayed})"
        return [first, f"  keeps the answer ({columns})"]
    keys = ", ".join(column.name for column in stage.keys)
    warm = ", ".join(column.name for column in stage.warm)
    carried = ", ".join(column.name for column in stage.carried)
    lines = [
        f"{stage.name}: at most {stage.limit} steps, until one changes no more than {stage.tolerance.allowed:g} "
        f"({stage.tolerance.norm} norm)",
        f"  keeps one row for each ({keys}), and starts from its {warm}",
    ]
    return [*lines, f"  takes {carried} from its start"] if carried else lines
