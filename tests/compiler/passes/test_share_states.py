"""One state for equal group-bys: what is merged, what is not, and that everything else keeps its names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from deltafold.algebra.loops import LoopState
from deltafold.algebra.plan import (
    Aggregate,
    Call,
    Column,
    Expand,
    Given,
    GroupwiseOp,
    Item,
    Join,
    Loop,
    Opaque,
    Plan,
    Project,
    Reference,
    SourceRead,
    StateRead,
    Union,
)
from deltafold.algebra.traversal import walk
from deltafold.compiler.compile import compile_query
from deltafold.compiler.draft import Draft
from deltafold.compiler.passes.share_states import share_states
from deltafold.compiler.passes.split_states import split_states
from tests.compiler.plans import K, Q, T, V, call, draft, grouped, opaque, project, where


class Texts:
    """Equality by the texts of hand-made expressions, which are words."""

    def expressions(self, one: object, other: object, names: Mapping[str, str]) -> bool:
        assert isinstance(one, str) and isinstance(other, str)
        return re.sub(r"[a-z]\w*", lambda word: names.get(word[0], word[0]), one) == other

    def operators(self, one: GroupwiseOp, other: GroupwiseOp, names: Mapping[str, str]) -> bool:
        return self.expressions(one.text, other.text, names)

    def constants(self, one: object, other: object) -> bool:
        return one == other


def copied(plan: Any) -> Any:
    """The same plan over other names, as Catalyst's second copy of a common table has them."""
    match plan:
        case SourceRead(relation=relation, fields=fields):
            return SourceRead(relation, tuple((field, second(column)) for field, column in fields))
        case Project(child=child, items=items):
            return Project(copied(child), tuple(Item(second(i.column), again(i.scalar)) for i in items))
        case Union(children=children):
            return Union(tuple(map(copied, children)))
        case _:
            return type(plan)(**{name: copied_field(getattr(plan, name)) for name in plan.__dataclass_fields__})


def copied_field(value: Any) -> Any:
    """One field of a node over the other names."""
    match value:
        case tuple():
            return tuple(map(copied_field, value))
        case Column():
            return second(value)
        case Call(arguments=arguments, buffers=buffers, answer=answer):
            arguments, buffers = map(copied_field, (arguments, buffers))
            return replace(
                value, column=second(value.column), arguments=arguments, buffers=buffers, answer=again(answer)
            )
        case Reference() | Opaque():
            return again(value)
        case _:
            return copied(value) if hasattr(value, "children") else value


def second(column: Column) -> Column:
    return Column(f"{column.name}_2", column.type)


def again(scalar: Any) -> Any:
    """A scalar over the other names."""
    if scalar is None or isinstance(scalar, Reference):
        return scalar and Reference(second(scalar.column))
    return written(re.sub(r"[a-z]\w*", r"\g<0>_2", scalar.text), scalar.type)


def written(text: str, type_: str = "boolean") -> Opaque:
    """An expression whose handle is its text."""
    return opaque(text, type_, handle=text)


def filtered(child: Plan, text: str) -> Plan:
    return replace(where(child, text), condition=written(text))


def named(plan: Aggregate) -> Aggregate:
    """A group-by whose calls have comparable answers, and no handles of their own."""
    answers = [(call, call.answer) for call in plan.calls]
    return replace(plan, calls=tuple(replace(c, answer=written(a.text, a.type)) for c, a in answers if a is not None))


def both(one: Plan, other: Plan) -> Join:
    return Join(left=one, right=other, kind="inner", condition=None)


def shared(plan: Plan) -> Draft:
    return share_states(split_states(draft(plan, equality=Texts())))


SUM = call("s", "sum", V, type_="double")
COUNT = call("n", "count", V)
TOTAL = named(grouped(filtered(T, "v > 0"), (K,), SUM))


def test_two_copies_of_a_group_by_are_one_state() -> None:
    """Its readers keep their names, and know those of the state."""
    found = shared(both(TOTAL, copied(TOTAL)))
    (state,) = found.states
    assert (state.name, state.keys) == ("state_1", (K,))
    assert found.plan.children == (
        StateRead("state_1", (K, SUM.column)),
        StateRead("state_1", (second(K), second(SUM.column)), (K, SUM.column)),
    )
    assert found.notes == ("state_1 is shared by 2 group-bys of the same rows: (k, s) and (k_2, s_2)",)


