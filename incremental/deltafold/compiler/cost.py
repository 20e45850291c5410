"""Estimate the cost of a refresh and of a full recompute from the sizes of the sources, without reading data (D-076).

| node | bytes read for its change |
| --- | --- |
| source | the added and removed files |
| project, filter, generate, expand, union | those of its inputs |
| inner joins of n inputs | for each changed input: its own, and all of the other inputs; an append-only input that |
| | another one refers to by a declared key reads no others |
| left, semi, anti, existence join | its own; the right side if the left changed; the left and twice the right if |
| | the right changed. A right join is the left join of its sides exchanged, a full join both |
| groupwise operator | its own, and twice all of its input |
| state | its own; all of its input again if groups may have to be recomputed |
| loop by level | its own; in each round, the part `unskipped` of its side inputs |
| k-means by references | its own, and the start |
| loop that is replayed or converges | its own; all of its inputs, in each step |

Reads before and after a change are one read if the input is large and the change is small (dataflow/pruning). In a
join by key, the intervals of the change's keys restrict the reads of the other inputs to the share `unskipped`
(measured on TPC-H at scale factor 10). Measured epochs correct the rates (refresh/mode.py). The cost of operators
depends on how many rows reach them, which is unknown in advance: `least` is the cost of a recompute without them.
Rounds are those of a loop's last epochs.
"""

from __future__ import annotations

from deltafold.algebra.constraints import AppendOnlyFact
from deltafold.algebra.loops import LoopState
from deltafold.algebra.plan import GroupwiseOp, Join, Plan, SourceRead, StateRead
from deltafold.algebra.product import flatten_joins
from deltafold.algebra.program import Estimate, Program, Stage, State, Volume, stage_inputs
from deltafold.algebra.tuning import CostRates

INEXACT = ("float", "double", "<", "collate", "variant")  # types of which equal values may differ in their bits


def estimate_cost(program: Program, volume: Volume, rates: CostRates) -> Estimate:
    """Return the expected seconds of one refresh and of one full recompute."""
    return _CostModel(program, volume, rates).estimate()


