"""Check the cron text of a schedule; a ValueError contains the fix.

Five fields as in crontab(5), or one of the names that Dagster's scheduler knows. An invalid schedule is thus reported
when the declaration is read, and not when the scheduler first evaluates it.
"""

from __future__ import annotations

import re

CRON_NAMES = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
# For each field its name, its lowest and highest number, and the names that can replace numbers.
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _WEEKDAYS),
)
_ITEM = re.compile(r"(?:\*|(?P<first>[a-z0-9]+)(?:-(?P<last>[a-z0-9]+))?)(?:/(?P<step>[0-9]+))?\Z")


def check_cron(text: str) -> str:
    """Return the schedule; raises ValueError, with a fix, if it is invalid."""
    if text.startswith("@"):
        if text not in CRON_NAMES:
            raise ValueError(f"`{text}` is not a schedule. Use one of {', '.join(CRON_NAMES)}, or five cron fields")
        return text
    fields = text.lower().split()
    if len(fields) != len(_FIELDS):
        raise ValueError(
            f"`{text}` is not a schedule: it has {len(fields)} fields, not five. Write minute, hour, day of the month, "
            'month and day of the week, for example "0 6 * * *" for every day at six'
        )
    for field, (name, low, high, words) in zip(fields, _FIELDS, strict=True):
        for item in field.split(","):
            _check_item(item, name, low, high, words)
    return text


def _check_item(item: str, name: str, low: int, high: int, words: tuple[str, ...]) -> None:
    found = _ITEM.match(item)
    if found is None:
        raise ValueError(f"`{item}` is not a {name} of a cron schedule. Use *, a number, a range a-b or a step */n")
    ends = [_number(end, words, low) for end in (found["first"], found["last"]) if end]
    if any(end is None or not low <= end <= high for end in ends):
        raise ValueError(f"`{item}` is not a {name} of a cron schedule. Choose {low} to {high}")
    if len(ends) == 2 and (ends[0] or 0) > (ends[1] or 0):
        raise ValueError(f"`{item}` runs backwards. Write the smaller {name} first")
    if found["step"] and not 0 < int(found["step"]) <= high:
        raise ValueError(f"`{item}` has an invalid step. Choose 1 to {high} for a {name}")


def _number(text: str, words: tuple[str, ...], low: int) -> int | None:
    if text.isdecimal():
        return int(text)
    return words.index(text) + low if text in words else None