def test_a_query_without_equal_states_is_left_alone() -> None:
    """Names and digests of states that exist may not change."""
    before = split_states(draft(both(TOTAL, copied(grouped(T, (Q,), SUM))), equality=Texts()))
    assert share_states(before) is before


@pytest.mark.parametrize("larger_first", [True, False])
def test_the_larger_state_serves_both(larger_first: bool) -> None:
    """Where one has all aggregates of the other, whichever comes first."""
    large = named(grouped(filtered(T, "v > 0"), (K,), SUM, COUNT))
    one, other = (large, copied(TOTAL)) if larger_first else (TOTAL, copied(large))
    found = shared(both(one, other))
    (state,) = found.states
    assert [slot.call.function for slot in state.slots] == ["sum", "count"]
    assert [read.state for read in found.plan.children if isinstance(read, StateRead)] == ["state_1"] * 2
    assert found.plan.columns == both(one, other).columns


def test_a_larger_state_takes_the_place_of_several() -> None:
    """It comes before the states that read them."""
    first, total = named(grouped(T, (K,), SUM)), named(grouped(T, (K,), COUNT))
    over = named(grouped(total, (), call("m", "max", COUNT.column)))
    large = copied(copied(named(grouped(T, (K,), SUM, COUNT))))
    found = shared(both(both(first, copied(over)), large))
    assert [(state.name, len(state.keys), len(state.slots)) for state in found.states] == [
        ("state_1", 1, 2),
        ("state_2", 0, 1),
    ]
    assert [read.state for read in walk(found.states[1].input) if isinstance(read, StateRead)] == ["state_1"]
    program = compile_query(replace(draft(both(both(first, copied(over)), large)), equality=Texts()))
    assert set(program.digests("")) == {"state_1", "state_2"}


def test_a_loop_starts_from_the_state_that_its_step_reads() -> None:
    """Init and step are plans of their own, so a table that both read is there in two copies."""
    row, answer = Column("r", "int"), Column("n", "int")
    joined = Join(left=Given("loop_1", (row,)), right=copied(TOTAL), kind="inner", condition=opaque("r = k_2"))
    loop = Loop(
        name="loop_1", kind="set", init=project(TOTAL, K), step=project(joined, second(K)), columns=(answer,), limit=100
    )
    above = named(grouped(loop, (answer,), call("m", "count", answer)))
    found = shared(both(above, named(grouped(copied(copied(TOTAL)), (), call("t", "count", second(second(K)))))))
    assert [stage.name for stage in found.stages] == ["state_1", "loop_1", "state_2", "state_3"]
    (stage,) = (each for each in found.stages if isinstance(each, LoopState))
    reads = [read for plan in (stage.init, stage.sides[0].plan) for read in walk(plan) if isinstance(read, StateRead)]
    assert [read.state for read in reads] == ["state_1"] * 2 and reads[1].own == (K, SUM.column)
    assert stage.sides[0].given.columns == stage.sides[0].plan.columns


def test_states_above_shared_states_are_shared() -> None:
    """From the inside out."""
    most = named(grouped(named(grouped(T, (K, Q), SUM)), (K,), call("m", "max", SUM.column, type_="double")))
    found = shared(both(most, copied(most)))
    assert [state.name for state in found.states] == ["state_1", "state_2"]
    assert [read.own for read in found.plan.children if isinstance(read, StateRead)] == [most.columns] * 2


def test_reading_fewer_columns_is_the_same_rows() -> None:
    """Spark prunes each copy by what is read of it."""
    narrow = replace(T, fields=T.fields[:1] + T.fields[2:])
    pruned = project(filtered(narrow, "v > 0"), K, V)
    wide = named(grouped(filtered(T, "v > 0"), (K,), SUM, call("q_max", "max", Q, type_="int")))
    assert len(shared(both(wide, copied(named(grouped(pruned, (K,), SUM))))).states) == 1


