"""Explain in one sentence why a catalog did not do its work: it does not answer, refuses, or is in use elsewhere."""

from __future__ import annotations

import re

from deltafold.spark.java_errors import cause, java_chain

BOOTED = re.compile(r"Another instance of Derby may have already booted the database (\S+?)\.?$", re.MULTILINE)
UNREACHABLE = re.compile(r"(?:java\.net\.(?:http\.)?|thrift\.transport\.)(\w+Exception)(?:: ([^\n]+))?")
FORBIDDEN = re.compile(
    r"AccessControlException|AuthorizationException|[Pp]ermission denied|PERMISSION_DENIED|\b40[13] - "
)
CLASSES = re.compile(r"^(?:[\w.$]+(?:Exception|Error): )+")
HIVE_MESSAGE = re.compile(r"^MetaException\(message:(?:Got exception: )?(.*)\)$")
JSON_MESSAGE = re.compile(r'"message"\s*:\s*"((?:[^"\\]|\\.)*)"')  # in the JSON of Unity Catalog's server


def catalog_fault(error: Exception, remedy: str, permission: str) -> str:
    """Return the cause of a catalog's error and the fix, without the full stop at the end.

    remedy: the fix of a cause that is not known here. permission: what a user who is refused needs, such as `read the
    table`.
    """
    chain = [f"{java.getClass().getName()}: {java.getMessage() or ''}" for java in java_chain(error)]
    text = "\n".join(chain or [str(error)])
    if booted := BOOTED.search(text):
        return (
            f"another process has opened {booted[1]}, the Derby database of Hive's metastore, and Derby admits one. "
            "End that process, or run a metastore server and set spark.hadoop.hive.metastore.uris to it"
        )
    reason = clean_message(cause(error))
    if FORBIDDEN.search(text):
        refusal = next((line for line in reversed(text.splitlines()) if FORBIDDEN.search(line)), reason)
        return f"this user may not do that ({clean_message(refusal)}). Let this user {permission}"
    if silent := list(UNREACHABLE.finditer(text)):
        told = next((clean_message(each[2]) for each in reversed(silent) if each[2]), "") or silent[-1][1]
        return f"the catalog does not answer ({told}). Start it, or correct its address, and try again"
    return f"{reason}. {remedy}"


def clean_message(message: str) -> str:
    """Return a message without the names of Java's classes and the full stop."""
    if answer := JSON_MESSAGE.search(message):
        return answer[1].rstrip(" .")
    return CLASSES.sub("", HIVE_MESSAGE.sub(r"\1", CLASSES.sub("", message))).rstrip(" .;")
