"""Recognise k-means: a step that groups points by `nearest(points, centers)`, with aggregates that subtract.

    Project, Filter …           the next centers, from the aggregates alone
      Aggregate (center)        count, sum and avg of columns of the points
        Project …               the center of each point: the expression of nearest (language/loops/functions.py)
          Join                  the points, with the list of all centers

Expressions are recognised by their shapes. A step of any other form is evaluated from the start, which is always right.
"""

from __future__ import annotations

import re
from dataclasses import replace

from deltafold.algebra.loops import POSITION, STEP, Clusters
from deltafold.algebra.monoids.family import infer_accumulator
from deltafold.algebra.monoids.kinds import Group
from deltafold.algebra.plan import (
    Aggregate,
    Column,
    Filter,
    Given,
    Item,
    Join,
    Loop,
    Opaque,
    Plan,
    Project,
    Reference,
    Scalar,
    Values,
)
from deltafold.algebra.shapes import AreNumbers, HasNearest, Nearest, Shape, Sorted, Struct
from deltafold.algebra.traversal import pass_columns
from deltafold.compiler.loops.steps import reads_loop, rewrite_side_inputs

SUBTRACTED = {"sum", "avg"}  # accumulators that recompute groups only for values which are out of range
UNSTORED = ("interval", "void")
# the names in the type of a struct, as release 0.1.0 found them: to recognise more would ask its warehouses for other
# tables under the same fingerprint
FIELD_NAME = re.compile(r"[<,] ?`?(\w+)`?: ")


class UnlikeKMeansError(Exception):
    """The step of a loop is not one of k-means; the message is the reason, for explain."""


def find_clusters(loop: Loop) -> Clusters | str:
    """Return how the step of a loop over side inputs groups points by the nearest center; a reason if it does not."""
    try:
        return _match_clusters(loop)
    except UnlikeKMeansError as error:
        return str(error)


def is_clustered(loop: Loop) -> bool:
    """Return whether a loop whose side inputs are not yet cut out is kept by the sums of its clusters."""
    if not loop.traits.fixed_steps:
        return False

    def cut(plan: Plan) -> Plan:
        constant = isinstance(plan, Values)
        return plan if constant else Given(f"side of {loop.name}", tuple(dict.fromkeys(plan.columns)))

    step = rewrite_side_inputs(loop.step, loop.name, cut)
    return isinstance(find_clusters(replace(loop, step=step)), Clusters)


def _match_clusters(loop: Loop) -> Clusters:
    """Match a loop with the form of k-means; raises UnlikeKMeansError where it differs."""
    if loop.limit < 1:
        raise UnlikeKMeansError("there is no step")
    grouped = _find_group_by(loop.step)
    key = grouped.keys[0].name
    for call in grouped.calls:
        accumulator = infer_accumulator(call)
        if not isinstance(accumulator, Group) and accumulator.name not in SUBTRACTED:
            raise UnlikeKMeansError(f"deletions cannot be subtracted from {call.text}")
    projections, join = _find_join(grouped.child)
    side, fields = _find_inputs(join, loop)
    center, distance = _find_distance(projections[-1], join)
    by_name = {column.name: column for column in side.columns}
    if not all(point in by_name and field in fields for point, field in distance.pairs):
        raise UnlikeKMeansError("the distance is not one of columns of points and centers")
    coordinates = tuple((by_name[point], fields[field]) for point, field in distance.pairs)
    if any(column.type != "double" for pair in coordinates for column in pair):
        raise UnlikeKMeansError("a coordinate is not of type double")
    points = _keep_points(side, projections, center, key, tuple(point for point, _ in coordinates))
    used = {argument.name for call in grouped.calls for argument in call.arguments}
    if not used <= {column.name for column in points.columns}:
        raise UnlikeKMeansError("an aggregate uses the center of a point")
    if any(word in column.type.lower() for column in points.columns for word in UNSTORED):
        raise UnlikeKMeansError("an aggregate uses a value of a type that no table stores")
    groups = Given(f"{loop.name}_groups", (STEP, POSITION, *(call.column for call in grouped.calls)))
    answer = _carry_number(loop.step, groups, key)
    if answer.columns != (STEP, POSITION, *loop.step.columns):
        raise UnlikeKMeansError("the next centers are computed from the last ones")
    return Clusters(
        side=side, points=points, coordinates=coordinates, calls=grouped.calls, groups=groups, answer=answer
    )


