"""Find the assets that Dagster's pages mark as missing or outdated, by its own resolver."""

from typing import Any

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from deltafold.dagster.location import load_definitions
from deltafold.dagster.resources import SparkResource
from deltafold.dagster.task_runner import TaskRunner
from deltafold.pipelines.catalogue import Pipeline


def located(pipeline: Pipeline, spark: TaskRunner | None = None, **more: Any) -> dg.Definitions:
    """The code location of the pipelines in a pipeline's folder."""
    return load_definitions(spark or SparkResource(), pipelines=pipeline.folder.parent, **more)


def outdated(defined: dg.Definitions, instance: dg.DagsterInstance) -> dict[str, list[str]]:
    """The assets that are missing or outdated, and why; of a partitioned one, whether it is missing."""
    graph = defined.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    found = {
        key.to_user_string(): [cause.reason for cause in resolver.get_stale_causes(key)] or ["missing"]
        for key in graph.get_all_asset_keys()
        if not graph.get(key).is_partitioned and resolver.get_status(key) != StaleStatus.FRESH
    }
    cut = [key for key in graph.get_all_asset_keys() if graph.get(key).is_partitioned]
    return found | {key.to_user_string(): ["missing"] for key in cut if not instance.get_materialized_partitions(key)}
