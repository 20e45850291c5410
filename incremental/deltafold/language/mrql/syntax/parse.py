"""Parse a text of MRQL into the tree.

The grammar is `mrql.lark`. A `<` opens a record where no operand ends before it, and the `>` that closes it is found by
counting brackets, so a comparison with `>` within a record stands in parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from deltafold.language.mrql.syntax import items as I
from deltafold.language.mrql.syntax import tree as T
from deltafold.language.mrql.syntax.build import BUILDERS
from deltafold.language.mrql.syntax.spans import Span, Text
from deltafold.language.mrql.syntax.tags import check_template_tags
from deltafold.language.mrql.syntax.tree import Node

GRAMMAR = Path(__file__).with_name("mrql.lark")
OPERANDS = {"NAME", "INTEGER", "DOUBLE", "STRING", "TEMPLATE", "RPAR", "RSQB", "RBRACE", "END"}
OPENING_TOKENS, CLOSING = {"LPAR", "LSQB", "LBRACE"}, {"RPAR", "RSQB", "RBRACE"}
QUOTES = "\"'"
LONGEST_TOKEN = 40  # characters of a token that an error shows
HOLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
TOO_DEEP = "this is nested too deeply. Define its parts by names of their own."


class RecordBrackets:
    """The token filter: distinguishes the brackets of records from comparisons."""

    always_accept = ("COMPARE",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Yield the tokens, those that open and close a record as RECORD and END."""
        depths, depth, operand = list[int](), 0, False
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
def parser() -> Lark:
    """Return the parser, which takes a tenth of a second to make."""
    options: dict[str, Any] = {"lexer": "contextual", "postlex": RecordBrackets(), "propagate_positions": True}
    return Lark(GRAMMAR.read_text(encoding="utf-8"), parser="lalr", maybe_placeholders=True, **options)


def parse(text: Text) -> tuple[Node, ...]:
    """Return the items of a text. Raises QueryError with file, line, column and caret."""
    return parse_at(text, 0, text.content)


def parse_at(text: Text, start: int, content: str) -> tuple[Node, ...]:
    """Return the items of a part of a text that begins at an offset."""
    lark: Any = parser()
    try:
        return tuple(build_node(text, item) for item in lark.parse(" " * start + content).children if item is not None)
    except UnexpectedInput as error:
        raise syntax_error(text, start + len(content.rstrip()), error) from None
    except RecursionError:
        raise Span(text, 0, 0).error(TOO_DEEP) from None


def syntax_error(text: Text, end: int, error: Any) -> Exception:
    """Return the error for a text that does not parse; end: where the part that is read ends."""
    if isinstance(error, UnexpectedCharacters):
        at = min(int(cast(Any, error).pos_in_stream or 0), len(text.content) - 1)
        character, span = text.content[at], Span(text, at, at + 1)
        if character in QUOTES:
            return span.error(f"a string has no end. Close it by {character}, or remove this {character}.")
        return span.error(f"unexpected {character!r}. Remove or correct it.")
    token = cast(Any, error).token if isinstance(error, UnexpectedToken) else None
    if token is None or token.type == "$END" or isinstance(error, UnexpectedEOF):
        return Span(text, end, end).error("the text ends within a query. Close it; each item ends with `;`.")
    at, written = int(token.start_pos or 0), str(token)
    if token.type == "_LIMIT":
        return Span(text, at, at + len(written)).error(
            f"unexpected `{written}`: it needs `order by` before it. Write `select … from … order by … limit n`."
        )
    first = written.split("\n")[0][:LONGEST_TOKEN]
    shown = written if first == written else f"{first}…"
    closed = text.content[:at].rstrip().endswith(">")
    hint = ". A `>` before it closes a record: write a comparison within a record in parentheses" if closed else ""
    return Span(text, at, at + len(written)).error(f"unexpected `{shown}`. Correct it, or what precedes it{hint}.")


def parse_template(text: Text, start: int, written: str) -> Node:
    """Translate a template, whose holes are parsed where they are in the text. Raises QueryError."""
    name, _, body = written[1:-2].partition("|")
    pieces, at = HOLE.split(body), start + len(name) + 2
    holes = list[Node]()
    for position, piece in enumerate(pieces):
        if position % 2:
            found = parse_at(text, at + 2, piece)
            if len(found) != 1 or not isinstance(found[0], I.Evaluate):
                raise Span(text, at, at + 2).error("a hole of a template has one expression. Write {{e}}.")
            holes.append(found[0].value)
        at += len(piece) + (4 if position % 2 else 0)
    if name == "xml":
        check_template_tags(text, start + len(name) + 2, HOLE.sub(lambda hole: "_" * len(hole[0]), body))
    return T.Template(Span(text, start, start + len(written)), name, tuple(pieces[::2]), tuple(holes))


def build_node(text: Text, tree: Any) -> Any:
    """Return the node of a tree of lark; tokens and absent parts are as they are."""
    if not isinstance(tree, Tree):
        return tree
    meta = cast(Any, tree.meta)
    if tree.data == "template":
        return parse_template(text, int(getattr(meta, "start_pos", 0)), str(cast(Any, tree).children[0]))
    span = Span(text, getattr(meta, "start_pos", 0), getattr(meta, "end_pos", 0))
    parts = [build_node(text, child) for child in cast(Any, tree).children]
    return BUILDERS[str(tree.data)](span, parts)
