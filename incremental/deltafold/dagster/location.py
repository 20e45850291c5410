"""Compose the code location of a folder of pipelines, for those who write none of their own (D-198).

assets/definitions.py of the repository has the same, written as in a project of a user's.
"""

from pathlib import Path

import dagster as dg

from deltafold.dagster.automation import pipeline_jobs, pipeline_schedules, pipeline_sensors
from deltafold.dagster.pipeline_assets import landing_assets, pipeline_steps
from deltafold.dagster.resources import spark_resource
from deltafold.dagster.task_runner import CRASHES, RESOURCE_KEY, TaskRunner
from deltafold.dagster.translator import DeltafoldTranslator, replace_attributes
from deltafold.dagster.watched_tables import source_tables
from deltafold.pipelines.catalogue import Pipeline
from deltafold.pipelines.described_project import DescribedDataset, DescribedSource


class _ByPipeline(DeltafoldTranslator):
    """Groups the assets of each pipeline."""

    def get_asset_spec(self, pipeline: Pipeline | DescribedDataset) -> dg.AssetSpec:
        return replace_attributes(super().get_asset_spec(pipeline), group_name=_group(pipeline))

    def get_landing_spec(self, pipeline: Pipeline, source: str) -> dg.AssetSpec:
        return replace_attributes(super().get_landing_spec(pipeline, source), group_name=_group(pipeline))

    def get_project_landing_spec(self, project: str, source: DescribedSource) -> dg.AssetSpec:
        return replace_attributes(super().get_project_landing_spec(project, source), group_name=project)


def _group(pipeline: Pipeline | DescribedDataset) -> str:
    if isinstance(pipeline, DescribedDataset):
        return pipeline.group or pipeline.project
    return pipeline.declaration.group or pipeline.name


def load_definitions(
    spark: TaskRunner | None = None,
    *,
    pipelines: str | Path | None = None,
    retry_policy: dg.RetryPolicy | None = CRASHES,
) -> dg.Definitions:
    """Return a code location of the pipelines of a folder.

    Args:
        spark: the resource of every step; by default as `spark_resource` of the environment.
        pipelines: the folder of their folders; by default DELTAFOLD_PIPELINES, else ./pipelines.
        retry_policy: of every step; by default a crash is tried twice again.
    """
    translator = _ByPipeline()
    datasets = pipeline_steps(pipelines, translator=translator, retry_policy=retry_policy)
    landings = landing_assets(pipelines, translator=translator, retry_policy=retry_policy, skip_invalid=True)
    return dg.Definitions(
        assets=[*landings, *source_tables(*datasets), *datasets],
        jobs=pipeline_jobs(*datasets),
        schedules=pipeline_schedules(*datasets),
        sensors=pipeline_sensors(*datasets),
        resources={RESOURCE_KEY: spark or spark_resource()},
        # One process, and so one Spark, for all the steps of a run.
        executor=dg.in_process_executor,
    )
