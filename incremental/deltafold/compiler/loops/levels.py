"""Carry the level of rows up through a step.

| node | levelled |
| --- | --- |
| Given of the loop | has the level as its last column |
| Project, Expand | one item more |
| Filter, Generate, a join with the loop on one side | pass it on |
| inner join with the loop on both sides | set, best: the greater of the two; levels: both must be equal |
| Union | every branch has it last; one that does not read the loop has 0: it is there once init is |

At the top it is one more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

from deltafold.algebra.loops import LEVEL
from deltafold.algebra.plan import Column, Expand, Filter, Given, Item, Join, Loop, Plan, Project, Reference, Sql, Union
from deltafold.algebra.traversal import pass_columns, replace_children

Levelled = tuple[Plan, Column | None]
"""A plan, and its column that has the level; None if it does not read the loop."""


def add_levels(loop: Loop) -> Plan:
    """Return the step with the level as its last column, one above that of the rows that it was derived from."""
    plan, level = _Levels(loop).carry_level(loop.step)
    assert level is not None
    above = Item(Column(LEVEL, "int"), Sql(f"{level.name} + 1", "int", frozenset({level.name})))
    return Project(plan, (*pass_columns(loop.step.columns), above))


@dataclass
class _Levels:
    """Adds the level to the nodes of one step."""

    loop: Loop

    def __post_init__(self) -> None:
        self._numbers = count(1)

    def carry_level(self, plan: Plan) -> Levelled:
        if isinstance(plan, Given) and plan.name == self.loop.name:
            level = self._fresh()
            return Given(plan.name, (*plan.columns, level)), level
        found = [self.carry_level(child) for child in plan.children]
        levels = [level for _, level in found if level is not None]
        if not levels:
            return plan, None
        if isinstance(plan, Union):
            return self._branches(plan, found)
        over = replace_children(plan, tuple(child for child, _ in found))
        match over:
            case Project(items=items):
                return replace(over, items=(*items, Item(levels[0], Reference(levels[0])))), levels[0]
            case Expand(projections=projections, columns=columns):
                rows = tuple((*projection, Reference(levels[0])) for projection in projections)
                return replace(over, projections=rows, columns=(*columns, levels[0])), levels[0]
            case Join(kind="inner") if len(levels) == 2:
                return self._both(over, plan.columns, *levels)
            case _:
                return over, levels[0]

    def _branches(self, union: Union, found: list[Levelled]) -> Levelled:
        """Every branch with its level last; the first one gives the names."""
        last = [level or self._fresh() for _, level in found]
        branches = tuple(
            _last(child, old.columns, column, level is not None)
            for (child, level), old, column in zip(found, union.children, last, strict=True)
        )
        return replace(union, children=branches), last[0]

    def _both(self, join: Join, columns: tuple[Column, ...], left: Column, right: Column) -> Levelled:
        items = pass_columns(columns)
        used = frozenset({left.name, right.name})
        if self.loop.traits.by_one_level:
            same = Filter(join, Sql(f"{left.name} = {right.name}", "boolean", used))
            return Project(same, (*items, Item(left, Reference(left)))), left
        level = self._fresh()
        return Project(join, (*items, Item(level, Sql(f"greatest({left.name}, {right.name})", "int", used)))), level

    def _fresh(self) -> Column:
        return Column(f"{LEVEL}_{next(self._numbers)}", "int")


def _last(branch: Plan, columns: tuple[Column, ...], level: Column, levelled: bool) -> Plan:
    """Return a branch of a union with its level behind its other columns; levelled: whether it has it already."""
    if branch.columns == (*columns, level):
        return branch
    value = Reference(level) if levelled else Sql("0", level.type)
    return Project(branch, (*pass_columns(columns), Item(level, value)))
