"""Pass: fuse projections that only select columns into those below them (MRQL section 6, rule for two cMaps).

π u (π l (R))  →  π u∘l (R)   if every item of u is a column of l
π columns (R)  →  R           if it changes nothing
"""

from __future__ import annotations

from deltafold.algebra.plan import Item, Plan, Project, Reference
from deltafold.algebra.traversal import only_chooses, project, replace_children
from deltafold.compiler.draft import Draft


def fuse_projections(draft: Draft) -> Draft:
    """Return the query with fewer projections."""
    return draft.with_plan(_rewrite(draft.plan))


def _rewrite(plan: Plan) -> Plan:
    plan = replace_children(plan, tuple(map(_rewrite, plan.children)))
    match plan:
        case Project(child=Project(child=below, items=lower), items=upper) if only_chooses(upper):
            scalars = {item.column: item.scalar for item in lower}
            items = (
                Item(item.column, scalars[item.scalar.column]) for item in upper if isinstance(item.scalar, Reference)
            )
            return project(below, tuple(items))
        case Project(child=child, items=items):
            return project(child, items)
        case _:
            return plan
