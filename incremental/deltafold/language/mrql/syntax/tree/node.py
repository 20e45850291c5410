"""What all parts of a tree have: a place in the text, and parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, cast

from deltafold.language.mrql.syntax.spans import Span


@dataclass(frozen=True)
class Node:
    """A part of the tree, and where it is in the text."""

    span: Span = field(compare=False, repr=False)

    @property
    def parts(self) -> Iterator[Node]:
        """The nodes just below."""
        for each in fields(self):
            value: Any = getattr(self, each.name)
            parts = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)
            for part in parts:
                if isinstance(part, Node):
                    yield part
