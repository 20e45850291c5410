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

MISSING_FILE = ("FAILED_READ_FILE.FILE_NOT_EXIST", "DELTA_FILE_NOT_FOUND")  # conditions for a data file that is missing
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
"""The operating system's errors by number, with its words: an exception of Java has these words alone."""
LOCAL_FILE = re.compile(r"file:(?://)?(/[^\s'\"]+)")
# invalid values, several rows for a scalar subquery, raise_error
DATA_SQLSTATE = re.compile(r"SQLSTATE: (2[12]|P0001)")
ONE_VERSION_FIX = "Correct the data, or let the expression give NULL (try_divide, try_cast)."
RUN_AGAIN = "Run it again; if it fails again, look for the error in Spark's log."
NEVER_TOGETHER = (
    "If the batch query succeeds, the failing values never met in one version: a refresh combines new rows with old "
    "ones. Rebuild the view, or let the expression give NULL (try_divide, try_cast)."
)
NOISE = re.compile(r"^\[[A-Z_.]+\]\s*|\s*SQLSTATE: \w+")


def java_chain(error: Exception) -> list[J]:
    """Return the Java exception behind an error and its causes, outermost first; none if Python raised it."""
    java: J = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found: list[J] = []
    while java is not None:
        found.append(java)
        java = java.getCause()
    return found


def causes(error: Exception) -> list[str]:
    """Return the messages of an error and of its causes, outermost first, without Java's stack traces."""
    found = [str(java.getMessage() or java.getClass().getSimpleName()) for java in java_chain(error)]
    return found or [str(error).split("\n\nJVM stacktrace")[0]]


def conditions(error: Exception) -> dict[str, dict[str, str]]:
    """Return Spark's error conditions of an error and its causes, with the parameters of their messages."""
    found: dict[str, dict[str, str]] = {}
    for java in java_chain(error):
        if is_java_instance(java, "org.apache.spark.SparkThrowable") and java.getCondition():
            found.setdefault(str(java.getCondition()), dict(java.getMessageParameters()))
    if not found and (named := CONDITION.match(str(error))):  # an error of Python's: it has the message alone
        found[named[0].strip("[]")] = {}
    return found


def is_missing_file(error: Exception) -> bool:
    """Return whether the cause of an error is a data file that is gone."""
    if any(name.startswith(MISSING_FILE) for name in conditions(error)):
        return True
    return is_caused_by(error, "java.io.FileNotFoundException")


def hidden_folder(error: Exception) -> str | None:
    """Return the local folder of a file in an error that this user may not enter: Spark calls its files missing."""
    for named in LOCAL_FILE.findall(str(error)):
        try:
            Path(unquote(named)).stat()
        except PermissionError:
            return str(Path(unquote(named)).parent)
        except OSError:
            continue
    return None


def is_caused_by(error: Exception, *classes: str) -> bool:
    """Return whether an error or one of its causes is of one of these classes of Java."""
    return any(is_java_instance(java, name) for java in java_chain(error) for name in classes)


def is_decimal_overflow(error: Exception) -> bool:
    """Return whether the cause of an error is a sum of decimals beyond a state's digits, in either mode of Spark's."""
    for name, parameters in conditions(error).items():
        if name.startswith(RAISED_CONDITION) and parameters.get("errorMessage", "").strip("'\"") == DECIMAL_OVERFLOW:
            return True
        if name.startswith(OUT_OF_RANGE_CONDITION) and parameters.get("precision") == STATE_DIGITS:
            return True
    return False


def python_error(error: Exception) -> str | None:
    """Return what a Python function raised in a worker, and at which line; None if the cause is another one."""
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
    """Return where in the query's text such an error is, as ` at line 3, column 8`; empty where Spark does not tell."""
    found = re.search(r"; line (\d+) pos (\d+)", causes(error)[0])
    return f" at line {found[1]}, column {int(found[2]) + 1}" if found else ""


def cause(error: Exception) -> str:
    """Return the cause of an error in one line."""
    return first_line(causes(error)[0]) or type(error).__name__


@contextmanager
def storage_errors(folder: object, reads: bool = False) -> Generator[None]:
    """Raise StorageError for a full disk or a missing permission, in whatever layer it occurred.

    folder: the one that is written to, or only read.
    """
    try:
        yield
    except (OSError, DeltafoldError, *JavaError) as error:
        if (known := as_storage_error(error, folder, reads)) is None:
            raise
        raise known from error


def as_storage_error(error: Exception, folder: object, reads: bool = False) -> StorageError | None:
    """Return the error as a StorageError if the disk is its cause, else None; reads: nothing was to be written."""
    origin = error.__cause__ if isinstance(error, DeltafoldError) else error
    if isinstance(origin, JavaError):
        if DATA_SQLSTATE.search(str(origin)) or PYTHON_CONDITION in conditions(origin):
            return None  # the words are those of a value, or of a user's function
        text = "\n".join(causes(origin))
        found = next(((reason, fix) for reason, fix in DISK.values() if reason in text), None)
        named = found and re.search(rf"(?:file:)?(/.*) \({found[0]}\)", text)  # as Java writes it
        place = named[1] if named else folder
    elif isinstance(error, OSError):
        place, found = error.filename or folder, DISK.get(error.errno or 0)
    else:
        return None
    if found is None:
        return None
    reason, fix = found
    if reads and fix == LET_WRITE:
        return StorageError(f"{place}: {reason.lower()}. {LET_READ}, and try again.")
    return StorageError(f"{place}: {reason.lower()}. {fix}, and try again; nothing is half written.")


@contextmanager
def explain_errors(places: Mapping[str, str], moving: bool, work: str = "refresh") -> Generator[None]:
    """Replace an exception from Spark by a DeltafoldError of one sentence.

    places: names of the tables that are read, by path; moving: the work is a refresh between two versions; work: its
    name in the sentence. Raises EvaluationError for data that an expression or a Python function cannot process,
    LostSourceError for missing files, StorageError for those in a folder that may not be entered, DeltafoldError for
    anything else.
    """
    try:
        yield
    except JavaError as error:
        if is_missing_file(error):
            if hidden := hidden_folder(error):
                raise StorageError(f"{hidden}: permission denied. {LET_READ}, and try again.") from error
            text = str(error)
            owner = next((what for path, what in places.items() if f"{path}/" in text), "a pinned source version")
            raise LostSourceError(
                f"{owner}: a data file is gone (VACUUM removed it, or somebody deleted it). "
                "Rebuild the view, and let VACUUM keep files for longer than the time between two refreshes."
            ) from error
        if is_decimal_overflow(error):
            raise EvaluationError(
                "sum of decimals: it grew beyond the 43 digits that a state keeps (Spark has 38). "
                "Cast the column to fewer digits, or set policy: definition for this view."
            ) from error
        if raised := python_error(error):
            said = f"Python function of the query: {raised}. Correct the function, or the data."
            raise EvaluationError(said) from error
        reason, what = causes(error)[0].strip().split("\n")[0], f"Spark could not run the {work}"
        kind = CONDITION.match(reason)
        data = DATA_SQLSTATE.search(reason)
        if kind and kind[0] == f"[{RAISED_CONDITION}]":
            reason = first_line(reason)  # somebody's own words
        fix = ONE_VERSION_FIX if data else RUN_AGAIN
        raise (EvaluationError if data else DeltafoldError)(
            f"{what}: {(reason or type(error).__name__).rstrip('.')}. {NEVER_TOGETHER if moving and data else fix}",
            f"{what}: {kind[0] if kind else type(error).__name__}. {fix}",
        ) from error
