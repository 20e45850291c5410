"""Addresses of Delta tables that Spark cannot reach."""

from __future__ import annotations

import pytest

from incremental.algebra.errors import SourceError
from incremental.api import Delta
from tests.sandbox import DeltaSandbox


def test_a_file_system_that_spark_does_not_know(delta: DeltaSandbox) -> None:
    """Protects from a page of Java where the jars of an object store are missing."""
    delta.warehouse.source("orders", Delta("nosuchfs://bucket/orders"))
    with pytest.raises(SourceError, match=r"nosuchfs://bucket/orders cannot be opened: .*nosuchfs.*jars") as found:
        delta.view("select count(*) n from orders").refresh()
    assert "\n" not in str(found.value)
