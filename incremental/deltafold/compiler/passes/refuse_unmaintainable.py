"""Pass: refuse a query that cannot be maintained incrementally, with every reason and its fix.

It runs before anything is split, so that a refused query touches no data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from deltafold.algebra.errors import Refusal, RefusedError
from deltafold.algebra.monoids.family import infer_accumulator
from deltafold.algebra.plan import (
    Aggregate,
    Column,
    Expand,
    Filter,
    Generate,
    Given,
    GroupwiseOp,
    Join,
    Loop,
    Plan,
    Project,
    Reference,
    SourceRead,
    StateRead,
    Undetermined,
    Union,
    Unsupported,
    UnsupportedReason,
    Values,
)
from deltafold.algebra.recipe import name_computed_keys
from deltafold.algebra.sqltext import first_unstored_type, is_unordered
from deltafold.algebra.traversal import walk
from deltafold.compiler.draft import Draft, Outputs
from deltafold.compiler.loops.stages import refuse_uncompared
from deltafold.compiler.loops.steps import RECOMPUTE, refuse_reads
from deltafold.compiler.plan_text import node_text

# the reason, and the fix
UNDETERMINED: Mapping[Undetermined, tuple[str, str]] = {
    "limit without order": (
        "which rows it keeps is undefined without an order",
        "add ORDER BY before LIMIT; ties are broken by all columns",
    ),
    "peers at a frame's edge": (
        "its RANGE frame ends among peers, whose order is undefined",
        "use ROWS instead of RANGE; ties are broken by all columns",
    ),
}  # fmt: skip
UNSUPPORTED: Mapping[UnsupportedReason, tuple[str, str]] = {
    "operator": ("Spark's operator {} has no incremental rule", "rewrite the query without it"),
    "subquery": ("Spark's operator {} contains a subquery", "compute the subquery in a query that is joined"),
    "subquery in a limit": (
        "the order or the columns of a LIMIT contain a subquery", "compute the subquery in a query below the LIMIT",
    ),
    "join type": ("Spark's {} join has no incremental rule", "write it as an inner or outer join"),
    "undeclared source": ("it reads data that is not a declared source", "declare it with Warehouse.source"),
}  # fmt: skip
# by the type that Delta does not store
CONVERSIONS = {
    "interval": "convert it to a number with timestampdiff, datediff or extract, or cast it to STRING",
    "time": "cast it to STRING",
    "string": "cast it to STRING; where its collation ignores case, use lower of that",
    "void": "cast it to a type, or omit it",
    "geometry": "use st_asbinary of it",
    "geography": "use st_asbinary of it",
}
EVEN_RECOMPUTED = ", so no table can store the answer, even if it is recomputed"


def refuse_unmaintainable(draft: Draft) -> Draft:
    """Return the query unchanged; raises RefusedError with every reason against maintaining it."""
    shown = set(_name_shown_keys(draft))
    of_answer = tuple(refuse_unstorable_answer(answer_columns(draft.outputs)))
    of_nodes = (reason for reason in find_refusals(draft.plan) if reason.node not in shown)
    if reasons := (*draft.refusals, *of_nodes, *of_answer):
        raise RefusedError(tuple(dict.fromkeys(reasons)))
    return draft


def _name_shown_keys(draft: Draft) -> Iterable[str]:
    """Yield the keys of the topmost group-by that the answer shows and no table can store: the answer is refused."""
    shown, node = {column.name for column, _ in draft.outputs}, draft.plan
    while isinstance(node, Project | Filter):
        if isinstance(node, Project):
            references = (item for item in node.items if isinstance(item.scalar, Reference))
            shown = {item.scalar.text for item in references if item.column.name in shown}
        node = node.child
    if isinstance(node, Aggregate):
        keys = (key for key in node.keys if key.name in shown)
        yield from (_name_key(key, node.child) for key in keys if first_unstored_type(key.type) not in (None, "void"))


def _name_key(key: Column, below: Plan) -> str:
    """Return a key as the user wrote it: an expression has a column of Catalyst's below the group-by."""
    if name_computed_keys(key.name) == key.name:
        return f"column {key.name}"
    while isinstance(below, Project):
        scalar = next(item.scalar for item in below.items if item.column.name == key.name)
        if not isinstance(scalar, Reference):
            return scalar.text
        key, below = scalar.column, below.child
    return _name_column(key)


