"""Algebra room: rebuilding plans. In: a node and other inputs. Out: the same node over them."""

from __future__ import annotations

from dataclasses import replace

from incremental.algebra.plan import Foreign, Join, Plan, Source, StateRead, Union, Values


def with_children(plan: Plan, children: tuple[Plan, ...]) -> Plan:
    """The same node over other inputs."""
    match plan:
        case Source() | StateRead() | Values():
            return plan
        case Union() | Foreign():
            return replace(plan, children=children)
        case Join():
            return replace(plan, left=children[0], right=children[1])
        case _:
            return replace(plan, child=children[0])
