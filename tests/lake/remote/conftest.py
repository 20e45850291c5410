"""Provide a warehouse's root at a URI without a server: a mount of Hadoop's viewfs, which leads to a folder here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession


@pytest.fixture
def mount(spark: SparkSession, tmp_path: Path) -> str:
    """Return the URI of a new, empty folder."""
    name, folder = f"lake{uuid4().hex[:8]}", tmp_path / "mounted"  # Hadoop remembers the mounts of a name
    folder.mkdir()
    settings = cast(Any, spark.sparkContext)._jsc.hadoopConfiguration()
    settings.set(f"fs.viewfs.mounttable.{name}.link./wh", folder.as_uri())
    return f"viewfs://{name}/wh"
