"""Translate Catalyst expressions into opaque scalars: text, columns, type and handle.

The handle is Spark's expression with its attributes renamed to the plan's unique names; nothing is re-parsed.
Expressions whose value is not a function of the row are collected, for the compiler to refuse.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from pyspark.sql import SparkSession

from deltafold.algebra.errors import Refusal
from deltafold.algebra.plan import Opaque, Reference, Scalar
from deltafold.language.fingerprint.details import FingerprintDetails
from deltafold.language.fingerprint.python_functions import PYTHON_EXPRESSIONS, function_digest
from deltafold.language.names import Names, renumber, type_text
from deltafold.language.translation.shapes import find_shape
from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

BOUND_TO_CLOCK = {"CurrentDate", "CurrentTimestamp", "Now", "LocalTimestamp"}  # those that `bind_clock` can replace
CLOCK_EXPRESSIONS = {*BOUND_TO_CLOCK, "CurrentTime", "UnixTimestampNow"}
CLOCK_WORDS = {"now", "today", "tomorrow", "yesterday"}
PLACEMENT = {
    "InputFileName", "InputFileBlockStart", "InputFileBlockLength", "SparkPartitionID", "MonotonicallyIncreasingID",
}  # fmt: skip
SESSION = {"CurrentUser", "CurrentDatabase", "CurrentCatalog"}
# PySpark numbers the variables of its lambdas within a process: x_1, x_2
NUMBERED_VARIABLE = re.compile(r"(?<=lambda [xyz])_[0-9]+(?=#)")


class Scalars:
    """Turns expressions into scalars; `forbidden`: the reasons against expressions that no view may depend on.

    clocked: those against expressions that read the clock, on which a view may depend that is recomputed (D-234);
    shapes: look for the shapes of expressions.
    """

    def __init__(self, spark: SparkSession, names: Names, *, shapes: bool = False) -> None:
        self._spark = spark
        self._shapes = shapes
        self._names = names
        self._details = FingerprintDetails(spark)
        self.forbidden: list[Refusal] = []
        self.clocked: list[Refusal] = []

    def scalar(self, expression: J) -> Scalar:
        """Return a reference for a bare column, else an opaque scalar."""
        if catalyst.kind(expression) == "AttributeReference":
            return Reference(self._names.column(expression))
        return self.opaque(expression)

    def opaque(self, expression: J) -> Opaque:
        """Return an opaque scalar of any expression, its attributes renamed."""
        renamed = self._rename(expression)
        self._check(renamed)
        columns = frozenset(str(attribute.name()) for attribute in self._references(renamed))
        shape = find_shape(renamed) if self._shapes else None
        return Opaque(self._text_of(renamed), type_text(renamed.dataType()), columns, renamed, shape)

    def operator_text(self, expression: J) -> str:
        """Return the text of an expression within an operator of Spark's; its row-wise parts are checked."""
        renamed = self._rename(expression)
        for part in _rowwise_parts(renamed):
            self._check(part)
        return self._text_of(renamed)

    def text(self, expression: J) -> str:
        """Return the text of an expression without checking it."""
        return self._text_of(self._rename(expression))

    def _rename(self, expression: J) -> J:
        """Return the expression over the plan's unique names."""

        def replace(node: J) -> J | None:
            if catalyst.kind(node) != "AttributeReference":
                return None
            return self._names.attribute(self._names.column(node))

        return catalyst.rewrite(self._spark, expression, replace)

    def _references(self, expression: J) -> list[J]:
        return catalyst.sequence(expression.references().toSeq())

    def _check(self, expression: J) -> None:
        """Collect the reason against the first part of an expression whose value is not a function of the row."""
        if (undetermined := find_undetermined(expression)) is not None:
            node, because, instead = undetermined
            refusals = self.clocked if catalyst.kind(node) in BOUND_TO_CLOCK else self.forbidden
            refusals.append(Refusal(self._text_of(node), because, instead))

    def _text_of(self, expression: J) -> str:
        """Return the deterministic text of an expression: Spark's SQL, and the details that it omits."""
        text = re.sub(r"\b(\w+)\.`?(\w+)`?(?=#)", r"\2", str(expression.sql()))
        details = ""
        seen = Counter[str]()
        for node in catalyst.subexpressions(expression):
            kind = catalyst.kind(node)
            if kind in PYTHON_EXPRESSIONS:
                details += f" ~ python {node.name()} {function_digest(node)}"
            elif kind == "AttributeReference" and "#" in text:
                text = _without_number(text, str(node.toString()), str(node.name()))
            seen[kind] += 1
            details += self._details.of(node, kind, seen[kind], typed=node is expression)
        if "namedlambdavariable" in text + details:
            text = f"{text} ~ {renumber(NUMBERED_VARIABLE.sub('', str(expression.toString())))}"
        return text + details

    def forbid(self, text: str, because: str, instead: str) -> None:
        """Record the reason against an expression that no maintained view may contain."""
        self.forbidden.append(Refusal(text, because, instead))


def _without_number(text: str, numbered: str, name: str) -> str:
    """Remove the number from a column in Spark's SQL of Pandas aggregates, `v#16`: it differs from run to run."""
    return re.sub(rf"(?<!\w){re.escape(numbered)}(?!\d)", lambda _: name, text)


def find_undetermined(expression: J) -> tuple[J, str, str] | None:
    """Return the first part of an expression whose value is not a function of the row, the reason, and the fix.

    One of BOUND_TO_CLOCK is returned only if there is no other.
    """
    clocked: tuple[J, str, str] | None = None
    for node in catalyst.subexpressions(expression):
        name = catalyst.kind(node)
        if name in CLOCK_EXPRESSIONS or (name == "Cast" and _casts_clock(node)):
            because, instead = "its value changes with the clock", "pass the date as a column or a literal"
            if name not in BOUND_TO_CLOCK:
                return node, because, instead
            clocked = clocked or (node, because, f"{instead}, or let policy auto recompute the view at each refresh")
            continue
        if name in SESSION:
            return node, "its value depends on who runs the query, and where", "write it as a literal"
        if name in PLACEMENT:
            return node, "its value depends on files and partitions, not on rows", "use a source column"
        if not node.deterministic():
            instead = "use a deterministic expression, such as a hash of a key"
            return node, "its value differs each time it is evaluated", instead
    return clocked


def _rowwise_parts(expression: J) -> Iterable[J]:
    """Return the parts of an expression that are evaluated per row: of windows and aggregates, their arguments."""
    match catalyst.kind(expression):
        case "WindowExpression":
            parts = catalyst.sequence(expression.children())
        case "AggregateExpression":
            parts = [*catalyst.sequence(expression.aggregateFunction().children())]
            parts += [] if (condition := catalyst.option(expression.filter())) is None else [condition]
        case _:
            return [expression]
    return [inner for part in parts for inner in _rowwise_parts(part)]


def _casts_clock(cast: J) -> bool:
    """Return whether a text that stands for the clock ('now', 'today') is cast to a date or timestamp."""
    if type_text(cast.dataType()).lower() not in ("date", "timestamp", "timestamp_ntz"):
        return False
    text = cast.child()
    return catalyst.kind(text) == "Literal" and str(text.value()).strip().lower() in CLOCK_WORDS


def without_alias(named: J) -> J:
    """Return the value of a named expression."""
    return named.child() if catalyst.kind(named) == "Alias" else named
