"""The canonical text of plans and accumulators, whose hashes warehouses store as fingerprints and digests.

The text is frozen: if it changed, every existing view would be refused as having another query. It therefore keeps the
names of classes, fields and sentences of its first release, whatever they are called elsewhere in the code;
renaming a class or rewording a message never touches this module, and tests/algebra/test_canonical.py pins its output.

- fingerprint (`Query.fingerprint`): the translated plan, before any pass, with the answer's columns and the settings;
- digest (`Program.digests`): what one stage contains, whatever the states that it reads are called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from deltafold.algebra.loops import LoopState, SideInput
from deltafold.algebra.monoids.kinds import Component, Group, Monoid, Recomputed
from deltafold.algebra.plan import (
    Aggregate,
    Call,
    Column,
    Expand,
    Filter,
    Generate,
    Given,
    GroupwiseOp,
    Item,
    Join,
    Loop,
    Opaque,
    Project,
    Reference,
    SourceRead,
    Sql,
    StateRead,
    Tolerance,
    Union,
    Unsupported,
    Values,
)

# class: the name that it is printed under, and the fields that are printed under their own names
PRINTED: dict[type, tuple[str, str]] = {
    Column: ("Column", "name type"),
    Reference: ("Reference", "column"),
    Sql: ("Sql", "text type columns"),
    Opaque: ("Opaque", "text type"),
    Item: ("Item", "column scalar"),
    Call: ("Call", "column function arguments text buffers answer distinct mode"),
    SourceRead: ("Source", "relation fields"),
    StateRead: ("StateRead", "state columns"),
    Values: ("Values", "columns text"),
    Project: ("Project", "child items"),
    Filter: ("Filter", "child condition"),
    Generate: ("Generate", "child generator outer produced"),
    Expand: ("Expand", "child projections columns"),
    Union: ("Union", "children"),
    Join: ("Join", "left right kind condition keys exists"),
    Aggregate: ("Aggregate", "child keys calls"),
    Given: ("Given", "name columns"),
    Tolerance: ("Tolerance", "norm residual error contraction"),
    SideInput: ("Side", "given plan"),
    LoopState: (
        "LoopState",
        "kind init step sides columns keys limit levelled keep distinct tolerance warm carried",
    ),
    Component: ("Part", "name type lift merge zero"),
}
AMBIGUOUS = {
    "limit without order": "without an order nobody knows which rows it keeps",
    "peers at a frame's edge": "among peers of its order any may be the last",
}
FOREIGN = {
    "operator": ("Spark's operator {} has no incremental rule", "rewrite the query without it"),
    "subquery": ("a subquery stands within Spark's operator {}", "compute it in a query that is joined"),
    "undeclared source": ("it reads data that is not a declared source", "declare it with Warehouse.source"),
    "join type": ("Spark's {} join has no incremental rule", "write it as an inner or outer join"),
    "subquery in a limit": (
        "a subquery stands within what a LIMIT orders or shows", "compute it in a query below the LIMIT",
    ),
    "recursion": ("a recursive query is a fixpoint, which has no incremental rule", "rewrite it without recursion"),
}  # fmt: skip
SUBTRACTING = "subtract exactly, but of NaN, infinities and values that do not fit recompute their group"
LAST_ROUND = "what the last round gave"
REACH = {
    "sum": SUBTRACTING,
    "avg": SUBTRACTING,
    "min": "of the present min recompute its group",
    "max": "of the present max recompute its group",
    "min_by": "of the present min recompute its group",
    "max_by": "of the present max recompute its group",
    "no merge": "and insertions recompute their group",
}
RECOMPUTING = "recompute the groups they reach"
SETTLED = {
    "min_by": "among equal orders the smallest value is taken",
    "max_by": "among equal orders the largest value is taken",
}


def fingerprint_text(value: object) -> str:
    """Return the text that the fingerprint of a query is the hash of."""
    return _print(value, None)


def digest_text(value: object, states: Mapping[str, str]) -> str:
    """Return the text that the digest of a state is the hash of; states: the digests of the states that it may read."""
    return _print(value, states)


def _print(value: Any, states: Mapping[str, str] | None) -> str:
    match value:
        case StateRead(state=state, columns=columns, stored=stored) if states is not None:
            renamed = f", {_print(stored, states)}" if stored else ""
            return f"StateRead({states[state]}, {_print(columns, states)}{renamed})"
        case frozenset():
            return str(sorted(_print(member, states) for member in cast("frozenset[Any]", value)))
        case tuple():
            inside = [_print(member, states) for member in cast("tuple[Any, ...]", value)]
            return f"({', '.join(inside)}{',' if states is None and len(inside) == 1 else ''})"
        case Given() if states is None:  # of the loop around it, whatever it is called
            name = "Values"
            fields = {"columns": value.columns, "text": LAST_ROUND}
        case GroupwiseOp() | Loop() | Unsupported() | Group() | Monoid() | Recomputed():
            name, fields = _renamed_fields(value)
        case _ if type(value) in PRINTED:
            name, listed = PRINTED[type(value)]
            fields = {field: getattr(value, field) for field in listed.split()}
        case _:
            return repr(value)
    return f"{name}({', '.join(f'{field}={_print(content, states)}' for field, content in fields.items())})"


def _renamed_fields(
    value: GroupwiseOp | Loop | Unsupported | Group | Monoid | Recomputed,
) -> tuple[str, dict[str, object]]:
    """Return the name and the fields of an object whose class has other ones today."""
    match value:
        case GroupwiseOp():
            ambiguous = None if value.undetermined is None else AMBIGUOUS[value.undetermined]
            fields = {"child": value.child, "kind": value.kind, "keys": value.keys, "columns": value.columns}
            return "KeyLocal", {**fields, "text": value.text, "ambiguous": ambiguous}
        case Loop(kind="levels", detail=detail) if detail:  # as released before recursion was maintained
            because, instead = FOREIGN["recursion"]
            fields = {"kind": "UnionLoop", "text": "WITH RECURSIVE", "because": because, "instead": instead}
            return "Foreign", {**fields, "children": value.children, "columns": value.columns, "detail": detail}
        case Loop():
            listed = "kind init step columns keys keep limit distinct tolerance detail"
            return "Loop", {field: getattr(value, field) for field in listed.split()}
        case Unsupported():
            because, instead = FOREIGN[value.reason]
            fields = {"kind": value.kind, "text": value.text, "because": because.format(value.subject)}
            fields |= {"instead": instead, "children": value.children, "columns": value.columns}
            return "Foreign", {**fields, "detail": value.detail}
        case Recomputed():
            fields = {"name": value.name, "parts": value.components, "buffers": (), "watched": (), "disturbed": "true"}
            return "Monoid", {**fields, "unit": False, "ambiguous": None, "reach": REACH[value.name], "whole": True}
        case Group() | Monoid():
            fields = {"name": value.name, "parts": value.components, "buffers": value.buffers, "watched": value.watched}
            fields |= {"disturbed": value.needs_recompute_sql if isinstance(value, Monoid) else None}
            fields |= {"unit": value.unit_weights, "ambiguous": SETTLED.get(value.name)}
            return "Monoid", {**fields, "reach": REACH.get(value.name, RECOMPUTING), "whole": False}
