"""XML: elements are texts. Templates build them, `x.@k` is an attribute, `text(x)` and `tag(x)` are Spark's XPath.

Child elements are refused: no function of Spark gives an element, only the texts within.
"""

from __future__ import annotations

from deltafold.language.mrql.rows import types as t
from deltafold.language.mrql.rows import values as v
from deltafold.language.mrql.rows.scope import Scope, describe
from deltafold.language.mrql.rows.values import Array, ScalarValue, Value
from deltafold.language.mrql.syntax import tree as T

XML_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"))
MISSING_ATTRIBUTE = "raise_error('MRQL: the element has no such attribute')"


def translate_template(node: T.Template, scope: Scope) -> Value:
    """Translate `[xml| … {{e}} … |]`: scalars are escaped, elements and lists of these go in as they are."""
    if node.name != "xml":
        raise node.span.error(f"there are no templates of {node.name}. Write [xml| … |].")
    pieces = [v.string_literal(node.texts[0])]
    for hole, after in zip(node.holes, node.texts[1:], strict=True):
        pieces += [fill_hole(scope.inside(scope.value(hole), hole.span), hole, scope), v.string_literal(after)]
    return ScalarValue(f"concat({', '.join(pieces)})", t.XML)


def fill_hole(value: Value, node: T.Node, scope: Scope) -> str:
    """Return the text of a hole; a missing value is empty."""
    match value:
        case ScalarValue(sql, t.XML):
            return f"coalesce({sql}, '')"
        case ScalarValue(sql, type_) if t.is_scalar(type_):
            made = f"CAST({sql} AS STRING)"
            for character, escape in XML_ESCAPES:
                made = f"replace({made}, {v.string_literal(character)}, {v.string_literal(escape)})"
            return f"coalesce({made}, '')"
        case Array(item=item):
            element = scope.fresh.fresh("x")
            inner = fill_hole(v.unpack(element, item), node, scope)
            return f"array_join(transform({v.pack(value)}, {element} -> {inner}), '')"
        case _:
            raise node.span.error(
                f"hole of a template: expected scalars and elements, found {describe(value, scope)}. Take a part."
            )


def translate_attribute(node: T.Markup, scope: Scope) -> Value:
    """Translate `x.@name`: an attribute, an error where it is missing."""
    value = scope.value(node.value)
    if not node.what.startswith("@") or node.what == "@*":
        raise node.span.error("child elements and all attributes at once are not supported. Use text(x), x.@name.")
    if not (isinstance(value, ScalarValue) and value.type == t.XML):
        raise node.span.error(f"attribute: expected XML, found {describe(value, scope)}. Cast a text with `as XML`.")
    path = f"/*/@{node.what[1:]}"
    there = f"xpath_boolean({value.sql}, {v.string_literal(path)})"
    found = f"xpath_string({value.sql}, {v.string_literal(path)})"
    return ScalarValue(
        f"CASE WHEN {there} THEN {found} WHEN {value.sql} IS NOT NULL THEN {MISSING_ATTRIBUTE} END", t.STRING
    )
