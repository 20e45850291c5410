"""Lock a view together with the views below it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from deltafold.algebra.errors import QueryError
from deltafold.lake.durable import lock
from deltafold.lake.remote.remote_path import Place
from deltafold.refresh.sources.upstream import Inputs


@contextmanager
def lock_chain(folder: Place, inputs: Inputs, seconds: float) -> Generator[ExitStack]:
    """Lock a view and all views below it, in a fixed order, so that two refreshes cannot deadlock.

    Yields an object whose `close` frees the locks of those below early.
    """
    folder = folder.resolve()
    if folder in inputs.chain:
        raise QueryError(
            f"view {inputs.view}: it reads itself, through {', '.join(inputs.views)}. Give one another name."
        )
    folders = {folder: inputs.view, **{path: below.store.view for path, below in inputs.chain.items()}}
    with ExitStack() as own, ExitStack() as below:
        for each in sorted(folders, key=str):
            held = lock(each, f"view {folders[each]}", "refreshed", seconds)
            (own if each == folder else below).enter_context(held)
        inputs.announce(folder)
        yield below
