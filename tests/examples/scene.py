"""The name that examples on Delta know their sandbox by."""

from __future__ import annotations

from tests.sandbox import DeltaSandbox as Scene
from tests.sandbox import checked, confirm, row, rows, types

__all__ = ["Scene", "checked", "confirm", "row", "rows", "types"]
