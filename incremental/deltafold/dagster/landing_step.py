"""Land a source in a step: all the partitions that its run was launched with, in one call.

A backfill over a range is one run. A partition is replaced as a whole, so landing it again is an exact correction, and
landing an unchanged one has no effect. With `changed_only`, which the sensor sets, only partitions whose files changed
are landed; afterwards all partitions of the run equal their folders. A run of one partition without files fails, since
it was requested explicitly. In a range, days without files are common and stay empty; one that was landed before is
removed. A partition of the asset may be a week or a month, which lands the folders of its days. A partition that did
not change keeps its data version. A run of a stream, which has no partitions, lands what has arrived.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import dagster as dg
from pydantic import Field

from deltafold.dagster import metadata
from deltafold.dagster.dataset_step import find_runner, find_steps, landing_op
from deltafold.dagster.partitions import folders_of, partitions_of, refuse_other_partitions
from deltafold.dagster.storage import Folders
from deltafold.dagster.translator import replace_attributes
from deltafold.pipelines.catalogue import DeclarationError, Pipeline
from deltafold.pipelines.tasks import LandTask


class LandingConfig(dg.Config):
    """Configuration of the landing in one run."""

    changed_only: bool = Field(
        default=False,
        description="Land only partitions whose files changed, instead of all of the run's partitions.",
    )


def landing_step(
    pipeline: Pipeline,
    source: str,
    spec: dg.AssetSpec,
    *,
    retry_policy: dg.RetryPolicy | None,
    backfill_policy: dg.BackfillPolicy | None,
    pool: str | None,
    resource_key: str | None,
) -> dg.AssetsDefinition:
    """Return the asset of a source's landed table; it has the partitions of its pipeline unless it has others."""
    partitioned = source in pipeline.partitioned
    if partitioned and spec.partitions_def is None:
        spec = replace_attributes(spec, partitions_def=partitions_of(pipeline))
    if partitioned:
        refuse_other_partitions(pipeline, source, spec.partitions_def)

    @dg.multi_asset(
        name=landing_op(spec.key),
        specs=[spec],
        backfill_policy=backfill_policy or dg.BackfillPolicy.single_run() if partitioned else None,
        required_resource_keys={resource_key} if resource_key else set(),
        retry_policy=retry_policy,
        pool=pool or landing_op(spec.key),
    )
    def landing(context: dg.AssetExecutionContext, config: LandingConfig) -> Iterator[dg.MaterializeResult[Any]]:
        if fault := Folders(find_steps(context)).find_fault(pipeline, context.asset_key):
            raise dg.Failure(fault, allow_retries=False)
        folders = _find_folders(context, pipeline, source) if partitioned else dict[str, tuple[str, ...]]()
        chosen = () if config.changed_only else tuple(dict.fromkeys(chain.from_iterable(folders.values())))
        landed = find_runner(context, resource_key).run(context, pipeline, LandTask(source, chosen))
        for key, of_partition in folders.items():
            context.add_asset_metadata(metadata.of_partition(landed, of_partition), partition_key=key)
        versions = {key: metadata.landed_version(landed, of_partition) for key, of_partition in folders.items()}
        # A result has one version for all partitions.
        [(most, _)] = Counter(versions.values()).most_common(1) or [(metadata.landed_version(landed), 0)]
        yield dg.MaterializeResult(metadata=metadata.of_landing(landed), data_version=dg.DataVersion(most))
        _correct_versions(context, {key: version for key, version in versions.items() if version != most})

    return landing


def _correct_versions(context: dg.AssetExecutionContext, versions: Mapping[str, str]) -> None:
    """Materialise partitions again, with data versions other than that of the result: those that did not change."""
    if not versions:
        return
    filtered = dg.AssetRecordsFilter(context.asset_key, asset_partitions=list(versions))
    for record in context.instance.fetch_materializations(filtered, limit=len(versions)).records:
        made, key = record.asset_materialization, record.partition_key
        if made is not None and key is not None and key in versions and record.run_id == context.run_id:
            tags = {**(made.tags or {}), metadata.DATA_VERSION: versions[key]}
            context.log_event(dg.AssetMaterialization(made.asset_key, metadata=made.metadata, partition=key, tags=tags))


def _find_folders(context: dg.AssetExecutionContext, pipeline: Pipeline, source: str) -> Mapping[str, tuple[str, ...]]:
    """Return the keys of the folders that each partition of a run lands; raises Failure if there is none at all.

    The asset may have been given other partitions after its step was made, such as by `post_processing`.
    """
    partitions = context.assets_def.specs_by_key[context.asset_key].partitions_def
    try:
        refuse_other_partitions(pipeline, source, partitions)
    except DeclarationError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    now = datetime.now(UTC)
    folders = {key: folders_of(pipeline, partitions, key, now) for key in context.partition_keys}
    if not any(folders.values()):
        keys = ", ".join(folders)
        why = f"source {source}: pipeline `{pipeline.name}` declares no day of {keys} that is not in the future."
        raise dg.Failure(f"{why} Launch other partitions, or change `partitions`.", allow_retries=False)
    return folders
