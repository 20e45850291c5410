"""Check the cron text of a schedule, and find its longest pause; a ValueError contains the fix.

Five fields as in crontab(5), or one of the names that Dagster's scheduler knows. An invalid schedule is thus reported
when the declaration is read, and not when the scheduler first evaluates it.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from itertools import pairwise

_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
CRON_NAMES = tuple(_NAMED)
_FIRST_DAY = date(2024, 1, 1)
_DAYS = 13 * 366  # every day of the year on every day of the week, but some of 29 February

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
    match = _ITEM.match(item)
    if match is None:
        raise ValueError(f"`{item}` is not a {name} of a cron schedule. Use *, a number, a range a-b or a step */n")
    ends = [_number(end, words, low) for end in (match["first"], match["last"]) if end]
    if any(end is None or not low <= end <= high for end in ends):
        raise ValueError(f"`{item}` is not a {name} of a cron schedule. Choose {low} to {high}")
    if len(ends) == 2 and (ends[0] or 0) > (ends[1] or 0):
        raise ValueError(f"`{item}` runs backwards. Write the smaller {name} first")
    if match["step"] and not 0 < int(match["step"]) <= high:
        raise ValueError(f"`{item}` has an invalid step. Choose 1 to {high} for a {name}")


def _number(text: str, words: tuple[str, ...], low: int) -> int | None:
    if text.isdecimal():
        return int(text)
    return words.index(text) + low if text in words else None


def longest_pause(schedule: str) -> timedelta:
    """Return the longest time between two ticks of a valid schedule, in UTC: a weekend's for one of working days."""
    fields = _NAMED.get(schedule, schedule).lower().split()
    minutes, hours, month_days, months, week_days = (
        _numbers(field, low, high, words) for field, (_, low, high, words) in zip(fields, _FIELDS, strict=True)
    )
    times = [timedelta(hours=hour, minutes=minute) for hour in sorted(hours) for minute in sorted(minutes)]
    either = "*" not in (fields[2], fields[4])  # cron then runs on the days of both fields

    def runs(day: date) -> bool:
        of_month = day.day in month_days
        of_week = bool({day.isoweekday(), day.isoweekday() % 7} & week_days)
        return day.month in months and (of_month or of_week if either else of_month and of_week)

    days = [day for number in range(_DAYS) if runs(day := _FIRST_DAY + timedelta(number))]
    within = [after - before for before, after in pairwise(times)]
    between = [after - before - times[-1] + times[0] for before, after in pairwise(days)]
    return max([*within, *between], default=timedelta(_DAYS))


def _numbers(field: str, low: int, high: int, words: tuple[str, ...]) -> set[int]:
    """Return the numbers that a valid field names."""
    numbers: set[int] = set()
    for item in field.split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        ends = [_number(end, words, low) for end in (first, last or first)] if span != "*" else [low, high]
        begin = ends[0] or 0
        end = ends[1] or 0
        if step and not last:  # 5/15 goes on to the highest
            end = high
        numbers |= {*range(begin, end + 1, int(step or 1))}
    return numbers
