"""Name the forms of expressions that the compiler knows more of than their text: those of `nearest`.

The frontend finds them in Spark's expressions, whose inside is not seen elsewhere (language/translation/shapes.py).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Nearest:
    """The element of a list that is nearest to a point, and of equally near ones the least; NULL of an empty list.

    elements: the column of the list; pairs: a column of the point and a field of the elements, whose values are
    subtracted as doubles; the distance is the sum of the squares, added in this order.
    """

    elements: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class HasNearest:
    """The condition that there is a nearest element."""

    nearest: Nearest


@dataclass(frozen=True)
class AreNumbers:
    """The condition that some columns are neither NULL nor, for some of them, NaN."""

    columns: frozenset[str]


@dataclass(frozen=True)
class Struct:
    """A struct of columns: the name of each field, and the column with its value."""

    fields: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Sorted:
    """The elements of a list in ascending order."""

    elements: str


Shape = Nearest | HasNearest | AreNumbers | Struct | Sorted