class _CostModel:
    def __init__(self, program: Program, volume: Volume, rates: CostRates) -> None:
        self._program = program
        self._volume = volume
        self._rates = rates
        self._stages = {stage.name: stage for stage in program.stages}
        self._state_changes: dict[str, tuple[float, float]] = {}
        for stage in program.stages:  # a stage comes after those that it reads
            change = self._state_change(stage) if isinstance(stage, State) else self._loop_change(stage)
            self._state_changes[stage.name] = change

    def estimate(self) -> Estimate:
        program = self._program
        reads = sum(read for _, read in self._state_changes.values()) + self._change(program.answer)[1]
        merges = sum(self._merge_seconds(stage) for stage in program.stages if self._state_changes[stage.name][0] > 0)
        terms = sum(map(self._terms, program.plans))
        table = self._rates.publish_seconds if program.has_answer_table else 0.0
        refresh = table + merges + self._rates.term_seconds * terms + reads / self._rates.scan_bytes
        least = self._rates.recompute_seconds + self._batch_bytes(program.answer) / self._rates.scan_bytes
        least += sum(self._rates.round_seconds * self._all_rounds(loop) for loop in program.loops)
        recompute = least + self._operator_bytes(program.answer) / self._rates.operator_bytes
        return Estimate(round(refresh, 3), round(recompute, 3), round(least, 3))

    def _merge_seconds(self, stage: Stage) -> float:
        """Return the seconds of one commit of a stage, and of the rounds before it."""
        stored = self._rates.state_ratio * sum(map(self._batch_bytes, stage_inputs(stage)))
        rounds = self._changed_rounds(stage) if isinstance(stage, LoopState) else 0
        return (
            self._rates.rewrite_seconds if stored <= self._rates.small_state_bytes else self._rates.merge_seconds
        ) + self._rates.round_seconds * rounds

    def _loop_change(self, loop: LoopState) -> tuple[float, float]:
        """Return the bytes of the change of a loop's inputs, and the bytes read for it and in the rounds."""
        changes = [self._change(plan) for plan in loop.inputs]
        change = sum(of_input for of_input, _ in changes)
        read = sum(of_input for _, of_input in changes)
        if not change:
            return 0.0, 0.0
        if loop.clusters is not None:
            return change, read + self._stored_bytes(loop.init)
        sides = sum(self._stored_bytes(side.plan) for side in loop.sides)
        if not loop.levelled:
            return change, read + self._stored_bytes(loop.init) + self._changed_rounds(loop) * sides
        return change, read + self._changed_rounds(loop) * self._rates.unskipped * sides

    def _changed_rounds(self, loop: LoopState) -> float:
        """Return the rounds that a change is expected to take: those of the last epochs, if there are any."""
        if loop.clusters is not None:
            return self._rates.cluster_rounds
        return loop.limit if loop.traits.fixed_steps else self._volume.rounds.get(loop.name, self._rates.changed_rounds)

    def _all_rounds(self, loop: LoopState) -> float:
        """Return the rounds that the batch query is expected to take: those of the first load, if there was one."""
        return loop.limit if loop.traits.fixed_steps else self._volume.levels.get(loop.name, self._rates.all_rounds)

    def _state_change(self, state: State) -> tuple[float, float]:
        """Return the bytes of the change of a state's input, and the bytes read for it."""
        change, read = self._change(state.input)
        recomputes = change > 0 and not state.invertible
        return change, read + (self._stored_bytes(state.input) if recomputes else 0.0)

    def _batch_bytes(self, plan: Plan) -> float:
        """Return the bytes that the batch query reads."""
        if isinstance(plan, StateRead):
            return sum(map(self._batch_bytes, stage_inputs(self._stages[plan.state])))
        return self._source_bytes(plan) if isinstance(plan, SourceRead) else sum(map(self._batch_bytes, plan.children))

    def _operator_bytes(self, plan: Plan) -> float:
        """Return the sum of the bytes that the operators of the batch query read from their inputs."""
        match plan:
            case StateRead():
                return self._stage_bytes(self._stages[plan.state])
            case Join() | GroupwiseOp():
                return sum(self._operator_bytes(child) + self._batch_bytes(child) for child in plan.children)
            case _:
                return sum(map(self._operator_bytes, plan.children))

    def _stage_bytes(self, stage: Stage) -> float:
        """Return the bytes that the operators of a stage take from their inputs in the batch query."""
        inputs = sum(map(self._operator_bytes, stage_inputs(stage)))
        if isinstance(stage, State):
            return inputs + (self._batch_bytes(stage.input) if stage.keys else 0.0)
        return inputs + self._all_rounds(stage) * sum(self._batch_bytes(side.plan) for side in stage.sides)

    def _stored_bytes(self, plan: Plan) -> float:
        """Return the bytes read for a plan before or after a refresh, which reads states instead of their inputs."""
        if isinstance(plan, StateRead):
            return self._rates.state_ratio * self._batch_bytes(plan)
        return self._source_bytes(plan) if isinstance(plan, SourceRead) else sum(map(self._stored_bytes, plan.children))

    def _source_bytes(self, leaf: SourceRead) -> float:
        return self._volume.total[leaf.relation] * self._read_share(leaf)

    def _read_share(self, leaf: SourceRead) -> float:
        """Return the share of a source's bytes that one occurrence reads."""
        return len(leaf.fields) / max(1, self._volume.columns[leaf.relation])

    def _change(self, plan: Plan) -> tuple[float, float]:
        """Return the bytes of a plan's change, and the bytes read to compute it."""
        match plan:
            case SourceRead():
                change = self._volume.change[plan.relation] * self._read_share(plan)
                return change, change
            case StateRead():
                change = self._state_changes[plan.state][0]
                return change, 2 * change
            case Join(kind="inner"):
                return self._product_change(plan)
            case Join():
                return self._outer_change(plan)
            case GroupwiseOp(child=child):
                change, read = self._change(child)
                return change, read + (self._both_versions(child, change) if change else 0.0)
            case _:
                changes = [self._change(child) for child in plan.children]
                return sum(change for change, _ in changes), sum(read for _, read in changes)

    def _outer_change(self, join: Join) -> tuple[float, float]:
        """Return the same of an outer, semi, anti or existence join."""
        left, right = ((plan, *self._change(plan)) for plan in join.children)
        pairs = {"right": [(right, left)], "full": [(left, right), (right, left)]}.get(join.kind, [(left, right)])
        others = 0.0
        for (kept, of_kept, _), (tested, of_tested, _) in pairs:
            if of_kept:
                others += self._stored_bytes(tested)
            if of_tested:
                others += self._stored_bytes(kept) + self._both_versions(tested, of_tested)
        return left[1] + right[1], left[2] + right[2] + self._joined_share(join) * others

    def _both_versions(self, plan: Plan, change: float) -> float:
        """Return the bytes read for a plan before and after a change of it."""
        stored = self._stored_bytes(plan)
        exact = not any(word in column.type for column in plan.columns for word in INEXACT)
        return (
            stored if exact and stored > self._rates.rewound_bytes and change <= self._rates.few_bytes else 2 * stored
        )

    def _product_change(self, join: Join) -> tuple[float, float]:
        product = flatten_joins(join)
        stored = [self._stored_bytes(plan) for plan in product.inputs]
        changes = [self._change(plan) for plan in product.inputs]
        facts = self._program.constraints
        empty = {referred for _, referred, fact in product.references(facts) if AppendOnlyFact(fact.to) in facts}
        terms = [sum(stored) - own if change else 0.0 for own, (change, _) in zip(stored, changes, strict=True)]
        others = sum(read for position, read in enumerate(terms) if position not in empty)
        own_reads = sum(read for _, read in changes)
        return sum(change for change, _ in changes), own_reads + self._joined_share(join) * others

    def _terms(self, plan: Plan) -> int:
        """Return the number of joins and groupwise operators that are planned for a change."""
        below = sum(map(self._terms, plan.children))
        match plan:
            case Join():
                return below + sum(self._change(side)[0] > 0 for side in plan.children)
            case GroupwiseOp():
                return below + 1
            case _:
                return below

    def _joined_share(self, join: Join) -> float:
        """Return the share of a join's other inputs that is read for a change."""
        return self._rates.unskipped if join.keys else 1.0
