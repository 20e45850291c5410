"""Compute a DataFrame once for all its uses within a block.

The rows are checkpointed to Spark's own storage (memory, then disk) and not merely cached: Delta refuses to MERGE from
a source that Spark might recompute, and a plan that ends here is not analysed again.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from incremental.spark import catalyst


@contextmanager
def computed_once(frame: DataFrame) -> Generator[DataFrame]:
    """Yield the frame's rows, which are computed at their first use and freed after the block."""
    kept = frame.localCheckpoint(eager=False)
    try:
        yield kept
    finally:
        catalyst.analysed(kept).rdd().unpersist(False)
