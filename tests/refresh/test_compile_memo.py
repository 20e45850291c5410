"""The memo of a view's compilation: reused under an equal key, which is a value."""

from __future__ import annotations

import pytest

from deltafold.algebra.errors import SourceError
from deltafold.algebra.sources import Delta
from tests.sandbox import MemorySandbox, checked

ZONE = "spark.sql.session.timeZone"
QUERY = "select k, sum(v) s from t group by k"


def test_a_compilation_is_valid_as_long_as_its_key_is_the_same(sandbox: MemorySandbox) -> None:
    """Protects from a program of other schemas or settings, and from compiling once for each operation."""
    sandbox.source("t", "k int, v int", [(1, 1)])
    sandbox.warehouse.source("u", Delta(sandbox.path("u"), invariant=True))
    view = sandbox.view(QUERY)
    checked(view)
    first = view.compiled.latest
    assert first is not None
    key = first.key
    assert (key.query, key.policy, key.publish) == (QUERY, view.policy, view.publish)
    assert (key.named, key.invariant) == (("t",), frozenset())
    assert {name: schema.names for name, schema in key.schemas.items() if schema is not None} == {"t": ["k", "v"]}
    sandbox.insert("t", "k int, v int", [(2, 3)])
    sandbox.insert("u", "k int", [(1,)])
    checked(view)
    assert view.compiled.latest is first and first.key == key, "rows, and a source that it does not read, are no part"
    sandbox.sql("alter table {t} add column w int")
    checked(view)
    second = view.compiled.latest
    assert second is not None and second is not first
    assert second.key != key and second.query.fingerprint == first.query.fingerprint
    zone = str(sandbox.spark.conf.get(ZONE))
    sandbox.spark.conf.set(ZONE, "Asia/Tokyo")
    try:
        assert view.columns == second.columns
        assert view.compiled.latest is not second
    finally:
        sandbox.spark.conf.set(ZONE, zone)


def test_what_cannot_be_analysed_is_not_kept(sandbox: MemorySandbox) -> None:
    """Protects from an error that stays after its cause is gone."""
    sandbox.warehouse.source("t", Delta(sandbox.path("t")))
    view = sandbox.view(QUERY)
    with pytest.raises(SourceError, match="source t has no data"):
        view.refresh()
    assert view.compiled.latest is None
    sandbox.insert("t", "k int, v int", [(1, 1)])
    checked(view)
    assert view.compiled.latest is not None
