"""Recognise Spark Connect, by which no view can be maintained, and explain what is possible instead.

Deltafold reads the plans of queries and writes Delta's log in Spark's driver, through Py4J. A client of Spark Connect
has neither Py4J nor those plans. The variables and settings are those that PySpark itself looks at.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec

from deltafold.algebra.errors import QueryError, UsageError

PACKAGE = "pyspark.sql.connect."
CAUSE = "views are maintained in Spark's driver, which a client of Spark Connect cannot reach"
INSTEAD = "Through Connect, only read the answers, which are Delta tables (docs/how-to/spark-connect.md)."
REMOTE_VARIABLE, MODE_VARIABLE, DEFAULT_VARIABLE = "SPARK_REMOTE", "SPARK_API_MODE", "SPARK_CONNECT_MODE"
SESSION_VARIABLE = "SPARK_CONNECT_MODE_ENABLED"  # PySpark sets it when it makes a session of Connect
REMOTE_SETTING, MODE_SETTING = "spark.remote", "spark.api.mode"
REMOTE_SCHEME = "sc://"


def is_connect(spark: object) -> bool:
    """Return whether a session, frame or column is one of Spark Connect."""
    return any(f"{kind.__module__}.".startswith(PACKAGE) for kind in type(spark).__mro__)


def explain_request(settings: Mapping[str, str], master: str = "") -> str | None:
    """Return the sentence that refuses a start for which PySpark would use Spark Connect; None for any other.

    It shows no address, since an address may contain a token.
    """
    for requested, what, fix in (
        (REMOTE_VARIABLE in os.environ, f"{REMOTE_VARIABLE} is set", "Unset it"),
        (
            SESSION_VARIABLE in os.environ,
            "this process has a session of Spark Connect",
            "Start Spark in a process of its own",
        ),
        (master.startswith(REMOTE_SCHEME), f"master is a {REMOTE_SCHEME} address", "Give that of the cluster"),
        (REMOTE_SETTING in settings, f"{REMOTE_SETTING} is set", "Remove the setting"),
        (settings.get(MODE_SETTING) == "connect", f"{MODE_SETTING} is connect", "Remove the setting"),
        (_is_mode_connect(), "PySpark's mode is connect", f"Set {MODE_VARIABLE}=classic"),
    ):
        if requested:
            return f"Spark Connect: {what}, and {CAUSE}. {fix}, to start Spark here or under spark-submit. {INSTEAD}"
    return None


def check_session(what: str, spark: object) -> None:
    """Raise UsageError for a session of Spark Connect."""
    if is_connect(spark):
        raise UsageError(
            f"{what}: the session is one of Spark Connect, and {CAUSE}. Pass a classic session, such as start() or "
            f"that of spark-submit. {INSTEAD}"
        )


def check_frame(what: str, frame: object) -> None:
    """Raise QueryError for a DataFrame of Spark Connect."""
    if is_connect(frame):
        raise QueryError(
            f"{what}: the DataFrame is one of Spark Connect, and {CAUSE}. Build it from the frames of a classic "
            f"session, such as start(). {INSTEAD}"
        )


def _is_mode_connect() -> bool:
    """Return whether PySpark's session builder makes a session of Spark Connect unless told otherwise."""
    mode = os.environ.get(MODE_VARIABLE, "").lower()
    if mode in ("classic", "connect"):
        return mode == "connect"
    by_default = os.environ.get(DEFAULT_VARIABLE)
    return find_spec("pyspark_connect") is not None if by_default is None else by_default == "1"
