"""Parse sizes and shares: `2g` as bytes, `1%` as a share."""

from __future__ import annotations

import re

_AMOUNT = re.compile(r"([1-9][0-9]*)([mg])\Z", re.IGNORECASE)
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?) ?%\Z")


def parse_size(text: str) -> int:
    """Return the bytes of `512m` or `2g`; raises ValueError with the correct form."""
    found = _AMOUNT.match(text)
    if not found:
        raise ValueError(f"`{text}` is not an amount. Write a number and m or g, for example 2g or 512m")
    return int(found[1]) << (30 if found[2].lower() == "g" else 20)


def share_of(text: str) -> float:
    """Return the share of `1%` or `0.5%`, above 0 and at most 1; raises ValueError with the correct form."""
    found = _PERCENT.match(text)
    share = float(found[1]) / 100 if found else 0.0
    if not 1e-5 <= share <= 1:
        raise ValueError(f"`{text}` is not a share. Write for example 1% or 0.5%, at most 100%")
    return share


def check_share(text: str) -> str:
    """Return the text if it is a share."""
    share_of(text)
    return text


def check_size(text: str) -> str:
    """Return the text if it is a size."""
    parse_size(text)
    return text
