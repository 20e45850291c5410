"""Declarations of streams that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from deltafold.algebra.errors import SourceError
from deltafold.api import Stream


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"format": "delta"}, "a Delta table is a source itself"),
        ({"format": "socket"}, "deltafold listen"),
        ({"format": ""}, "a stream needs a format"),
        ({"path": None}, "a stream of json needs a folder. Give `path`"),
        ({"format": "rate"}, "a stream of rate has no folder. Remove `path`"),
        ({"options": {"maxFileAge": "1d"}}, "`maxFileAge` cannot be an option: a landing takes every file once"),
        ({"options": {"mode": "DROPMALFORMED"}}, "`mode` cannot be an option: a landing reads every row"),
        ({"options": {"multiLine": "true"}}, "a record of a JSON stream is a line"),
        ({"options": {"maxFilePerTrigger": "1"}}, "reader of json files has no option `maxFilePerTrigger`"),
        ({"format": "orc", "malformed": "quarantine"}, "records of orc cannot be quarantined"),
        ({"malformed": "quarantine", "quarantine_limit": 0}, "invalid quarantine_limit 0"),
        ({"malformed": "drop"}, "malformed is `fail` or `quarantine`"),
        ({"path": "s3a://me:secret@bucket/in"}, "contains a password"),
    ],
)
def test_what_is_no_stream(declared: dict[str, Any], says: str) -> None:
    """Protects from options by which Spark would leave out records without a word."""
    with pytest.raises(SourceError, match=says):
        given: dict[str, Any] = {"format": "json", "schema": "id INT", "path": "in"} | declared
        Stream(**given)