def _find_group_by(plan: Plan) -> Aggregate:
    """Return the group-by by one column below the projections and filters of a step."""
    while isinstance(plan, Project | Filter):
        plan = plan.child
    if not isinstance(plan, Aggregate) or len(plan.keys) != 1 or not plan.calls:
        raise UnlikeKMeansError("the step is not a group-by of points by the nearest center")
    return plan


def _find_join(plan: Plan) -> tuple[list[Project], Join]:
    """Return the projections below a group-by, and the join of points with the list of centers."""
    projections = list[Project]()
    while isinstance(plan, Project):
        projections.append(plan)
        plan = plan.child
    if not projections or not isinstance(plan, Join) or plan.kind != "inner":
        raise UnlikeKMeansError("the step is not a group-by of points by the nearest center")
    return projections, plan


def _find_inputs(join: Join, loop: Loop) -> tuple[Given, dict[str, Column]]:
    """Return the side input with the points, and the loop's columns by the fields of a center."""
    side = join.left
    listed = join.right
    match listed:
        case Project(
            items=(Item(scalar=ordered),),
            child=Aggregate(keys=(), calls=(call,), child=Project(items=(Item(column=one, scalar=row),), child=below)),
        ):
            pass
        case _:
            raise UnlikeKMeansError("the points are not joined with the list of all centers")
    conditions = list[Shape | None]()
    while isinstance(below, Filter):
        conditions.append(_shape(below.condition))
        below = below.child
    if not isinstance(below, Given) or below.name != loop.name:
        raise UnlikeKMeansError("the centers are not the rows of the loop as they are")
    if not isinstance(side, Given) or reads_loop(side, loop.name):
        raise UnlikeKMeansError("the points are not a side input")
    fields, values = zip(*struct.fields, strict=True) if isinstance(struct := _shape(row), Struct) else ((), ())
    as_listed = call.function == "collectset" and call.arguments == (one,) and not call.distinct
    as_they_are = list(values) == [column.name for column in below.columns]
    if not as_listed or not as_they_are or _shape(ordered) != Sorted(call.column.name):
        raise UnlikeKMeansError("the centers are not the rows of the loop as they are")
    if FIELD_NAME.findall(one.type) != list(fields):
        raise UnlikeKMeansError("a column of the centers is a struct, or its name is not of letters, digits and _")
    if not all(isinstance(condition, AreNumbers) for condition in conditions):
        raise UnlikeKMeansError("some centers are left out")
    return side, dict(zip(fields, loop.columns, strict=True))


def _find_distance(lowest: Project, join: Join) -> tuple[Item, Nearest]:
    """Return the item that has the center of a point, and the expression of `nearest`."""
    listed = join.right.columns[0].name
    conditions = [_shape(conjunct) for conjunct in join.conjuncts]
    for item in lowest.items:
        nearest = _shape(item.scalar)
        if isinstance(nearest, Nearest) and nearest.elements == listed and conditions == [HasNearest(nearest)]:
            return item, nearest
    raise UnlikeKMeansError("the step is not a group-by of points by the nearest center")


def _shape(scalar: Scalar) -> Shape | None:
    return scalar.shape if isinstance(scalar, Opaque) else None


def _keep_points(
    side: Given, projections: list[Project], center: Item, key: str, coordinates: tuple[Column, ...]
) -> Plan:
    """Return the projections over the points alone: what does not use the center, and the coordinates."""
    centers = {center.column.name}
    available = {column.name for column in side.columns}
    result: Plan = side
    for projection in reversed(projections):
        kept = {item.column: item for item in projection.items if item.scalar.columns <= available}
        passed = {
            item.column.name for item in projection.items
            if item is center or (isinstance(item.scalar, Reference) and item.scalar.column.name in centers)
        }  # fmt: skip
        kept |= {column: Item(column, Reference(column)) for column in coordinates if column not in kept}
        result = Project(result, tuple(kept.values()))
        centers = passed
        available = {column.name for column in kept}
    if key not in centers:
        raise UnlikeKMeansError("the step groups by something else than the nearest center")
    return result


def _carry_number(plan: Plan, groups: Given, key: str) -> Plan:
    """Return the plan that makes centers of groups, with STEP and POSITION as its first columns."""
    match plan:
        case Project(child=child, items=items) if not any(key in item.scalar.columns for item in items):
            numbers = pass_columns((STEP, POSITION))
            return Project(_carry_number(child, groups, key), (*numbers, *items))
        case Filter(child=child, condition=condition) if key not in condition.columns:
            return Filter(_carry_number(child, groups, key), condition)
        case Aggregate():
            return groups
        case _:
            raise UnlikeKMeansError("the next centers are computed from the last ones")
