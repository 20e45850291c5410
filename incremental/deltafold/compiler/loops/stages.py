"""Turn a loop into the stage that maintains it: its side inputs beside it, and the level in its step.

The level of rows is carried up through a step:

| node | with the level |
| --- | --- |
| Given of the loop | has the level as its last column |
| Project, Expand | one item more |
| Filter, Generate, a join with the loop on one side | pass it on |
| inner join with the loop on both sides | set, best: the greater of the two; levels: both must be equal |
| Union | every branch has it last; one that does not read the loop has 0: it is there once init is |

At the top it is one more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from deltafold.algebra.errors import Refusal
from deltafold.algebra.loops import LEVEL, Clusters, LoopState, SideInput
from deltafold.algebra.plan import (
    Aggregate,
    Column,
    Expand,
    Filter,
    Given,
    Item,
    Join,
    Loop,
    Plan,
    Project,
    Reference,
    Sql,
    Union,
    Values,
)
from deltafold.algebra.traversal import column_names, pass_columns, project, replace_children
from deltafold.compiler.loops.clusters import find_clusters
from deltafold.compiler.loops.steps import linear_inputs, rewrite_side_inputs

DOUBLES = ("double", "float")


def loop_stage(loop: Loop, split: Callable[[Plan], Plan]) -> LoopState:
    """Return the stage of a loop; split: cuts the states out of a plan that does not read the loop."""
    sides: list[SideInput] = []

    def cut(plan: Plan) -> Plan:
        if isinstance(plan, Values):
            return plan
        over_states = _with_distinct_columns(split(plan))
        given = Given(f"{loop.name}_side_{len(sides) + 1}", over_states.columns)
        sides.append(SideInput(given, over_states))
        return given

    init = split(loop.init)
    levelled = not loop.traits.replayed
    over_sides = replace(loop, step=rewrite_side_inputs(loop.step, loop.name, cut))
    carried = carried_columns(loop) if loop.traits.tolerant else ()
    clusters = find_clusters(over_sides) if loop.traits.fixed_steps else ""
    return LoopState(
        name=loop.name,
        kind=loop.kind,
        init=init,
        step=add_levels(over_sides) if levelled else over_sides.step,
        sides=tuple(sides),
        columns=loop.columns,
        keys=loop.keys,
        limit=loop.limit,
        levelled=levelled,
        keep=loop.keep,
        distinct=loop.distinct,
        tolerance=loop.tolerance,
        warm=_warm_columns(loop, carried) if loop.traits.tolerant else (),
        carried=carried,
        clusters=clusters if isinstance(clusters, Clusters) else None,
        replayed=clusters if isinstance(clusters, str) else "",
    )


def _warm_columns(loop: Loop, carried: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the double columns that the step of a loop computes."""
    return tuple(c for c in loop.columns if c.type in DOUBLES and c not in (*loop.keys, *carried))


def carried_columns(loop: Loop) -> tuple[Column, ...]:
    """Return the columns beside the key that the step takes over from the loop's own row."""
    origins = [_origin(column.name, loop.step, loop.name) for column in loop.step.columns]
    own = [origin if origin is not None and origin[1] == i else None for i, origin in enumerate(origins)]
    by_column = dict(zip(loop.columns, own, strict=True))
    rows = [origin[0] if (origin := by_column[key]) is not None else None for key in loop.keys]
    if rows[0] is None or any(row != rows[0] for row in rows):
        return ()
    return tuple(c for c, origin in by_column.items() if origin and origin[0] == rows[0] and c not in loop.keys)


def refuse_uncompared(loop: Loop, text: Callable[[Plan], str]) -> Iterator[Refusal]:
    """Yield the reasons against columns of a loop to a tolerance that are neither compared nor taken over."""
    if not loop.traits.tolerant:
        return
    carried = carried_columns(loop)
    for column in loop.columns:
        if column.type not in DOUBLES and column not in (*loop.keys, *carried):
            because = f"column {column.name} is not taken from the rows of the loop, and type {column.type}"
            instead = "cast it to DOUBLE, select it from those rows, or use times"
            yield Refusal(text(loop), f"{because} has no distance", instead)
    if not _warm_columns(loop, carried):
        yield Refusal(text(loop), "its step changes no column of type double", "use fixpoint or times")


