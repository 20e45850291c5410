"""What makes a write idempotent. In: an epoch. Out: what its writes to a table carry."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """What makes a write idempotent: its table and generation (`application`), its epoch, and the metadata to store."""

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
