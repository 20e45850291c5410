"""Mark the commits of an epoch, so that writing a table twice in one epoch has no effect."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """The mark of a write: its table and generation (`application`), its epoch, and the commit metadata.

    Delta records the first two as `txnAppId` and `txnVersion`, and skips a write whose pair is already recorded.
    """

    application: str
    epoch: int
    metadata: str

    @property
    def settings(self) -> dict[str, str]:
        """Return the session settings with which a MERGE carries the mark."""
        return {
            "spark.databricks.delta.write.txnAppId": self.application,
            "spark.databricks.delta.write.txnVersion": str(self.epoch),
            "spark.databricks.delta.commitInfo.userMetadata": self.metadata,
            # the source of our merges is checkpointed, so Delta need not copy it
            "spark.databricks.delta.merge.materializeSource": "none",
        }
