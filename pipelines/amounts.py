"""Pipelines room: amounts of memory and data as people write them. In: `2g`. Out: bytes."""

from __future__ import annotations

import re

_AMOUNT = re.compile(r"([1-9][0-9]*)([mg])\Z", re.IGNORECASE)


def bytes_of(text: str) -> int:
    """The bytes of `512m` or `2g`; ValueError with what to write otherwise."""
    found = _AMOUNT.match(text)
    if not found:
        raise ValueError(f"`{text}` is not an amount; write for example 2g or 512m")
    return int(found[1]) << (30 if found[2].lower() == "g" else 20)


def check(text: str) -> str:
    """The text, unchanged, if it is an amount."""
    bytes_of(text)
    return text
