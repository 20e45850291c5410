"""Parse a text of MRQL into the tree.

The grammar is `mrql.lark`; BUILDERS has a function for each form that it names. A `<` opens a record where no operand
ends before it, and the `>` that closes it is found by counting brackets, so a comparison with `>` within a record
stands in parentheses. `group by p` means `group by p: p` where p is a pattern of names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.spans import Span, Text
from deltafold.language.mrql.syntax.tree import Node

GRAMMAR = Path(__file__).with_name("mrql.lark")
OPERANDS = {"NAME", "INTEGER", "DOUBLE", "STRING", "TEMPLATE", "RPAR", "RSQB", "RBRACE", "END"}
OPENING_TOKENS, CLOSING = {"LPAR", "LSQB", "LBRACE"}, {"RPAR", "RSQB", "RBRACE"}
QUOTES = "\"'"
LONGEST_TOKEN = 40  # characters of a token that an error shows
HOLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
TOO_DEEP = "this is nested too deeply. Define its parts by names of their own."
HIDDEN = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>", re.DOTALL)
TAG = re.compile(r"<(/?)([A-Za-z_][\w:.-]*)((?:\s(?:[^<>\"'/]|\"[^<\"]*\"|'[^<']*'|/(?!>))*)?)(/?)>")
TEXT_ESCAPES = {r"\t": "\t", r"\n": "\n"}
PATHS = (
    "here", "child", "root_child", "root_descendant", "child_of", "descendant_of", "nth", "tested", "test", "step",
)  # fmt: skip
Build = Callable[[Span, list[Any]], Any]


class _RecordBrackets:
    """The token filter: distinguishes the brackets of records from comparisons."""

    always_accept = ("COMPARE",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Yield the tokens, those that open and close a record as RECORD and END."""
        depths = list[int]()  # of the records that are open: the number of other brackets around each
        depth = 0
        operand = False
        for token in stream:
            if token.type in OPENING_TOKENS:
                depth += 1
            elif token.type in CLOSING:
                depth -= 1
            elif token.type == "COMPARE" and token == "<" and not operand:
                depths.append(depth)
                token = Token.new_borrow_pos("RECORD", "<", token)
            elif token.type == "COMPARE" and token == ">" and depths and depths[-1] == depth:
                depths.pop()
                token = Token.new_borrow_pos("END", ">", token)
            operand = token.type in OPERANDS
            yield token


@cache
def _parser() -> Lark:
    """Return the parser, which takes a tenth of a second to make."""
    options: dict[str, Any] = {"lexer": "contextual", "postlex": _RecordBrackets(), "propagate_positions": True}
    return Lark(GRAMMAR.read_text(encoding="utf-8"), parser="lalr", maybe_placeholders=True, **options)


def parse(text: Text) -> tuple[Node, ...]:
    """Return the items of a text. Raises QueryError with file, line, column and caret."""
    return _parse_at(text, 0, text.content)


def _parse_at(text: Text, start: int, content: str) -> tuple[Node, ...]:
    """Return the items of a part of a text that begins at an offset."""
    lark: Any = _parser()
    try:
        return tuple(_build_node(text, item) for item in lark.parse(" " * start + content).children if item is not None)
    except UnexpectedInput as error:
        raise _syntax_error(text, start + len(content.rstrip()), error) from None
    except RecursionError:
        raise Span(text, 0, 0).error(TOO_DEEP) from None


def _syntax_error(text: Text, end: int, error: Any) -> Exception:
    """Return the error for a text that does not parse; end: where the part that is read ends."""
    if isinstance(error, UnexpectedCharacters):
        at = min(int(cast(Any, error).pos_in_stream or 0), len(text.content) - 1)
        span = Span(text, at, at + 1)
        character = span.content
        if character in QUOTES:
            return span.error(f"a string has no end. Close it by {character}, or remove this {character}.")
        return span.error(f"unexpected {character!r}. Remove or correct it.")
    token = cast(Any, error).token if isinstance(error, UnexpectedToken) else None
    if token is None or token.type == "$END" or isinstance(error, UnexpectedEOF):
        return Span(text, end, end).error("the text ends within a query. Close it; each item ends with `;`.")
    at = int(token.start_pos or 0)
    written = str(token)
    span = Span(text, at, at + len(written))
    if token.type == "_LIMIT":
        return span.error(
            f"unexpected `{written}`: it needs `order by` before it. Write `select … from … order by … limit n`."
        )
    first = written.split("\n")[0][:LONGEST_TOKEN]
    shown = written if first == written else f"{first}…"
    closed = text.content[:at].rstrip().endswith(">")
    hint = ". A `>` before it closes a record: write a comparison within a record in parentheses" if closed else ""
    return span.error(f"unexpected `{shown}`. Correct it, or what precedes it{hint}.")


