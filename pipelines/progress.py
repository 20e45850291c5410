"""Pipelines room: what is going on. In: texts. Out: one passing line on a terminal, else plain lines.

Everything is written to standard error, so that standard output holds the result alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

Say = Callable[[str], None]


@contextmanager
def shown(first: str) -> Iterator[Say]:
    """Shows `first` and then whatever is said, until the block ends; a terminal is left as it was."""
    if not sys.stderr.isatty():
        _plain(first)
        yield _plain
        return
    # A Text, not a str: Rich would read [brackets] in a str as markup.
    with Console(stderr=True).status(Text(first)) as status:
        yield lambda text: status.update(Text(text))


def _plain(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