def find_refusals(plan: Plan) -> tuple[Refusal, ...]:
    """Return the reasons against every node of a plan."""
    return tuple(refusal for node in walk(plan) for refusal in _refuse_node(node))


def _refuse_node(node: Plan) -> Iterable[Refusal]:
    match node:
        case SourceRead() | StateRead() | Values() | Given():
            pass
        case Project() | Filter() | Generate() | Expand() | Union() | Join():
            pass
        case Loop():
            yield from refuse_reads(node, node_text)
            yield from refuse_uncompared(node, node_text)
            yield from refuse_incomparable(node.keys or node.columns, "two rows of the loop")
            for column in node.columns:
                yield from _refuse_unstorable(_name_column(column), column.type)
        case Aggregate(child=child, keys=keys, calls=calls):
            yield from refuse_incomparable(keys, "two groups", name=lambda key: _name_key(key, child))
            stored = [(_name_key(key, child), key.type) for key in keys if key.type != "void"]
            stored += [(call.text, part.type) for call in calls for part in infer_accumulator(call).components]
            yield from (refusal for text, type_ in stored for refusal in _refuse_unstorable(text, type_))
        case GroupwiseOp(keys=keys, text=text, undetermined=undetermined):
            yield from refuse_incomparable(keys, "two partitions")
            if undetermined is not None:
                yield Refusal(text, *UNDETERMINED[undetermined])
        case Unsupported():
            because, instead = explain_unsupported(node)
            yield Refusal(node.text, because, f"{instead}, or {RECOMPUTE}")
        case _:
            assert_never(node)


def explain_unsupported(node: Unsupported) -> tuple[str, str]:
    """Return why a node has no incremental rule, and the fix."""
    because, instead = UNSUPPORTED[node.reason]
    return because.format(node.subject), instead


def answer_columns(outputs: Outputs) -> tuple[Column, ...]:
    """Return the answer's columns under the user's names."""
    return tuple(replace(column, name=name) for column, name in outputs)


def refuse_unstorable_answer(columns: Iterable[Column]) -> Iterable[Refusal]:
    """Yield the reasons why no table can store an answer, even if it is recomputed."""
    for column in columns:
        yield from _refuse_unstorable(_name_column(column), column.type, EVEN_RECOMPUTED)


def _refuse_unstorable(node: str, type_: str, consequence: str = "") -> Iterable[Refusal]:
    if (unstored := first_unstored_type(type_)) is None:
        return
    node = "an untyped NULL" if unstored == "void" else node
    instead = CONVERSIONS.get(unstored.split(" ")[0], "cast it to STRING")
    yield Refusal(node, f"Delta does not store values of type {unstored}{consequence}", instead)


def _name_column(column: Column) -> str:
    return f"column {name_computed_keys(column.name)}"


def refuse_incomparable(
    columns: Iterable[Column], what: str, consequence: str = "", name: Callable[[Column], str] = _name_column
) -> Iterable[Refusal]:
    """Yield the reasons against columns whose values Delta's MERGE cannot compare; name: of a column."""
    for column in columns:
        because = f"a MERGE cannot compare values of type {column.type}, so {what} cannot be distinguished{consequence}"
        if column.type == "void":
            yield Refusal("an untyped NULL", because, CONVERSIONS["void"])
        elif is_unordered(column.type):
            # equal maps may have their entries in another order
            instead = "array_sort(map_entries(…))" if column.type.startswith("map<") else "to_json"
            yield Refusal(name(column), because, f"use {instead} of it")