def _parse_template(text: Text, start: int, written: str) -> Node:
    """Build a template, whose holes are parsed where they are in the text. Raises QueryError."""
    name, _, body = written[1:-2].partition("|")
    body_start = start + len(name) + 2
    pieces = HOLE.split(body)
    holes = list[Node]()
    at = body_start
    for position, piece in enumerate(pieces):
        if position % 2:
            items = _parse_at(text, at + 2, piece)
            if len(items) != 1 or not isinstance(items[0], T.Evaluate):
                raise Span(text, at, at + 2).error("a hole of a template has one expression. Write {{e}}.")
            holes.append(items[0].value)
        at += len(piece) + (4 if position % 2 else 0)
    if name == "xml":
        _check_template_tags(text, body_start, HOLE.sub(lambda hole: "_" * len(hole[0]), body))
    return T.Template(Span(text, start, start + len(written)), name, tuple(pieces[::2]), tuple(holes))


def _check_template_tags(text: Text, start: int, body: str) -> None:
    """Raise QueryError for a tag of a template that is not closed, or closes another.

    start: where the body is in the text; body: each character of a hole is a `_`, so that a hole can be a name, too.
    """
    body = HIDDEN.sub(lambda hidden: " " * len(hidden[0]), body)
    opened = list[tuple[str, Span]]()
    at = 0
    while (at := body.find("<", at)) >= 0:
        tag = TAG.match(body, at)
        if tag is None:
            raise Span(text, start + at, start + at + 1).error(
                "template: `<` does not begin a tag. Write a tag such as <a> or </a>, or &lt; for the character."
            )
        closing, _, _, empty = tag.groups()
        name = text.content[start + tag.start(2) : start + tag.end(2)]  # a hole as it is written
        span = Span(text, start + at, start + tag.end())
        at = tag.end()
        if closing:
            _close_tag(opened, name, span)
        elif not empty:
            opened.append((name, span))
    if opened:
        name, span = opened[-1]
        raise span.error(f"template: <{name}> has no end. Close it by </{name}>, or write <{name}/>.")


def _close_tag(opened: list[tuple[str, Span]], name: str, span: Span) -> None:
    """Take the last open tag from the list. Raises QueryError if a closing tag has another name."""
    if not opened:
        raise span.error(f"template: </{name}> closes no tag. Remove it, or write <{name}> before it.")
    expected, _ = opened.pop()
    if expected != name:
        raise span.error(f"template: expected </{expected}>, found </{name}>. Correct one of the two tags.")


def _build_node(text: Text, tree: Any) -> Any:
    """Return the node of a tree of lark; tokens and absent parts are as they are."""
    if not isinstance(tree, Tree):
        return tree
    meta = cast(Any, tree.meta)
    if tree.data == "template":
        return _parse_template(text, int(getattr(meta, "start_pos", 0)), str(cast(Any, tree).children[0]))
    span = Span(text, getattr(meta, "start_pos", 0), getattr(meta, "end_pos", 0))
    parts = [_build_node(text, child) for child in cast(Any, tree).children]
    return BUILDERS[str(tree.data)](span, parts)


def _string(token: str) -> str:
    """Return the value of a quoted string."""
    value = token[1:-1]
    for written, meant in TEXT_ESCAPES.items():
        value = value.replace(written, meant)
    return value


def _binary(operator: str) -> Build:
    """Return a function that builds an operation of two operands."""
    return lambda span, parts: T.Binary(span, operator, parts[0], parts[1])


def _infix(span: Span, parts: list[Any]) -> Node:
    """Build an operation whose operator is a token."""
    operator = str(parts[1]).lower()
    return T.Binary(span, "mod" if operator == "%" else operator, parts[0], parts[2])


def _set_operation(operation: str) -> Build:
    """Return a function that builds a union, an intersection or a difference."""
    return lambda span, parts: T.SetOperation(span, operation, parts[0], parts[1])


