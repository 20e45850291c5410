"""Define the draft of a program, which the compiler's passes transform one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from deltafold.algebra.alignment import Equality
from deltafold.algebra.constraints import Constraint
from deltafold.algebra.errors import Refusal
from deltafold.algebra.plain_options import Publish
from deltafold.algebra.plan import Column, Plan
from deltafold.algebra.program import NodeRule, Program, Publication, Stage, State

Outputs = tuple[tuple[Column, str], ...]
"""The plan's column and the user's name of each answer column."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A query between two passes; every pass is a pure function from draft to draft.

    plan: the plan to compile: the whole query, or, once its states are split off, the answer over them;
    refusals: the reasons against it found so far, at first its expressions without a fixed value;
    invariant: the sources that are declared never to change; facts: the declared constraints of its sources;
    views: the sources that are answers of other views; equality: decides which of its expressions are equal.
    """

    plan: Plan
    outputs: Outputs
    fingerprint: str = ""
    refusals: tuple[Refusal, ...] = ()
    invariant: frozenset[str] = frozenset()
    publish: Publish = "auto"
    facts: tuple[Constraint, ...] = ()
    views: frozenset[str] = frozenset()
    stages: tuple[Stage, ...] = ()
    publication: Publication | None = None
    node_rules: tuple[NodeRule, ...] = ()
    notes: tuple[str, ...] = ()
    equality: Equality = field(default_factory=Equality, compare=False, repr=False)

    @property
    def states(self) -> tuple[State, ...]:
        """The stages that are homomorphisms."""
        return tuple(stage for stage in self.stages if isinstance(stage, State))

    def with_plan(self, plan: Plan) -> Draft:
        """Return the draft with another plan."""
        return replace(self, plan=plan)

    def program(self) -> Program:
        """Return the compiled program, once all passes have run."""
        assert self.publication is not None
        return Program(
            fingerprint=self.fingerprint,
            stages=self.stages,
            answer=self.plan,
            outputs=self.outputs,
            publication=self.publication,
            node_rules=self.node_rules,
            notes=self.notes,
            invariant=self.invariant,
            constraints=self.facts,
        )


Pass = Callable[[Draft], Draft]
