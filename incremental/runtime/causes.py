"""Runtime room: why a call into Spark failed. In: the error Python got. Out: what each Java exception of it says.

Py4J's own message is "An error occurred while calling o12.save"; what a person needs stands in the causes below it.
"""

from __future__ import annotations

import re
from typing import Any

NOISE = re.compile(r"^\[[A-Z_.]+\]\s*|\s*SQLSTATE: \w+")


def causes(error: Exception) -> list[str]:
    """What an error and its causes say, outermost first; Java's stack traces left out."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        return [str(error).split("\n\nJVM stacktrace")[0]]
    found: list[str] = []
    while java is not None:
        found.append(str(java.getMessage() or java.getClass().getSimpleName()))
        java = java.getCause()
    return found


def first_line(message: str) -> str:
    """The first line of a message, without its error class and state."""
    lines = message.strip().splitlines()
    return NOISE.sub("", lines[0]).strip() if lines else ""
