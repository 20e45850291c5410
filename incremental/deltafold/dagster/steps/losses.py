"""Define the asset check that warns where a refresh rebuilt a view, since a source had lost what the last epoch read.

Only a view with `on_lost: rebuild` has it. It does not block what is downstream: the rebuilt view is right. The step
that refreshes the view gives its result; for a view below, or a refresh outside of Dagster's runs, it is an event.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from deltafold.algebra.results.report import Report
from deltafold.dagster import keys
from deltafold.pipelines.catalogue import Pipeline

LOSS_CHECK = "sources_kept"


def loss_checks(pipeline: Pipeline) -> Sequence[dg.AssetCheckSpec]:
    """Return the check of a pipeline's view, if it is rebuilt where a source was lost."""
    if pipeline.declaration.on_lost != "rebuild":
        return []
    described = "No source had lost what the last epoch read; otherwise the view was rebuilt, as `on_lost` asks for."
    return [dg.AssetCheckSpec(LOSS_CHECK, asset=keys.view(pipeline.name), description=described)]


def loss_results(pipeline: Pipeline, report: Report) -> Iterator[dg.AssetCheckResult]:
    """Yield the result of the check for a step that refreshed the view."""
    for check in loss_checks(pipeline):
        yield dg.AssetCheckResult(asset_key=check.asset_key, check_name=check.name, **_describe(report))


def loss_events(pipeline: Pipeline, report: Report) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the same as an event of no step of the view."""
    for check in loss_checks(pipeline):
        yield dg.AssetCheckEvaluation(asset_key=check.asset_key, check_name=check.name, **_describe(report))


def _describe(report: Report) -> Mapping[str, Any]:
    said = f"The view was rebuilt. {report.lost}" if report.lost else "No source was lost."
    numbers = {name: dg.MetadataValue.int(getattr(report, name)) for name in ("epoch", "generation")}
    severity = dg.AssetCheckSeverity.WARN
    return {"passed": not report.lost, "severity": severity, "description": said, "metadata": numbers}
