"""Turn an exception from Spark or Java into one sentence with its root cause.

Py4J's own message is "An error occurred while calling o12.save"; the useful message is in the chain of causes.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from deltafold.algebra.errors import DeltafoldError, EvaluationError, LostSourceError, StorageError
from deltafold.algebra.monoids.sums import DECIMAL_OVERFLOW
from deltafold.spark.catalyst import J, JavaError, is_java_instance

MISSING_FILE = ("FAILED_READ_FILE.FILE_NOT_EXIST", "DELTA_FILE_NOT_FOUND")  # conditions of a missing data file
OUT_OF_RANGE_CONDITION, RAISED_CONDITION = "NUMERIC_VALUE_OUT_OF_RANGE", "USER_RAISED_EXCEPTION"
PYTHON_CONDITION = "PYTHON_EXCEPTION"
PYTHON_RAISED = re.compile(r"[A-Za-z_][\w.]*(: |$)")  # a traceback's line with the error itself
STATE_DIGITS = "37"  # of a sum of decimals: monoids/sums.py
CONDITION = re.compile(r"\[[A-Z_.0-9]+\]")  # Spark's error condition, such as [DIVIDE_BY_ZERO]
LET_WRITE, LET_READ = "Let this user read and write there", "Let this user read there"
DISK = {
    errno.ENOSPC: ("No space left on device", "Make room there"),
    errno.EDQUOT: ("Disk quota exceeded", "Make room there"),
    errno.EROFS: ("Read-only file system", "Make it writable"),
    errno.EACCES: ("Permission denied", LET_WRITE),
    errno.EPERM: ("Operation not permitted", LET_WRITE),
}  # fmt: skip
"""Errors of the operating system by number: the message, which is all that an exception of Java has, and the fix."""
LOCAL_FILE = re.compile(r"file:(?://)?(/[^\s'\"]+)")
# invalid values, several rows for a scalar subquery, raise_error
DATA_SQLSTATE = re.compile(r"SQLSTATE: (2[12]|P0001)")
GUARD_IN_SQL = "let the expression give NULL (try_divide, try_cast)"
RUN_AGAIN = "Run it again; if it fails again, look for the error in Spark's log."
NEVER_TOGETHER = (
    "If the batch query succeeds, the failing values never met in one version: a refresh combines new rows with old "
    "ones. Rebuild the view, or {guard}."
)
NOISE = re.compile(r"^\[[A-Z_.]+\]\s*|\s*SQLSTATE: \w+")


def java_chain(error: Exception) -> list[J]:
    """Return the Java exception behind an error and its causes, outermost first; none if Python raised it."""
    java: J = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    chain = list[J]()
    while java is not None:
        chain.append(java)
        java = java.getCause()
    return chain


def causes(error: Exception) -> list[str]:
    """Return the messages of an error and of its causes, outermost first, without Java's stack traces."""
    messages = [str(java.getMessage() or java.getClass().getSimpleName()) for java in java_chain(error)]
    return messages or [str(error).split("\n\nJVM stacktrace")[0]]


def conditions(error: Exception) -> dict[str, dict[str, str]]:
    """Return Spark's error conditions of an error and its causes, with the parameters of their messages."""
    parameters = dict[str, dict[str, str]]()
    for java in java_chain(error):
        if is_java_instance(java, "org.apache.spark.SparkThrowable") and java.getCondition():
            parameters.setdefault(str(java.getCondition()), dict(java.getMessageParameters()))
    if not parameters and (condition := CONDITION.match(str(error))):  # PySpark's own errors have the message alone
        parameters[condition[0].strip("[]")] = {}
    return parameters


def _is_missing_file(error: Exception) -> bool:
    """Return whether the cause of an error is a data file that is gone."""
    if any(name.startswith(MISSING_FILE) for name in conditions(error)):
        return True
    return is_caused_by(error, "java.io.FileNotFoundException")


def _hidden_folder(error: Exception) -> str | None:
    """Return the local folder of a file in an error, if this user may not enter it: Spark reports its files missing."""
    for uri_path in LOCAL_FILE.findall(str(error)):
        path = Path(unquote(uri_path))
        try:
            path.stat()
        except PermissionError:
            return str(path.parent)
        except OSError:
            continue
    return None


def is_caused_by(error: Exception, *classes: str) -> bool:
    """Return whether an error or one of its causes is of one of these classes of Java."""
    return any(is_java_instance(java, name) for java in java_chain(error) for name in classes)


def _is_decimal_overflow(error: Exception) -> bool:
    """Return whether the cause of an error is a sum of decimals with too many digits for a state, with ANSI or not."""
    for name, parameters in conditions(error).items():
        if name.startswith(RAISED_CONDITION) and parameters.get("errorMessage", "").strip("'\"") == DECIMAL_OVERFLOW:
            return True
        if name.startswith(OUT_OF_RANGE_CONDITION) and parameters.get("precision") == STATE_DIGITS:
            return True
    return False


