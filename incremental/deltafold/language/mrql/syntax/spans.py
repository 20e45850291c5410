"""Where in a text a part of the tree is, and errors that show it.

Every error is a QueryError `file:line:column: sentence`, followed by the line and a caret.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltafold.algebra.errors import QueryError

SHOWN_CHARACTERS = 160  # characters of a line that an error shows


@dataclass(frozen=True)
class Text:
    """A text of MRQL under the name that errors cite."""

    name: str
    content: str


@dataclass(frozen=True)
class Span:
    """A part of a text, by the offsets of its first character and of the one after its last."""

    text: Text
    start: int
    end: int

    @property
    def content(self) -> str:
        """The characters themselves."""
        return self.text.content[self.start : self.end]

    @property
    def line(self) -> int:
        """The number of the line in which it begins, counted from 1."""
        return self.text.content.count("\n", 0, self.start) + 1

    def error(self, sentence: str) -> QueryError:
        """Return an error about this part: file, line, column, sentence, the line and a caret."""
        line = self.line
        column = self.start - self.text.content.rfind("\n", 0, self.start)
        shown = self.text.content.split("\n")[line - 1].replace("\t", " ").rstrip()
        caret = column - 1
        if caret > SHOWN_CHARACTERS:
            shown = "…" + shown[column - SHOWN_CHARACTERS // 2 :]
            caret = SHOWN_CHARACTERS // 2
        message = f"{self.text.name}:{line}:{column}: {sentence}"
        return QueryError("\n    ".join((message, shown[:SHOWN_CHARACTERS], f"{' ' * caret}^")))
