"""Sizes and limits that would make a refresh impossible are refused where they are given."""

from __future__ import annotations

from typing import Any

import pytest

from deltafold.algebra.tuning import Tuning


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bucket_bytes", 0),
        ("buckets", 0),
        ("lock_seconds", -1.0),
        ("local_rows", "x"),
        ("buckets", True),
        ("most_buckets", 0),
        ("kept_epochs", 0),
        ("point_log_rows", 0),
        ("point_log_file_rows", 0),
    ],
)
def test_what_is_refused(name: str, value: Any) -> None:
    """Protects from a division by zero in the middle of a refresh."""
    with pytest.raises(ValueError, match=rf"Tuning: {name} cannot be .* or more\."):
        Tuning(**{name: value})


def test_what_is_allowed() -> None:
    assert Tuning(rewrite_files=0, local_bytes=0, lock_seconds=0).rewrite_files == 0
