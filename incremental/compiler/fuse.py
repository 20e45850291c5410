"""Compiler pass: fuse cascaded projections (MRQL section 6, rule for two cMaps). In: any plan. Out: fewer projections.

π u (π l (R))  →  π u∘l (R)   when every item of u is a column of l
π columns (R)  →  R           when it changes nothing
"""

from __future__ import annotations

from incremental.algebra.plan import Item, Plan, Project, Reference
from incremental.algebra.traversal import replace_children


def fused(plan: Plan) -> Plan:
    """The plan with projections that only pick columns fused into those below them."""
    plan = replace_children(plan, tuple(fused(child) for child in plan.children))
    match plan:
        case Project(child=Project(child=below, items=lower), items=upper) if picks(upper):
            scalars = {item.column: item.scalar for item in lower}
            items = (
                Item(item.column, scalars[item.scalar.column]) for item in upper if isinstance(item.scalar, Reference)
            )
            return fused_identity(Project(below, tuple(items)))
        case Project():
            return fused_identity(plan)
        case _:
            return plan


def picks(items: tuple[Item, ...]) -> bool:
    """Whether the items only choose and rename columns."""
    return all(isinstance(item.scalar, Reference) for item in items)


def fused_identity(plan: Project) -> Plan:
    """The input itself where the projection changes nothing."""
    same = all(item.scalar == Reference(item.column) for item in plan.items)
    return plan.child if same and plan.columns == plan.child.columns else plan
