"""What a machine is told of work. In: work, and what it says of itself. Out: one JSON line an event.

The lines go to Python's logger `deltafold`, which is silent unless DELTAFOLD_LOG is `json` (standard error) or
`json:PATH` (added to that file), or the program that uses the library gives it a handler.

    {"event": "refresh finished", "time": "2024-05-03T06:00:00Z", "work": "3f2a…", "view": "totals", "epoch": 3, …}

Work begins, and is finished or failed: refresh, rollback, rebucket, upkeep, landing, verification; within a refresh
every epoch, those of views below too, and parts. `work` is the same in all events of one piece of work. A line never
holds a row, a value of one, or a setting: of an error it has what `DeltafoldError.logged` says, of any other exception
its class.
"""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from incremental.algebra.errors import DeltafoldError
from incremental.algebra.report import Landing, Report, Verification
from incremental.algebra.secrets import covered
from incremental.algebra.upkeep import Upkeep
from incremental.spark.cache import SetupError
from incremental.telemetry.clock import now

VARIABLE, FORM = "DELTAFOLD_LOG", "json"
LOGGER = logging.getLogger("deltafold")
LOGGER.addHandler(logging.NullHandler())  # else Python would print what went wrong

Result = TypeVar("Result")


def switch_on() -> None:
    """Do as DELTAFOLD_LOG says, once in a process. Raises SetupError for what it cannot mean."""
    wanted = os.environ.get(VARIABLE)
    if not wanted or any(handler.get_name() == VARIABLE for handler in LOGGER.handlers):
        return
    form, _, path = wanted.partition(":")
    if form != FORM:
        raise SetupError(f"{VARIABLE} is {wanted!r}: say {FORM} for standard error, or {FORM}:PATH for a file.")
    try:
        handler = logging.FileHandler(path, encoding="utf-8") if path else logging.StreamHandler()
    except OSError as error:
        raise SetupError(
            f"{VARIABLE} names the file {path}, which cannot be written ({error.strerror}): name another."
        ) from error
    handler.set_name(VARIABLE)
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)


def told(work: str, subject: Mapping[str, object], run: Callable[[], Result]) -> Result:
    """Do some work, and tell that it begins and how it ends; subject: what it is about, such as the view."""
    switch_on()
    facts, start = {"work": uuid.uuid4().hex[:12], **subject}, time.monotonic()
    say(logging.INFO, f"{work} begun", facts)
    try:
        done = run()
    except BaseException as error:
        said = covered(error.logged) if isinstance(error, DeltafoldError) else None
        seconds = round(time.monotonic() - start, 3)
        why = {"seconds": seconds, "error": type(error).__name__, "sentence": said}
        say(logging.ERROR, f"{work} failed", {**facts, **why})
        raise
    say(logging.INFO, f"{work} finished", {**facts, **facts_of(done)})
    return done


def say(level: int, event: str, facts: Mapping[str, object]) -> None:
    """One line."""
    if LOGGER.isEnabledFor(level):
        LOGGER.log(level, "%s", json.dumps({"event": event, "time": now(), **facts}, ensure_ascii=False, default=str))


def facts_of(done: object) -> dict[str, Any]:
    """The numbers and verdicts that a result tells."""
    match done:
        case Report():
            names = (
                "view", "epoch", "generation", "verdict", "versions", "change_rows", "groups", "rows_read",
                "rows_written", "jobs", "commits", "seconds", "phases", "paths", "expected",
            )  # fmt: skip
            return {name: getattr(done, name) for name in names}
        case Landing():
            counts = {name: len(getattr(done, name)) for name in ("landed", "unchanged", "removed")}
            counts |= {"quarantined": sum(done.quarantined.values())}
            return {"version": done.version, "rows": done.rows, "seconds": round(done.seconds, 3), **counts}
        case Verification():
            return {name: getattr(done, name) for name in ("ok", "missing", "extra", "rows", "versions", "share")}
        case Upkeep():
            tables = {name: [table.work, table.partitions, table.removed] for name, table in done.tables.items()}
            return {"seconds": done.seconds, "generations": done.generations, "tables": tables}
        case _:
            return {}
