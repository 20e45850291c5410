"""Define the asset checks of a pipeline: its view equals the batch query, and its sources lost nothing.

`equals_batch` runs the batch query at the versions of the view's last epoch and compares every row, duplicates counted.
It is blocking: in a run that refreshes, nothing downstream starts before the view has been found equal. It costs what
the batch query costs; if that is too much for every refresh, `check: {sample: 1%}` compares that share of the keys,
another one after each epoch, and `check: {schedule: ...}` compares all of it on schedule, in the job
`check_<pipeline>`.

`sources_kept` warns where a refresh rebuilt the view, since a source had lost what the last epoch read. Only a view
with `on_lost: rebuild` has it. It does not block what is downstream: the rebuilt view is right. The step that refreshes
the view gives its result; for a view below, or a refresh outside of Dagster's runs, it is an event.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from deltafold.algebra.results.report import Report
from deltafold.dagster import keys, metadata
from deltafold.dagster.task_runner import CRASHES, TaskRunner, failures
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.declaration.values import share_of
from deltafold.pipelines.tasks import VerifyTask

CHECK = "equals_batch"
WHOLE_SHARE = "100%"
LOSS_CHECK = "sources_kept"


class CheckConfig(dg.Config):
    """Configuration of the check in one run."""

    sample: str | None = Field(
        default=None, description="The share of keys to compare, such as 1%; by default as the pipeline declares."
    )


def equality_check(pipeline: Pipeline) -> dg.AssetChecksDefinition:
    """Return the check that a pipeline's view equals its batch query."""

    @dg.asset_check(
        asset=keys.view(pipeline.name),
        name=CHECK,
        blocking=True,
        description="The view equals the batch query on the same source versions, row for row, duplicates counted.",
        pool=pipeline.name,
        retry_policy=CRASHES,
    )
    def equals_batch(
        context: dg.AssetCheckExecutionContext, config: CheckConfig, spark: dg.ResourceParam[TaskRunner]
    ) -> dg.AssetCheckResult:
        with failures(pipeline):
            share = share_of(config.sample or pipeline.declaration.check.sample)
        verification = spark.run(context.op_execution_context, pipeline, VerifyTask(share))
        return dg.AssetCheckResult(
            passed=verification.ok,
            description=verification.sentence,
            metadata=metadata.of_verification(verification, show_rows=pipeline.declaration.show_rows_in_errors),
        )

    return equals_batch


def loss_checks(pipeline: Pipeline) -> Sequence[dg.AssetCheckSpec]:
    """Return the check of a pipeline's view, if it is rebuilt where a source was lost."""
    return loss_check(pipeline, keys.view(pipeline.name))


def loss_check(pipeline: Pipeline, key: dg.AssetKey) -> Sequence[dg.AssetCheckSpec]:
    """Return the same for a view of another key."""
    if pipeline.declaration.on_lost != "rebuild":
        return []
    description = "No source had lost what the last epoch read; otherwise the view was rebuilt, as `on_lost` asks for."
    return [dg.AssetCheckSpec(LOSS_CHECK, asset=key, description=description)]


def loss_results(pipeline: Pipeline, report: Report) -> Iterator[dg.AssetCheckResult]:
    """Yield the result of the check for a step that refreshed the view."""
    for check in loss_checks(pipeline):
        yield dg.AssetCheckResult(asset_key=check.asset_key, check_name=check.name, **describe_loss(report))


def loss_events(pipeline: Pipeline, report: Report) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the same as an event of no step of the view."""
    for check in loss_checks(pipeline):
        yield dg.AssetCheckEvaluation(asset_key=check.asset_key, check_name=check.name, **describe_loss(report))


def describe_loss(report: Report) -> Mapping[str, Any]:
    """Return the result of the check, as arguments of what Dagster makes of it."""
    return {
        "passed": not report.lost,
        "severity": dg.AssetCheckSeverity.WARN,
        "description": f"The view was rebuilt. {report.lost}" if report.lost else "No source was lost.",
        "metadata": {"epoch": report.epoch, "generation": report.generation},
    }
