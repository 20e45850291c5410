"""Choose a sample of an answer by a hash of its key.

Whether a row is in the sample depends on its key alone, so the view and the batch query have the same sample; equal
rows are in it together, and NULL is a key like any other. Each epoch has another sample. If the query groups by the
key, Spark filters before it groups, so that the check costs less than the batch query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from deltafold.algebra.errors import QueryError, UsageError
from deltafold.algebra.sqltext import quoted
from deltafold.dataflow.pruning.rewind import is_exact

PARTS = 1 << 20


@dataclass(frozen=True)
class Sample:
    """A share of an answer's keys, above 0 and below 1, by the columns of the key."""

    columns: tuple[str, ...]
    share: float
    epoch: int

    def of(self, answer: DataFrame) -> DataFrame:
        """Return the rows of the answer that are in the sample."""
        values = [F.col(quoted(name)) for name in self.columns]
        number = F.pmod(F.xxhash64(F.lit(self.epoch), *values), F.lit(PARTS))
        return answer.where(number < F.lit(round(self.share * PARTS)))

    @property
    def words(self) -> str:
        """Describe the sample, to continue «a sample of»."""
        return f"{self.share:.4%}".rstrip("0%").rstrip(".") + f"% by {', '.join(self.columns)}"


def sample_of(schema: T.StructType, keys: Sequence[str], share: object, epoch: int) -> Sample | None:
    """Return a sample by the key, or by the whole row if there is no key; None for a share of 1.

    keys: the columns that the query groups by. Only columns whose equal values have the same bits can be hashed.
    Raises UsageError for an invalid share, QueryError if no column can be hashed.
    """
    if share == 1:
        return None
    if not isinstance(share, int | float) or not 1 / PARTS <= share <= 1:
        raise UsageError(f"sample: invalid share {share!r}. Give a number of more than 0, up to 1.")
    exact = [field.name for field in schema if is_exact(field.dataType)]
    columns = tuple(name for name in keys if name in exact) or tuple(exact)
    if not columns:
        raise QueryError(
            "no column of the answer can be sampled: equal values may differ in their bits. Verify all of it."
        )
    return Sample(columns, share, epoch)
