"""Show the progress of a refresh where somebody watches: in a notebook's cell, or on an interactive terminal's line.

A program that only runs, with a terminal or without one, prints nothing, unless it passes a function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from deltafold.algebra.results.html import element

Step = Callable[[str], None]


@contextmanager
def show_progress(progress: Step | None) -> Generator[Step | None]:
    """Yield the function to call with each step of some work: the caller's, or one that shows it; None if neither.

    What is shown disappears when the block ends.
    """
    ipython: Any = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    if progress is not None:
        yield progress
    elif shell and getattr(shell, "kernel", None):
        handle = ipython.display.display(_line(ipython, ""), display_id=True)
        try:
            yield lambda step: handle.update(_line(ipython, step))
        finally:
            handle.update(_line(ipython, ""))
    elif (shell or hasattr(sys, "ps1")) and sys.stderr.isatty():
        from rich.console import Console  # where nobody watches, it is not imported
        from rich.text import Text

        with Console(stderr=True).status(Text()) as status:
            yield lambda step: status.update(Text(step))  # a Text, since Rich reads [brackets] in a str as markup
    else:
        yield None


def _line(ipython: Any, text: str) -> Any:
    return ipython.display.HTML(element("i", text))
