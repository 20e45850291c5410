"""Turn a loop into the stage that maintains it: its side inputs beside it, and the level in its step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from deltafold.algebra.errors import Refusal
from deltafold.algebra.loops import Clusters, LoopState, SideInput
from deltafold.algebra.plan import Aggregate, Column, Filter, Given, Join, Loop, Plan, Project, Reference, Values
from deltafold.algebra.traversal import column_names, pass_columns, project
from deltafold.compiler.loops.clusters import find_clusters
from deltafold.compiler.loops.levels import add_levels
from deltafold.compiler.loops.places import is_replayed, linear_inputs, rewrite_side_inputs

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
    levelled = not is_replayed(loop)
    over_sides = replace(loop, step=rewrite_side_inputs(loop.step, loop.name, cut))
    carried = carried_columns(loop) if loop.traits.tolerant else ()
    found = find_clusters(over_sides) if loop.traits.fixed_steps else ""
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
        warm=warm_columns(loop, carried) if loop.traits.tolerant else (),
        carried=carried,
        clusters=found if isinstance(found, Clusters) else None,
        replayed=found if isinstance(found, str) else "",
    )


def warm_columns(loop: Loop, carried: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the double columns that the step of a loop computes."""
    return tuple(c for c in loop.columns if c.type in DOUBLES and c not in (*loop.keys, *carried))


def carried_columns(loop: Loop) -> tuple[Column, ...]:
    """Return the columns beside the key that the step takes over from the loop's own row."""
    origins = [_origin(column.name, loop.step, loop.name) for column in loop.step.columns]
    own = [origin if origin is not None and origin[1] == place else None for place, origin in enumerate(origins)]
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
            because = f"column {column.name} is not taken from the rows that the step is given, and type {column.type}"
            instead = "cast it to DOUBLE, select it from those rows, or use times"
            yield Refusal(text(loop), f"{because} has no distance", instead)
    if not warm_columns(loop, carried):
        yield Refusal(text(loop), "its step changes no column of type double", "use fixpoint or times")


def _origin(name: str, plan: Plan, loop: str) -> tuple[Given, int] | None:
    """Return the occurrence of the loop and the position of its column that a column has the values of."""
    match plan:
        case Given(name=given, columns=columns):
            names = [column.name for column in columns]
            return (plan, names.index(name)) if given == loop and name in names else None
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
