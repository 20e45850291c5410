"""Log the start and the end of work as structured events, for log collectors; read the clock of reports (D-028).

The records go to Python's logger `deltafold`, which is silent unless DELTAFOLD_LOG is `json` (standard error) or
`json:PATH` (appended to that file), or the program that uses the library gives it a handler.

    {"event": "refresh finished", "time": "2024-05-03T06:00:00Z", "work": "3f2a…", "view": "totals", "epoch": 3, …}

A record's message is the event; its fields are in `record.fields`. Each piece of work logs `begun` and then `finished`
or `failed`: refresh, rollback, rebucket, upkeep, landing, verification, the publication of a SQL view or of a plain
table (`publish`), and within a refresh every epoch, also those of upstream views. `source lost` is logged when a view
is rebuilt because a source lost rows that the last epoch read. All events of one piece of work have the same id in
`work`. No field contains a row, a value of a row, or a setting: an error is logged as `DeltafoldError.logged`, another
exception by its class.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
import time
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from deltafold.algebra.errors import DeltafoldError, UsageError
from deltafold.algebra.local_path import local_path
from deltafold.algebra.results.report import Landing, Report, Verification
from deltafold.algebra.results.upkeep import Upkeep
from deltafold.algebra.secrets import mask_secrets
from deltafold.spark.cache import SetupError

LOG_VARIABLE = "DELTAFOLD_LOG"
FORM = "json"
LOGGER = logging.getLogger("deltafold")
LOGGER.addHandler(logging.NullHandler())  # otherwise Python would print failures to standard error


def now(precision: Literal["seconds", "microseconds"] = "seconds") -> str:
    """Return the current time: UTC, ISO 8601."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec=precision)


def seconds_since(moment: str) -> float:
    """Return the seconds since a time in the form of `now`."""
    return (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(moment)).total_seconds()


class JsonFormatter(logging.Formatter):
    """Format a record as one line of JSON: its event, its time, its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Render the record."""
        fields: Mapping[str, object] = getattr(record, "fields", {})
        event = {"event": record.getMessage(), "time": now(), **fields}
        return json.dumps(event, ensure_ascii=False, default=str)


Result = Report | Landing | Verification | Upkeep | None
"""The result of work; None if its events have the subject alone."""


@dataclass
class Work:
    """A piece of work in progress; result: its return value, whose numbers are in its last event."""

    result: Result = None


def switch_on() -> None:
    """Add the handler that DELTAFOLD_LOG requests, once in a process. Raises UsageError for an invalid value."""
    value = os.environ.get(LOG_VARIABLE)
    if not value or any(handler.get_name() == LOG_VARIABLE for handler in LOGGER.handlers):
        return
    form, _, path = value.partition(":")
    if form != FORM:
        raise UsageError(
            f"{LOG_VARIABLE}: invalid value {value!r}. Use {FORM} for standard error, or {FORM}:PATH for a file."
        )
    try:
        file = local_path(f"the file of {LOG_VARIABLE}", path, SetupError) if path else None
        handler = logging.StreamHandler() if file is None else logging.FileHandler(file, encoding="utf-8")
    except OSError as error:
        raise SetupError(
            f"cannot write the file {path} of {LOG_VARIABLE}: {error.strerror}. Set {LOG_VARIABLE} to another file."
        ) from error
    handler.set_name(LOG_VARIABLE)
    handler.setFormatter(JsonFormatter())
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)


@contextmanager
def log_work(work: str, subject: Mapping[str, object]) -> Generator[Work]:
    """Log the start and the end of some work; subject: fields of all its events, such as the view."""
    switch_on()
    fields = {"work": uuid.uuid4().hex[:12], **subject}
    in_progress = Work()
    start = time.monotonic()
    log(logging.INFO, f"{work} begun", fields)
    try:
        yield in_progress
    except BaseException as error:
        sentence = mask_secrets(error.logged) if isinstance(error, DeltafoldError) else None
        seconds = round(time.monotonic() - start, 3)
        failure = {"seconds": seconds, "error": type(error).__name__, "sentence": sentence}
        log(logging.ERROR, f"{work} failed", {**fields, **failure})
        raise
    log(logging.INFO, f"{work} finished", {**fields, **fields_of(in_progress.result)})


def log(level: int, event: str, fields: Mapping[str, object]) -> None:
    """Log one event."""
    LOGGER.log(level, "%s", event, extra={"fields": dict(fields)})


def fields_of(result: Result) -> dict[str, Any]:
    """Return the numbers and the verdict of a result as fields of an event."""
    match result:
        case Report():
            names = (
                "view", "epoch", "generation", "verdict", "versions", "change_rows", "groups", "rows_read",
                "rows_written", "jobs", "commits", "seconds", "phases", "paths", "expected", "rounds", "residuals",
                "lost",
            )  # fmt: skip
            return {name: getattr(result, name) for name in names}
        case Landing():
            counts = {name: len(getattr(result, name)) for name in ("landed", "unchanged", "removed")}
            counts |= {"quarantined": sum(result.quarantined.values())}
            return {"version": result.version, "rows": result.rows, "seconds": round(result.seconds, 3), **counts}
        case Verification():
            names = ["ok", "missing", "extra", "rows", "versions", "share"]
            names += [name for name in ("residual", "allowed", "bound") if getattr(result, name) is not None]
            return {name: getattr(result, name) for name in names}
        case Upkeep():
            tables = {name: [table.work, table.partitions, table.removed] for name, table in result.tables.items()}
            return {"seconds": result.seconds, "generations": result.generations, "tables": tables}
        case None:
            return {}
        case _:
            assert_never(result)