def _origin(name: str, plan: Plan, loop: str) -> tuple[Given, int] | None:
    """Return the occurrence of the loop and the position of its column that a column has the values of."""
    match plan:
        case Given(name=read, columns=columns):
            names = [column.name for column in columns]
            return (plan, names.index(name)) if read == loop and name in names else None
        case Project(child=child, items=items):
            scalar = next(item.scalar for item in items if item.column.name == name)
            return _origin(scalar.column.name, child, loop) if isinstance(scalar, Reference) else None
        case Aggregate(child=child, keys=keys):
            return _origin(name, child, loop) if name in {key.name for key in keys} else None
        case Filter() | Join():
            sides = [
                child for child, linear in zip(plan.children, linear_inputs(plan), strict=True)
                if linear and name in column_names(child)
            ]  # fmt: skip
            return _origin(name, sides[0], loop) if sides else None
        case _:
            return None


def _with_distinct_columns(plan: Plan) -> Plan:
    columns = tuple(dict.fromkeys(plan.columns))
    return project(plan, pass_columns(columns))


_Levelled = tuple[Plan, Column | None]
"""A plan, and its column that has the level; None if it does not read the loop."""


def add_levels(loop: Loop) -> Plan:
    """Return the step with the level as its last column, one above that of the rows that it was derived from."""
    plan, level = _Levels(loop).carry_level(loop.step)
    assert level is not None
    above = Item(Column(LEVEL, "int"), Sql(f"{level.name} + 1", "int", frozenset({level.name})))
    return Project(plan, (*pass_columns(loop.step.columns), above))


class _Levels:
    """Adds the level to the nodes of one step."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._numbers = count(1)

    def carry_level(self, plan: Plan) -> _Levelled:
        if isinstance(plan, Given) and plan.name == self._loop.name:
            level = self._fresh()
            return Given(plan.name, (*plan.columns, level)), level
        inputs = [self.carry_level(child) for child in plan.children]
        levels = [level for _, level in inputs if level is not None]
        if not levels:
            return plan, None
        if isinstance(plan, Union):
            return self._branches(plan, inputs)
        over = replace_children(plan, tuple(child for child, _ in inputs))
        match over:
            case Project(items=items):
                return replace(over, items=(*items, Item(levels[0], Reference(levels[0])))), levels[0]
            case Expand(projections=projections, columns=columns):
                rows = tuple((*projection, Reference(levels[0])) for projection in projections)
                return replace(over, projections=rows, columns=(*columns, levels[0])), levels[0]
            case Join(kind="inner") if len(levels) == 2:
                return self._joined_levels(over, plan.columns, *levels)
            case _:
                return over, levels[0]

    def _branches(self, union: Union, branches: list[_Levelled]) -> _Levelled:
        """Return a union with the level as the last column of every branch; the first branch gives the names."""
        levels = [level or self._fresh() for _, level in branches]
        plans = tuple(
            _put_level_last(child, old.columns, column, levelled=level is not None)
            for (child, level), old, column in zip(branches, union.children, levels, strict=True)
        )
        return replace(union, children=plans), levels[0]

    def _joined_levels(self, join: Join, columns: tuple[Column, ...], left: Column, right: Column) -> _Levelled:
        items = pass_columns(columns)
        used = frozenset({left.name, right.name})
        if self._loop.traits.by_one_level:
            same = Filter(join, Sql(f"{left.name} = {right.name}", "boolean", used))
            return Project(same, (*items, Item(left, Reference(left)))), left
        level = self._fresh()
        return Project(join, (*items, Item(level, Sql(f"greatest({left.name}, {right.name})", "int", used)))), level

    def _fresh(self) -> Column:
        return Column(f"{LEVEL}_{next(self._numbers)}", "int")


def _put_level_last(branch: Plan, columns: tuple[Column, ...], level: Column, *, levelled: bool) -> Plan:
    """Return a branch of a union with its level behind its other columns; levelled: whether it has it already."""
    if branch.columns == (*columns, level):
        return branch
    value = Reference(level) if levelled else Sql("0", level.type)
    return Project(branch, (*pass_columns(columns), Item(level, value)))
