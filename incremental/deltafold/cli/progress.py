"""Show progress: one line that is overwritten on a terminal, else plain lines.

All of it is written to standard error, so that standard output contains only the result.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

from deltafold.algebra.errors import DeltafoldWarning

Say = Callable[[str], None]


def show_warnings() -> None:
    """Print warnings of the library as one line, without file and line of its code."""
    formatted = warnings.formatwarning

    def line(message: Warning | str, category: type[Warning], *where: Any) -> str:
        return f"{message}\n" if issubclass(category, DeltafoldWarning) else formatted(message, category, *where)

    warnings.formatwarning = line


@contextmanager
def show_progress(first: str) -> Iterator[Say]:
    """Show `first` and then each further message until the block ends; restores the terminal."""
    if not sys.stderr.isatty():
        _plain(first)
        yield _plain
        return
    # A Text, not a str: Rich would read [brackets] in a str as markup.
    with Console(stderr=True).status(Text(first)) as status:
        yield lambda text: status.update(Text(text))


def _plain(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
