"""Build the nodes of the tree: for each form that the grammar names, a function of its place and its parts.

`group by p` means `group by p: p` where p is a pattern of names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deltafold.language.mrql.syntax import items as I
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.spans import Span
from deltafold.language.mrql.syntax.tree import Node

TEXT_ESCAPES = {r"\t": "\t", r"\n": "\n"}
PATHS = (
    "here", "child", "root_child", "root_descendant", "child_of", "descendant_of", "nth", "tested", "test", "step",
)  # fmt: skip
Build = Callable[[Span, list[Any]], Any]


def string(token: str) -> str:
    """Return the value of a quoted string."""
    value = token[1:-1]
    for written, meant in TEXT_ESCAPES.items():
        value = value.replace(written, meant)
    return value


def binary(operator: str) -> Build:
    """Build a node of two operands."""
    return lambda span, parts: T.Binary(span, operator, parts[0], parts[1])


def infix(span: Span, parts: list[Any]) -> Node:
    """Build an operation whose operator is a token."""
    operator = str(parts[1]).lower()
    return T.Binary(span, "mod" if operator == "%" else operator, parts[0], parts[2])


def set_operation(operation: str) -> Build:
    """Build a union, an intersection or a difference."""
    return lambda span, parts: T.SetOperation(span, operation, parts[0], parts[1])


def build_refused_item(what: str) -> Build:
    """Build an item that is refused."""
    return lambda span, _: I.UnsupportedItem(span, what)


def group_by(span: Span, parts: list[Any]) -> Node:
    """Build a group by: `p: e`, `p` for `p: p`, or an expression."""
    first, key, having = parts
    if key is not None:
        return T.GroupBy(span, pattern_of(first), key, having)
    return T.GroupBy(span, pattern_of(first) if names_only(first) else None, first, having)


def names_only(node: Node) -> bool:
    """Return whether an expression is a name, or a tuple or record of such."""
    match node:
        case T.Name():
            return True
        case T.TupleOf(items=parts) | T.RecordOf(values=parts):
            return bool(parts) and all(map(names_only, parts))
        case _:
            return False


def pattern_of(node: Node) -> Node:
    """Return the pattern that is written like an expression. Raises QueryError where there is none."""
    match node:
        case T.Name() | T.Literal():
            return node
        case T.TupleOf(span=span, items=parts):
            return T.TuplePattern(span, tuple(map(pattern_of, parts)))
        case T.CollectionOf(span=span, bag=False, items=parts):
            return T.ListPattern(span, tuple(map(pattern_of, parts)))
        case T.RecordOf(span=span, names=names, values=values):
            return T.RecordPattern(span, names, tuple(map(pattern_of, values)))
        case T.FunctionCall(span=span, name=name, arguments=parts):
            return T.ConstructorPattern(span, name, tuple(map(pattern_of, parts)))
        case T.Typed(span=span, value=value, type=type_):
            return T.TypedPattern(span, pattern_of(value), type_)
        case _:
            raise node.span.error(
                "this is not a pattern. Write names, tuples or records of names before the `:` of a group by."
            )


def fields(parts: Sequence[Any]) -> tuple[tuple[str, ...], tuple[Node, ...]]:
    """Return the names and values of a record; lark gives its brackets as tokens."""
    pairs: list[tuple[str, Node]] = [part for part in parts if isinstance(part, tuple)]
    return tuple(name for name, _ in pairs), tuple(value for _, value in pairs)


def binding(each: bool) -> Build:
    """Build `pattern in domain` or `pattern = domain`."""
    return lambda span, parts: T.Binding(span, parts[0], parts[1], each)


def ordering(span: Span, parts: list[Any]) -> Node:
    """Build an order by; the last part is the limit."""
    return T.OrderBy(span, tuple(parts[:-1]), parts[-1])


def sort_key(span: Span, parts: list[Any]) -> Node:
    """Build a key of an order by."""
    return T.SortKey(span, parts[0], parts[1] is not None and str(parts[1]).lower() == "desc")


def record(build: Callable[[Span, tuple[str, ...], tuple[Node, ...]], Node]) -> Build:
    """Build a record or its pattern. Raises QueryError where a name occurs twice."""

    def build_record(span: Span, parts: list[Any]) -> Node:
        names, values = fields(parts)
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise span.error(f"the record has {twice} twice. Rename one.")
        return build(span, names, values)

    return build_record


def quantifier(every: bool) -> Build:
    """Build `some …` or `all …`; over a select its elements are the conditions."""

    def build_quantified(span: Span, parts: list[Any]) -> Node:
        if len(parts) == 2:
            return T.Quantified(span, every, parts[0], parts[1])
        (query,) = parts
        each = T.Binding(span, T.Name(span, "it"), query, True)
        return T.Quantified(span, every, (each,), T.Name(span, "it"))

    return build_quantified


def lexical(names: Sequence[Any]) -> tuple[str, ...]:
    """Return names as plain text."""
    return tuple(str(name) for name in names)


def collection(bag: bool) -> Build:
    """Build a bag or a list of expressions."""
    return lambda span, parts: T.CollectionOf(span, bag, parts[0] or ())


def collection_type(bag: bool) -> Build:
    """Build the type of a bag or a list."""
    return lambda span, parts: T.CollectionType(span, bag, parts[0])


# lark's name of each form → the node made of its span and parts
BUILDERS: dict[str, Build] = {
    # items
    "store": lambda s, p: I.Define(s, str(p[0]), p[1]),
    "define": lambda s, p: I.Define(s, str(p[0]), p[1]),
    "write_binary": lambda s, p: I.Evaluate(s, p[1]),
    "write_text": lambda s, p: I.Evaluate(s, p[1]),
    "incremental": lambda s, p: I.Evaluate(s, p[0]),
    "evaluate": lambda s, p: I.Evaluate(s, p[0]),
    "lineage": build_refused_item("lineage"),
    "debug": build_refused_item("debug"),
    "debug_all": build_refused_item("debug all"),
    "import_methods": build_refused_item("import"),
    "import_class": build_refused_item("import"),
    "parser": build_refused_item("parser"),
    "type_definition": lambda s, p: I.TypeDefinition(s, str(p[0]), p[1]),
    "data_definition": lambda s, p: I.DataDefinition(s, str(p[0]), tuple(p[1:])),
    "function": lambda s, p: I.FunctionDefinition(s, str(p[0]), p[1] or (), p[2], p[3]),
    "macro": lambda s, p: I.MacroDefinition(s, str(p[0]), p[1] or (), p[2]),
    "aggregation": lambda s, p: I.AggregationDefinition(s, str(p[0]), p[1], p[2], p[3], p[4]),
    "include": lambda s, p: I.Include(s, string(p[0])),
    "alternative": lambda s, p: T.Parameter(s, str(p[0]), p[1]),
    "parameters": lambda s, p: tuple(p),
    "parameter": lambda s, p: T.Parameter(s, str(p[0]), p[1]),
    "names": lambda s, p: lexical(p),
    "imported": lambda s, p: p,
    # expressions
    "if_else": lambda s, p: T.IfElse(s, *p),
    "let": lambda s, p: T.Let(s, *p),
    "lambda_": lambda s, p: T.Lambda(s, *p),
    "repeat": lambda s, p: T.Repeat(s, (str(p[0]),), *p[1:]),
    "repeat_tuple": lambda s, p: T.Repeat(s, *p),
    "some": quantifier(False),
    "all": quantifier(True),
    "some_of": quantifier(False),
    "all_of": quantifier(True),
    "union": set_operation("union"),
    "intersect": set_operation("intersect"),
    "except_": set_operation("except"),
    "query": lambda s, p: T.Select(s, p[0] is not None, *p[1:]),
    "bindings": lambda s, p: tuple(p),
    "each": binding(True),
    "bound": binding(False),
    "where": lambda s, p: p[0],
    "group": group_by,
    "order": ordering,
    "sort_key": sort_key,
    "or_": binary("or"),
    "and_": binary("and"),
    "not_": lambda s, p: T.Unary(s, "not", p[0]),
    "compare": infix,
    "equal": binary("="),
    "range": lambda s, p: T.RangeOf(s, p[1] == "...", p[0], p[2]),
    "add": infix,
    "multiply": infix,
    "sign": lambda s, p: T.Unary(s, str(p[0]), p[1]),
    "exists": lambda s, p: T.Unary(s, "exists", p[0]),
    "field": lambda s, p: T.Member(s, p[0], str(p[1])),
    "children": lambda s, p: T.Markup(s, p[0], "*"),
    "attribute": lambda s, p: T.Markup(s, p[0], f"@{p[1]}"),
    "attributes": lambda s, p: T.Markup(s, p[0], "@*"),
    "component": lambda s, p: T.TupleComponent(s, p[0], int(p[1])),
    "index": lambda s, p: T.Index(s, *p),
    "slice": lambda s, p: T.Slice(s, *p),
    "typed": lambda s, p: T.Typed(s, *p),
    "name": lambda s, p: T.Name(s, str(p[0])),
    "string": lambda s, p: T.Literal(s, string(p[0])),
    "integer": lambda s, p: T.Literal(s, int(p[0])),
    "double": lambda s, p: T.Literal(s, float(p[0])),
    "call": lambda s, p: T.FunctionCall(s, str(p[0]), p[1] or ()),
    "unit": lambda s, p: T.TupleOf(s, ()),
    "tuple": lambda s, p: T.TupleOf(s, tuple(p)),
    "bag": collection(True),
    "list": collection(False),
    "record": record(T.RecordOf),
    "case": lambda s, p: T.Case(s, p[0], tuple(p[1:])),
    "type_value": lambda s, p: T.TypeValue(s, p[0]),
    "xpath": lambda s, p: T.XPath(s, s.content),
    "trace": lambda s, p: T.Trace(s, p[0]),
    "expressions": lambda s, p: tuple(p),
    "field_value": lambda s, p: (str(p[0]), p[1]),
    "branch": lambda s, p: T.Branch(s, *p),
    # patterns
    "variable": lambda s, p: T.Name(s, str(p[0])),
    "anything": lambda s, p: T.Anything(s),
    "unit_pattern": lambda s, p: T.TuplePattern(s, ()),
    "tuple_pattern": lambda s, p: T.TuplePattern(s, tuple(p)),
    "list_pattern": lambda s, p: T.ListPattern(s, p[0] or ()),
    "constructor_pattern": lambda s, p: T.ConstructorPattern(s, str(p[0]), p[1]),
    "record_pattern": record(T.RecordPattern),
    "template_pattern": lambda s, p: T.Template(s, "", (), ()),
    "typed_pattern": lambda s, p: T.TypedPattern(s, *p),
    "patterns": lambda s, p: tuple(p),
    "field_pattern": lambda s, p: (str(p[0]), p[1]),
    # types
    "named_type": lambda s, p: T.NamedType(s, str(p[0])),
    "tuple_type": lambda s, p: T.TupleType(s, p[0] or ()),
    "record_type": lambda s, p: T.RecordType(s, tuple(x for x in p if isinstance(x, T.Parameter))),
    "list_type": collection_type(False),
    "bag_type": collection_type(True),
    "generic_type": lambda s, p: T.NamedType(s, str(p[0]), p[1]),
    "stored_type": lambda s, p: p[0],
    "types": lambda s, p: tuple(p),
    # a path is kept as it is written
    **{name: (lambda s, p: p) for name in PATHS},
}