def _refused_item(keyword: str) -> Build:
    """Return a function that builds an item that is refused."""
    return lambda span, _: T.UnsupportedItem(span, keyword)


def _function_definition(span: Span, parts: list[Any]) -> Node:
    """Build the definition of a function."""
    name, parameters, result, body = parts
    return T.FunctionDefinition(span, name=str(name), parameters=parameters or (), result=result, body=body)


def _aggregation_definition(span: Span, parts: list[Any]) -> Node:
    """Build the definition of an aggregation."""
    name, plus, zero, unit, type_ = parts
    return T.AggregationDefinition(span, name=str(name), plus=plus, zero=zero, unit=unit, type=type_)


def _repeat(span: Span, parts: list[Any]) -> Node:
    """Build a repeat of one name or of several."""
    names, start, body, limit = parts
    names = (str(names),) if isinstance(names, Token) else names
    return T.Repeat(span, names=names, start=start, body=body, limit=limit)


def _select(span: Span, parts: list[Any]) -> Node:
    """Build a select."""
    distinct, head, bindings, where, group, order = parts
    return T.Select(
        span, distinct=distinct is not None, head=head, bindings=bindings, where=where, group=group, order=order
    )


def _group_by(span: Span, parts: list[Any]) -> Node:
    """Build a group by: `p: e`, `p` for `p: p`, or an expression."""
    first, key, having = parts
    if key is not None:
        return T.GroupBy(span, _pattern_of(first), key, having)
    return T.GroupBy(span, _pattern_of(first) if _has_names_only(first) else None, first, having)


def _has_names_only(node: Node) -> bool:
    """Return whether an expression is a name, or a tuple or record of such."""
    match node:
        case T.Name():
            return True
        case T.TupleOf(items=parts) | T.RecordOf(values=parts):
            return bool(parts) and all(map(_has_names_only, parts))
        case _:
            return False


def _pattern_of(node: Node) -> Node:
    """Return the pattern that is written like an expression. Raises QueryError where there is none."""
    match node:
        case T.Name() | T.Literal():
            return node
        case T.TupleOf(span=span, items=parts):
            return T.TuplePattern(span, tuple(map(_pattern_of, parts)))
        case T.CollectionOf(span=span, bag=False, items=parts):
            return T.ListPattern(span, tuple(map(_pattern_of, parts)))
        case T.RecordOf(span=span, names=names, values=values):
            return T.RecordPattern(span, names, tuple(map(_pattern_of, values)))
        case T.FunctionCall(span=span, name=name, arguments=parts):
            return T.ConstructorPattern(span, name, tuple(map(_pattern_of, parts)))
        case T.Typed(span=span, value=value, type=type_):
            return T.TypedPattern(span, _pattern_of(value), type_)
        case _:
            raise node.span.error(
                "this is not a pattern. Write names, tuples or records of names before the `:` of a group by."
            )


def _sort_key(span: Span, parts: list[Any]) -> Node:
    """Build a key of an order by."""
    direction = parts[1]
    return T.SortKey(span, parts[0], descending=direction is not None and str(direction).lower() == "desc")


def _record(build: Callable[[Span, tuple[str, ...], tuple[Node, ...]], Node]) -> Build:
    """Return a function that builds a record or its pattern. Raises QueryError where a name occurs twice."""

    def build_record(span: Span, parts: list[Any]) -> Node:
        pairs: list[tuple[str, Node]] = [part for part in parts if isinstance(part, tuple)]  # brackets are tokens
        names = tuple(name for name, _ in pairs)
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise span.error(f"the record has {twice} twice. Rename one.")
        return build(span, names, tuple(value for _, value in pairs))

    return build_record


def _quantifier(*, every: bool) -> Build:
    """Return a function that builds `some …` or `all …`; over a select its elements are the conditions."""

    def build_quantified(span: Span, parts: list[Any]) -> Node:
        if len(parts) == 2:
            return T.Quantified(span, parts[0], parts[1], every=every)
        (query,) = parts
        element = T.Name(span, "it")
        return T.Quantified(span, (T.Binding(span, element, query, is_generator=True),), element, every=every)

    return build_quantified


