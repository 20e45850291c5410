"""Algebra room: how much data there is, and what it is expected to cost. In: nothing. Out: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Volume:
    """Of each source by name: bytes in all, bytes of the files that left or came, number of columns."""

    whole: Mapping[str, float]
    change: Mapping[str, float]
    columns: Mapping[str, int]


@dataclass(frozen=True)
class Estimate:
    """Expected seconds of a refresh by the program, and of running the query anew; least: were operators free."""

    refresh: float
    recompute: float
    least: float