def test_two_readers_with_exchanged_columns_are_told_apart() -> None:
    """A state that reads another's columns as each other has another digest."""
    two = (Column("a", "int"), Column("b", "int"))
    digests = set[str]()
    for stored in ((), two, two[::-1]):
        input_ = StateRead("state_1", two, stored)
        program = compile_query(draft(grouped(T, (K,), SUM)))
        over = replace(program.states[0], name="state_2", input=input_, keys=two[:1], slots=())
        digests.add(replace(program, stages=(*program.states, over)).digests("")["state_2"])
    assert len(digests) == 3


UNEQUAL: dict[str, Plan] = {
    "filter": named(grouped(filtered(T, "v > 1"), (K,), SUM)),
    "no filter": named(grouped(T, (K,), SUM)),
    "keys": named(grouped(filtered(T, "v > 0"), (Q,), SUM)),
    "more keys": named(grouped(filtered(T, "v > 0"), (K, Q), SUM)),
    "function": named(grouped(filtered(T, "v > 0"), (K,), call("s", "max", V, type_="double"))),
    "distinct": named(grouped(filtered(T, "v > 0"), (K,), replace(SUM, distinct=True))),
    "argument": named(grouped(filtered(T, "v > 0"), (K,), call("s", "sum", Q, type_="double"))),
    "overflow": named(grouped(filtered(T, "v > 0"), (K,), replace(SUM, mode="try"))),
    "source": named(grouped(filtered(replace(T, relation="u"), "v > 0"), (K,), SUM)),
    "rows twice": named(grouped(Union((filtered(T, "v > 0"),) * 2), (K,), SUM)),
}


@pytest.mark.parametrize("what", UNEQUAL)
def test_unequal_group_bys_stay_apart(what: str) -> None:
    """Anything that may give other groups or other answers."""
    assert len(shared(both(TOTAL, copied(UNEQUAL[what]))).states) == 2


def test_an_answer_over_the_same_buffers_may_differ() -> None:
    """The buffers alone do not say what Spark makes of them."""
    (total,) = TOTAL.calls
    other = replace(TOTAL, calls=(replace(total, answer=written("s_buffer_0 + 1", "double")),))
    assert len(shared(both(TOTAL, copied(other))).states) == 2


def test_unions_and_expansions_match_by_position() -> None:
    """A column is equal if it is in every branch, or in every projection."""
    swapped = project(T, Item(K, Reference(Q)), Item(Q, Reference(K)), V)
    same = named(grouped(Union((T, swapped)), (K,), SUM))
    other = named(grouped(Union((T, T)), (K,), SUM))
    assert len(shared(both(same, copied(same))).states) == 1
    assert len(shared(both(same, copied(other))).states) == 2
    rows = ((Reference(K), Reference(Q), Reference(V)), (Reference(Q), Reference(K), Reference(V)))
    cube = named(grouped(Expand(T, rows, (K, Q, V)), (K,), SUM))
    assert len(shared(both(cube, copied(cube))).states) == 1
    assert len(shared(both(cube, copied(named(grouped(Expand(T, rows[:1] * 2, (K, Q, V)), (K,), SUM))))).states) == 2


def test_windows_are_compared_with_their_inputs_whole() -> None:
    """Ties within a window are broken by all columns: an input with fewer of them is another."""
    number = Column("w", "int")
    over = GroupwiseOp(child=T, kind="window", keys=(K,), columns=(*T.columns, number), text="k v")
    plain = named(grouped(over, (K,), SUM))
    twin = replace(copied(over), text="k_2 v_2")
    keys, calls = (second(K),), copied(plain).calls
    assert len(shared(both(plain, grouped(twin, keys, *calls))).states) == 1
    assert len(shared(both(plain, grouped(replace(twin, text="v_2 k_2"), keys, *calls))).states) == 2
    narrow = copied(replace(T, fields=T.fields[:1] + T.fields[2:]))
    fewer = replace(twin, child=narrow, columns=(*narrow.columns, Column("q_2", "int"), second(number)))
    assert len(shared(both(plain, grouped(fewer, keys, *calls))).states) == 2


def test_without_spark_no_expressions_are_equal() -> None:
    """What nobody compared is not equal; plain columns need no comparison."""
    plan = both(TOTAL, copied(TOTAL))
    assert len(share_states(split_states(draft(plan))).states) == 2
    distinct = grouped(T, (K,))
    assert len(share_states(split_states(draft(both(distinct, copied(distinct))))).states) == 1