# lark's name of each form → the node made of its span and parts
BUILDERS: dict[str, Build] = {
    # items
    "store": lambda s, p: T.Define(s, str(p[0]), p[1]),
    "define": lambda s, p: T.Define(s, str(p[0]), p[1]),
    "write_binary": lambda s, p: T.Evaluate(s, p[1]),
    "write_text": lambda s, p: T.Evaluate(s, p[1]),
    "incremental": lambda s, p: T.Evaluate(s, p[0]),
    "evaluate": lambda s, p: T.Evaluate(s, p[0]),
    "lineage": _refused_item("lineage"),
    "debug": _refused_item("debug"),
    "debug_all": _refused_item("debug all"),
    "import_methods": _refused_item("import"),
    "import_class": _refused_item("import"),
    "parser": _refused_item("parser"),
    "type_definition": lambda s, p: T.TypeDefinition(s, str(p[0]), p[1]),
    "data_definition": lambda s, p: T.DataDefinition(s, str(p[0]), tuple(p[1:])),
    "function": _function_definition,
    "macro": lambda s, p: T.MacroDefinition(s, str(p[0]), p[1] or (), p[2]),
    "aggregation": _aggregation_definition,
    "include": lambda s, p: T.Include(s, _string(p[0])),
    "alternative": lambda s, p: T.Parameter(s, str(p[0]), p[1]),
    "parameters": lambda s, p: tuple(p),
    "parameter": lambda s, p: T.Parameter(s, str(p[0]), p[1]),
    "names": lambda s, p: tuple(map(str, p)),
    "imported": lambda s, p: p,
    # expressions
    "if_else": lambda s, p: T.IfElse(s, *p),
    "let": lambda s, p: T.Let(s, *p),
    "lambda_": lambda s, p: T.Lambda(s, *p),
    "repeat": _repeat,
    "repeat_tuple": _repeat,
    "some": _quantifier(every=False),
    "all": _quantifier(every=True),
    "some_of": _quantifier(every=False),
    "all_of": _quantifier(every=True),
    "union": _set_operation("union"),
    "intersect": _set_operation("intersect"),
    "except_": _set_operation("except"),
    "query": _select,
    "bindings": lambda s, p: tuple(p),
    "each": lambda s, p: T.Binding(s, p[0], p[1], is_generator=True),
    "bound": lambda s, p: T.Binding(s, p[0], p[1], is_generator=False),
    "where": lambda s, p: p[0],
    "group": _group_by,
    "order": lambda s, p: T.OrderBy(s, tuple(p[:-1]), p[-1]),
    "sort_key": _sort_key,
    "or_": _binary("or"),
    "and_": _binary("and"),
    "not_": lambda s, p: T.Unary(s, "not", p[0]),
    "compare": _infix,
    "equal": _binary("="),
    "range": lambda s, p: T.RangeOf(s, p[0], p[2], relation=p[1] == "..."),
    "add": _infix,
    "multiply": _infix,
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
    "string": lambda s, p: T.Literal(s, _string(p[0])),
    "integer": lambda s, p: T.Literal(s, int(p[0])),
    "double": lambda s, p: T.Literal(s, float(p[0])),
    "call": lambda s, p: T.FunctionCall(s, str(p[0]), p[1] or ()),
    "unit": lambda s, p: T.TupleOf(s, ()),
    "tuple": lambda s, p: T.TupleOf(s, tuple(p)),
    "bag": lambda s, p: T.CollectionOf(s, p[0] or (), bag=True),
    "list": lambda s, p: T.CollectionOf(s, p[0] or (), bag=False),
    "record": _record(T.RecordOf),
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
    "record_pattern": _record(T.RecordPattern),
    "template_pattern": lambda s, p: T.Template(s, "", (), ()),
    "typed_pattern": lambda s, p: T.TypedPattern(s, *p),
    "patterns": lambda s, p: tuple(p),
    "field_pattern": lambda s, p: (str(p[0]), p[1]),
    # types
    "named_type": lambda s, p: T.NamedType(s, str(p[0])),
    "tuple_type": lambda s, p: T.TupleType(s, p[0] or ()),
    "record_type": lambda s, p: T.RecordType(s, tuple(x for x in p if isinstance(x, T.Parameter))),
    "list_type": lambda s, p: T.CollectionType(s, p[0], bag=False),
    "bag_type": lambda s, p: T.CollectionType(s, p[0], bag=True),
    "generic_type": lambda s, p: T.NamedType(s, str(p[0]), p[1]),
    "stored_type": lambda s, p: p[0],
    "types": lambda s, p: tuple(p),
    # a path is kept as it is written
    **{name: (lambda s, p: p) for name in PATHS},
}
