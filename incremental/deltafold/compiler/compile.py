"""Compile a translated query into a program that a refresh runs."""

from __future__ import annotations

from collections.abc import Iterator

from deltafold.algebra.errors import QueryError
from deltafold.algebra.program import RESERVED, Program
from deltafold.compiler.draft import Draft, Outputs, Pass
from deltafold.compiler.invariants import check_pass
from deltafold.compiler.passes.choose_publication import choose_publication
from deltafold.compiler.passes.drop_keyed_distinct import drop_keyed_distinct
from deltafold.compiler.passes.expand_distinct import expand_distinct
from deltafold.compiler.passes.explain_rules import explain_rules
from deltafold.compiler.passes.fuse_projections import fuse_projections
from deltafold.compiler.passes.group_matches import group_matches
from deltafold.compiler.passes.refuse_unmaintainable import refuse_unmaintainable
from deltafold.compiler.passes.share_states import share_states
from deltafold.compiler.passes.simplify_loops import simplify_loops
from deltafold.compiler.passes.split_states import split_states

PASSES: tuple[Pass, ...] = (
    expand_distinct,
    drop_keyed_distinct,
    group_matches,
    fuse_projections,
    simplify_loops,
    refuse_unmaintainable,
    explain_rules,
    split_states,
    share_states,
    choose_publication,
)


def compile_query(draft: Draft) -> Program:
    """Compile a query; raises RefusedError with every reason if it cannot be maintained incrementally."""
    for _, after in run_passes(draft):
        draft = after
    return draft.program()


def run_passes(draft: Draft, *, checked: bool = False) -> Iterator[tuple[str, Draft]]:
    """Yield the name of each pass and the draft after it; raises RefusedError from the pass that refuses the query.

    checked: raise BrokenPassError after a pass that changed what it has to leave as it is (invariants.py; D-200).
    """
    for compiler_pass in PASSES:
        after = compiler_pass(draft)
        if checked:
            check_pass(compiler_pass.__name__, draft, after)
        draft = after
        yield compiler_pass.__name__, draft


def check_outputs(outputs: Outputs) -> None:
    """Refuse answer columns that a table cannot have; raises QueryError."""
    seen: dict[str, str] = {}
    for _, name in outputs:
        if name.lower() in seen:
            other = seen[name.lower()]
            cause = "it occurs twice" if other == name else f"it differs from {other!r} only in case"
            raise QueryError(f"duplicate answer column {name!r}: {cause}. Rename one of the two with AS.")
        if name.startswith(RESERVED):
            raise QueryError(
                f"reserved answer column {name!r}: names that start with {RESERVED!r} belong to Deltafold. "
                "Rename it with AS."
            )
        seen[name.lower()] = name
    if not outputs:
        raise QueryError("empty answer: the query selects no column. Select at least one.")
