"""Maintain a view incrementally: `state ← state ⊗ h(ΔS)`, then `view = a(state)`; inputs first, the view last."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol

from deltafold.algebra.constraints import Constraint
from deltafold.algebra.plan import Plan
from deltafold.algebra.program import Program, State, stage_tables
from deltafold.algebra.results.report import APPLIED, EpochVerdict
from deltafold.algebra.results.upkeep import VIEW
from deltafold.algebra.traversal import find_repeats
from deltafold.dataflow.loops.clusters.cluster_table import stored_loop
from deltafold.dataflow.lowering import Lowering
from deltafold.dataflow.publish import stored_bag
from deltafold.dataflow.state_schema import Layout, StoredTable
from deltafold.refresh.epoch import Epoch, EpochResult
from deltafold.refresh.stages.program_run import Run


class RefreshStrategy(Protocol):
    """A mode of maintaining a view: its sources, its tables, and the run of one epoch."""

    mode: ClassVar[str]  # `incremental` or `recompute`
    verdict: ClassVar[EpochVerdict]  # of its epochs, for the report

    @property
    def fingerprint(self) -> str:
        """A digest of the query, the same in every process."""
        ...

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources it reads."""
        ...

    @property
    def reads_clock(self) -> bool:
        """Whether its answer depends on the time of the epoch, too."""
        ...

    @property
    def invariant(self) -> frozenset[str]:
        """The sources that must not change."""
        ...

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The declared constraints of the sources, checked in every epoch."""
        ...

    @property
    def tables(self) -> tuple[str, ...]:
        """Table names in the order of their commits; the answer is in the last."""
        ...

    @property
    def states(self) -> dict[str, list[str]]:
        """For each state the digest of its plan, then its stored columns (Layout.merged)."""
        ...

    @property
    def convertible(self) -> Mapping[str, tuple[str, ...]]:
        """By state, the digest that it had before columns of sources got wider types, then SQL for each of its stored
        columns over those that it had.
        """
        ...

    def storage_of(self, table: str, buckets: int) -> StoredTable:
        """Return the storage of one of its tables with a number of buckets."""
        ...

    def run(self, epoch: Epoch) -> EpochResult:
        """Write the tables of one epoch."""
        ...


def no_partition_key() -> None:
    """Return None, the partition key of an answer that contains none."""


@dataclass(frozen=True)
class Incremental:
    """Refreshes by the compiled program.

    partition_key: finds the answer's column that contains a partition, which requires the views below;
    circumstances: further settings that the rows of states depend on; convertible: see RefreshStrategy.
    """

    mode: ClassVar[str] = "incremental"
    verdict: ClassVar[EpochVerdict] = APPLIED
    program: Program
    attributes: Mapping[str, Any]
    partition_key: Callable[[], str | None] = no_partition_key
    circumstances: object = None
    convertible: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def fingerprint(self) -> str:
        """The program's, from the query."""
        return self.program.fingerprint

    @property
    def sources(self) -> tuple[str, ...]:
        """Every source that the query reads."""
        return self.program.sources

    @property
    def reads_clock(self) -> bool:
        """No: a query that does is refused."""
        return False

    @property
    def invariant(self) -> frozenset[str]:
        """The sources declared invariant, which the program relies on."""
        return self.program.invariant & frozenset(self.sources)

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The program's, among the sources it reads."""
        return self.program.constraints

    @property
    def tables(self) -> tuple[str, ...]:
        """Table names in the order of their commits; the answer is in the last."""
        stages = tuple(name for stage in self.program.stages for name in stage_tables(stage))
        return (*stages, VIEW) if self.program.has_answer_table else stages

    @property
    def states(self) -> dict[str, list[str]]:
        """By the program and the layouts of its states; a loop is not reused, and has none."""
        digests = self.program.digests(self.circumstances)
        return {s.name: [digests[s.name], *Layout.of(self.program, s, 1).merged] for s in self.program.states}

    def storage_of(self, table: str, buckets: int) -> StoredTable:
        """Return the storage: of a state by its layout, of a loop by its kind, else of a bag of the answer."""
        for stage in self.program.stages:
            if table in stage_tables(stage):
                if isinstance(stage, State):
                    return Layout.of(self.program, stage, buckets).stored
                return stored_loop(stage, table, buckets)
        return stored_bag(tuple(name for _, name in self.program.outputs), buckets)

    def run(self, epoch: Epoch) -> EpochResult:
        """Run one epoch: write every state and loop, then the view."""
        with ExitStack() as cached:
            lowering = Lowering(epoch.spark, self.attributes)
            return Run(self.program, epoch, lowering, cached, self.partition_key(), self._repeats).all()

    @cached_property
    def _repeats(self) -> frozenset[Plan]:
        """The inputs that several states, or one of them in several places, read."""
        return find_repeats([*(state.input for state in self.program.states), self.program.answer])
