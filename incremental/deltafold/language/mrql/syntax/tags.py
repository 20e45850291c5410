"""Check that the tags of a template of XML match, whatever its holes are filled with."""

from __future__ import annotations

import re

from deltafold.language.mrql.syntax.spans import Span, Text

HIDDEN = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>", re.DOTALL)
TAG = re.compile(r"<(/?)([A-Za-z_][\w:.-]*)((?:\s(?:[^<>\"'/]|\"[^<\"]*\"|'[^<']*'|/(?!>))*)?)(/?)>")


def check_template_tags(text: Text, start: int, body: str) -> None:
    """Raise QueryError for a tag of a template that is not closed, or closes another.

    start: where the body is in the text; body: each character of a hole is a `_`, so that a hole can be a name, too.
    """
    body = HIDDEN.sub(lambda hidden: " " * len(hidden[0]), body)
    opened, at = list[tuple[str, Span]](), 0
    while (at := body.find("<", at)) >= 0:
        tag = TAG.match(body, at)
        if tag is None:
            raise Span(text, start + at, start + at + 1).error(
                "template: `<` does not begin a tag. Write a tag such as <a> or </a>, or &lt; for the character."
            )
        closing, _, _, empty = tag.groups()
        name = text.content[start + tag.start(2) : start + tag.end(2)]
        span, at = Span(text, start + at, start + tag.end()), tag.end()
        if closing:
            close_tag(opened, name, span)
        elif not empty:
            opened.append((name, span))
    if opened:
        name, span = opened[-1]
        raise span.error(f"template: <{name}> has no end. Close it by </{name}>, or write <{name}/>.")


def close_tag(opened: list[tuple[str, Span]], name: str, span: Span) -> None:
    """Take the last open tag from the list. Raises QueryError if a closing tag has another name."""
    if not opened:
        raise span.error(f"template: </{name}> closes no tag. Remove it, or write <{name}> before it.")
    expected, _ = opened.pop()
    if expected != name:
        raise span.error(f"template: expected </{expected}>, found </{name}>. Correct one of the two tags.")
