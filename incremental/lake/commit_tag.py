"""Mark the commits of an epoch, so that writing a table twice in one epoch has no effect."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """The mark of a write: its table and generation (`application`), its epoch, and the commit metadata.

    Delta records the first two as `txnAppId` and `txnVersion`, and skips a write that it has already.
    """

    application: str
    epoch: int
    metadata: str

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a session in which a MERGE carries the mark."""
        return {
            "spark.databricks.delta.write.txnAppId": self.application,
            "spark.databricks.delta.write.txnVersion": str(self.epoch),
            "spark.databricks.delta.commitInfo.userMetadata": self.metadata,
            # the source of our merges is cached, so Delta need not copy it once more
            "spark.databricks.delta.merge.materializeSource": "none",
        }
