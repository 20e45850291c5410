"""Compiler room: what a refresh is expected to cost beside a recompute. In: a program, the bytes of its sources and of
what changes in them. Out: expected seconds of both. Nothing is read for it.

| node | bytes read for its change |
| --- | --- |
| source | the files that left or came |
| project, filter, generate, expand, union | those of its inputs |
| inner joins of n inputs | for each input that changed: its own, and all of the other inputs |
| any other join | its own; the right side where the left changed; where the right changed: the left, twice the right |
| F local to a key | its own, and twice all of its input |
| state | its own; all of its input again where groups may have to be computed anew |

Of what a join by key reads of its other inputs, the intervals of the change's keys leave the part UNSKIPPED (TPC-H at
scale factor 10). The rates are those of a machine with two cores; only their ratio matters, and what past epochs took
corrects them (refresh/mode.py). What operators cost depends on how many rows reach them, which nobody knows before:
`least` is the cost of a recompute without them.
"""

from __future__ import annotations

from incremental.algebra.plan import GroupwiseOp, Join, Plan, SourceRead, StateRead
from incremental.algebra.product import flatten_joins
from incremental.algebra.program import Estimate, OwnTable, Program, State, Volume

MERGE_SECONDS = 1.5  # one commit of a state, with what Delta does around it
PUBLISH_SECONDS = 0.7  # one commit of a table that is only appended to or replaced
TERM_SECONDS = 0.5  # what one more term of a change costs to plan and start
SCAN_BYTES = 100e6  # a second, to read
OPERATOR_BYTES = 80e6  # a second, for each join, grouping or window of the whole query above what was read
KEPT = 0.05  # bytes of a state to those of its input
UNSKIPPED = 0.6


def estimate(program: Program, volume: Volume) -> Estimate:
    """What one refresh of a program costs, and what running its query anew does."""
    return _Reckoning(program, volume).estimate()


class _Reckoning:
    def __init__(self, program: Program, volume: Volume) -> None:
        self._program, self._volume = program, volume
        self._states = {state.name: state for state in program.states}
        self._moves: dict[str, tuple[float, float]] = {}
        for state in program.states:  # those that others read come first
            self._moves[state.name] = self._state(state)

    def estimate(self) -> Estimate:
        program = self._program
        reads = sum(read for _, read in self._moves.values()) + self._change(program.answer)[1]
        moved = sum(change > 0 for change, _ in self._moves.values())
        terms = sum(self._terms(plan) for plan in (*(state.input for state in program.states), program.answer))
        table = PUBLISH_SECONDS if isinstance(program.publication, OwnTable) else 0.0
        refresh = table + MERGE_SECONDS * moved + TERM_SECONDS * terms + reads / SCAN_BYTES
        least = PUBLISH_SECONDS + self._whole(program.answer) / SCAN_BYTES
        recompute = least + self._operated(program.answer) / OPERATOR_BYTES
        return Estimate(round(refresh, 3), round(recompute, 3), round(least, 3))

    def _state(self, state: State) -> tuple[float, float]:
        change, read = self._change(state.input)
        again = change > 0 and not state.invertible
        return change, read + (self._kept(state.input) if again else 0.0)

    def _whole(self, plan: Plan) -> float:
        """Bytes that the batch query reads."""
        if isinstance(plan, StateRead):
            return self._whole(self._states[plan.state].input)
        return self._leaf(plan) if isinstance(plan, SourceRead) else sum(map(self._whole, plan.children))

    def _operated(self, plan: Plan) -> float:
        """Bytes that each operator of the batch query takes from those below it, added up."""
        match plan:
            case StateRead():
                state = self._states[plan.state]
                return self._operated(state.input) + (self._whole(state.input) if state.keys else 0.0)
            case Join() | GroupwiseOp():
                return sum(self._operated(child) + self._whole(child) for child in plan.children)
            case _:
                return sum(map(self._operated, plan.children))

    def _kept(self, plan: Plan) -> float:
        """Bytes of a plan's rows before or after a refresh, which reads states instead of their inputs."""
        if isinstance(plan, StateRead):
            return KEPT * self._whole(plan)
        return self._leaf(plan) if isinstance(plan, SourceRead) else sum(map(self._kept, plan.children))

    def _leaf(self, leaf: SourceRead) -> float:
        return self._volume.total[leaf.relation] * self._share(leaf)

    def _share(self, leaf: SourceRead) -> float:
        """The part of a source's bytes that one occurrence reads."""
        return len(leaf.fields) / max(1, self._volume.columns[leaf.relation])

    def _change(self, plan: Plan) -> tuple[float, float]:
        """Bytes that changed, and bytes read to know them."""
        match plan:
            case SourceRead():
                change = self._volume.change[plan.relation] * self._share(plan)
                return change, change
            case StateRead():
                change = self._moves[plan.state][0]
                return change, 2 * change
            case Join(kind="inner"):
                return self._product(plan)
            case Join(left=left, right=right):
                (of_left, read_left), (of_right, read_right) = self._change(left), self._change(right)
                others = self._kept(right) if of_left else 0.0
                others += self._kept(left) + 2 * self._kept(right) if of_right else 0.0
                return of_left + of_right, read_left + read_right + unskipped(plan) * others
            case GroupwiseOp(child=child):
                change, read = self._change(child)
                return change, read + (2 * self._kept(child) if change else 0.0)
            case _:
                found = [self._change(child) for child in plan.children]
                return sum(change for change, _ in found), sum(read for _, read in found)

    def _product(self, join: Join) -> tuple[float, float]:
        inputs = flatten_joins(join).inputs
        whole = [self._kept(plan) for plan in inputs]
        found = [self._change(plan) for plan in inputs]
        others = sum(sum(whole) - mine for mine, (change, _) in zip(whole, found, strict=True) if change)
        return sum(change for change, _ in found), unskipped(join) * others + sum(read for _, read in found)

    def _terms(self, plan: Plan) -> int:
        """How many joins and key-local operators have to be planned for a change."""
        below = sum(map(self._terms, plan.children))
        match plan:
            case Join():
                return below + sum(self._change(side)[0] > 0 for side in plan.children)
            case GroupwiseOp():
                return below + 1
            case _:
                return below


def unskipped(join: Join) -> float:
    """The part of a join's other inputs that is read for a change."""
    return UNSKIPPED if join.keys else 1.0
