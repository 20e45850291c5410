"""Invalid declarations and options are refused when they are made, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from deltafold.algebra.errors import SourceError, UsageError
from deltafold.algebra.sources import External, Files
from deltafold.compilation import check_options
from deltafold.view import check_versions

OPTIONS: dict[str, Any] = {
    "name": "v",
    "query": "select 1 one",
    "policy": "auto",
    "publish": "auto",
    "on_change": "refuse",
    "on_lost": "refuse",
}


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("name", "a-b", "view 'a-b': invalid name. Use at most 128 letters"),
        ("query", None, "view v: NoneType is not a query. Give SQL text"),
        ("policy", "lazy", "view v: unknown policy 'lazy'"),
        ("publish", "x", "unknown publication 'x'"),
        ("on_change", "ask", "unknown on_change 'ask'. Use refuse or rebuild"),
        ("on_lost", "ask", "unknown on_lost 'ask'. Use refuse or rebuild"),
    ],
)
def test_options_of_a_view(option: str, value: Any, said: str) -> None:
    """Protects from a misspelling that is found the next night."""
    with pytest.raises(UsageError, match=said):
        check_options(**{**OPTIONS, option: value})


@pytest.mark.parametrize(("address", "opened", "said"), [
    ("", print, r"External: '' is not the address of a table\. Write External\(address, open\)"),
    (print, "ice://t", "is not the address of a table"),
    ("ice://t", "t", "source ice://t: str cannot be called with the Spark session"),
    ("ice://ann:secret@host/t", print, "source ice://…@host/t: its address contains a password"),
])  # fmt: skip
def test_a_table_of_another_format(address: Any, opened: Any, said: str) -> None:
    """Protects from a declaration that fails at the first refresh, or whose errors show a password."""
    with pytest.raises(SourceError, match=said):
        External(address, opened)


def test_an_unknown_format() -> None:
    with pytest.raises(SourceError, match=r"unknown format 'excel'\. Land the files as one of csv, json, xml, text"):
        Files("folder", "excel", "k int")  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="XML needs the name of the element that is a row"):
        Files("folder", "xml", "k int")


@pytest.mark.parametrize(
    ("option", "because"),
    [
        (
            "mode",
            "`mode` cannot be an option: a landing reads every row and stops at malformed ones. Remove it",
        ),
        ("MODE", "`MODE` cannot be an option"),
        ("columnNameOfCorruptRecord", "`malformed: quarantine`"),
        ("pathGlobFilter", "a landing reads every file of its folder. Remove it"),
        ("ignoreCorruptFiles", "every file"),
        ("delimeter", "Spark's reader of csv files has no option `delimeter`. Write `delimiter`\\.$"),
        ("allowComments", "has no option `allowComments`. Write"),
        ("xyzzy", "no option `xyzzy`. Remove it, or look its name up in Spark's docs"),
    ],
)
def test_options_that_a_source_cannot_have(option: str, because: str) -> None:
    """Protects from DROPMALFORMED, which drops rows without a word, and from a misspelling, which Spark ignores."""
    with pytest.raises(SourceError, match=because):
        Files("folder", "csv", "k int", options={"HEADER": "true", "fs.x.key": "1", option: "DROPMALFORMED"})


@pytest.mark.parametrize("versions", [[0], {"a": "0"}, {"a": True}, 3])
def test_versions_that_are_not_numbers(versions: Any) -> None:
    """A text or a list would fail deep within a refresh."""
    with pytest.raises(UsageError, match="Delta version numbers by source"):
        check_versions(versions)
    check_versions({"a": 0})
    check_versions(None)
