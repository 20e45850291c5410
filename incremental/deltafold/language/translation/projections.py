"""Project a plan to columns, only where that changes it."""

from __future__ import annotations

from deltafold.algebra.plan import Item, Plan, Project, Reference


def project_unless_identity(child: Plan, items: tuple[Item, ...]) -> Plan:
    """Return a projection, or its input if the projection would change nothing."""
    if all(item.scalar == Reference(item.column) for item in items) and tuple(i.column for i in items) == child.columns:
        return child
    return Project(child, items)