def python_error(error: Exception) -> str | None:
    """Return the exception of a Python function in a worker, and its line; None if the cause is another one."""
    if PYTHON_CONDITION not in conditions(error):
        return None
    lines = [line.rstrip() for line in "\n".join(causes(error)).splitlines()]
    raised = next((line for line in reversed(lines) if PYTHON_RAISED.match(line)), "it failed")
    where = next((line.strip() for line in reversed(lines) if line.startswith("  File ")), "")
    return f"it raised {raised.rstrip('.')}" + (f" ({where})" if where else "")


def first_line(message: str) -> str:
    """Return the first line of a message, without its error class and SQLSTATE."""
    lines = message.strip().splitlines()
    return NOISE.sub("", lines[0]).strip() if lines else ""


def sentence_of_analysis(error: Exception) -> str:
    """Return the first line of an error of Spark's analysis, without the position in the query."""
    return causes(error)[0].strip().split("; line")[0].splitlines()[0]


def position_of_analysis(error: Exception) -> str:
    """Return the position of such an error in the query's text, as ` at line 3, column 8`; empty if unknown."""
    position = re.search(r"; line (\d+) pos (\d+)", causes(error)[0])
    return f" at line {position[1]}, column {int(position[2]) + 1}" if position else ""


def cause(error: Exception) -> str:
    """Return the cause of an error in one line."""
    return first_line(causes(error)[0]) or type(error).__name__


@contextmanager
def storage_errors(folder: object, *, reads: bool = False) -> Generator[None]:
    """Raise StorageError for a full disk or a missing permission, in whatever layer it occurred.

    folder: the one that is written to, or only read.
    """
    try:
        yield
    except (OSError, DeltafoldError, *JavaError) as error:
        if (storage_error := as_storage_error(error, folder, reads=reads)) is None:
            raise
        raise storage_error from error


def as_storage_error(error: Exception, folder: object, *, reads: bool = False) -> StorageError | None:
    """Return the error as a StorageError if the disk is its cause, else None; reads: nothing was to be written."""
    origin = error.__cause__ if isinstance(error, DeltafoldError) else error
    if isinstance(origin, JavaError):
        if DATA_SQLSTATE.search(str(origin)) or PYTHON_CONDITION in conditions(origin):
            return None  # the message is about a value, or of a user's function
        text = "\n".join(causes(origin))
        disk_error = next(((reason, fix) for reason, fix in DISK.values() if reason in text), None)
        with_path = disk_error and re.search(rf"(?:file:)?(/.*) \({disk_error[0]}\)", text)  # as Java writes it
        path = with_path[1] if with_path else folder
    elif isinstance(error, OSError):
        disk_error = DISK.get(error.errno or 0)
        path = error.filename or folder
    else:
        return None
    if disk_error is None:
        return None
    reason, fix = disk_error
    if reads and fix == LET_WRITE:
        return StorageError(f"{path}: {reason.lower()}. {LET_READ}, and try again.")
    return StorageError(f"{path}: {reason.lower()}. {fix}, and try again; nothing is half written.")


@contextmanager
def explain_errors(
    places: Mapping[str, str], *, moving: bool, work: str = "refresh", guard: str = ""
) -> Generator[None]:
    """Replace an exception from Spark by a DeltafoldError of one sentence.

    places: names of the tables that are read, by path; moving: the work is a refresh between two versions; work: its
    name in the sentence; guard: how an expression of the query avoids an error, in its language if that is not SQL.

    Raises EvaluationError for data that an expression or a Python function cannot process,
    LostSourceError for missing files, StorageError for those in a folder that may not be entered, DeltafoldError for
    anything else.
    """
    try:
        yield
    except JavaError as error:
        if _is_missing_file(error):
            if hidden := _hidden_folder(error):
                raise StorageError(f"{hidden}: permission denied. {LET_READ}, and try again.") from error
            text = str(error)
            owner = next((name for path, name in places.items() if f"{path}/" in text), "a pinned source version")
            raise LostSourceError(
                f"{owner}: a data file is gone (VACUUM removed it, or somebody deleted it). "
                "Rebuild the view, and let VACUUM keep files for longer than the time between two refreshes."
            ) from error
        if _is_decimal_overflow(error):
            raise EvaluationError(
                "sum of decimals: it grew beyond the 43 digits that a state keeps (Spark has 38). "
                "Cast the column to fewer digits, or set policy: definition for this view."
            ) from error
        if raised := python_error(error):
            raise EvaluationError(
                f"Python function of the query: {raised}. Correct the function, or the data."
            ) from error
        what = f"Spark could not run the {work}"
        reason = causes(error)[0].strip().split("\n")[0]
        condition = CONDITION.match(reason)
        is_data_error = DATA_SQLSTATE.search(reason) is not None
        advice = guard or GUARD_IN_SQL
        fix = f"Correct the data, or {advice}." if is_data_error else RUN_AGAIN
        shown_fix = NEVER_TOGETHER.format(guard=advice) if moving and is_data_error else fix
        if condition and condition[0] == f"[{RAISED_CONDITION}]":
            reason = first_line(reason)  # the message of a raise_error in the query
            fix = shown_fix = f"Correct the data, or {guard}." if guard else "Correct the data."
        raise (EvaluationError if is_data_error else DeltafoldError)(
            f"{what}: {(reason or type(error).__name__).rstrip('.')}. {shown_fix}",
            f"{what}: {condition[0] if condition else type(error).__name__}. {fix}",
        ) from error
