"""Assets room: the promise, as an asset check. In: a pipeline. Out: a blocking check that its view equals batch.

The check runs the batch query at the versions of the view's last epoch and compares every row, duplicates counted. It
is blocking: in a run that refreshes, nothing downstream starts before the view has been found equal. It costs what the
batch query costs; where that is too much for every refresh, leave it out of a run (Dagster's launch dialog) and start
it alone.
"""

import dagster as dg

from assets import keys, metadata
from assets.failures import CRASHES, failures
from assets.resources import SparkResource
from pipelines.catalogue import Pipeline

CHECK = "equals_batch"


def equality_check(pipeline: Pipeline) -> dg.AssetChecksDefinition:
    """The check that a pipeline's view equals its batch query."""

    @dg.asset_check(
        asset=keys.view(pipeline.name),
        name=CHECK,
        blocking=True,
        description="The view equals the batch query on the same source versions, row for row, duplicates counted.",
        pool=pipeline.name,
        retry_policy=CRASHES,
    )
    def equals_batch(spark: SparkResource) -> dg.AssetCheckResult:
        with failures():
            _, view = spark.open(pipeline)
            found = view.verify()
        return dg.AssetCheckResult(
            passed=found.ok, description=found.sentence, metadata=metadata.of_verification(found)
        )

    return equals_batch
