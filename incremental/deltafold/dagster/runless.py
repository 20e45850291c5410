"""Report to Dagster the work that was done outside of its runs, by commands and by the demo (D-058).

Each landing, refresh and verification is reported as the events of a Dagster run, without a run: materialisations of
landed partitions and of views, observations of the tables of others that were read, and evaluations of the check. They
are reported in the order of the graph, with the data versions that a run gives, so Dagster shows nothing as outdated.
Work that was never reported is reported too: landed partitions, a version that another process landed, the epoch of a
verification. The assets are those that DeltafoldTranslator names, since a command does not load the code location.
"""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg
from filelock import FileLock

from deltafold.algebra.results.report import NOTHING_TO_DO, ROLLED_BACK, Landing, Report, Verification
from deltafold.cli.orchestrator import Landed, Refreshed, ReportedWork, Verified
from deltafold.dagster import following, metadata
from deltafold.dagster.dataset_step import CHECK, Dataset, loss_events, materialisation, translate
from deltafold.dagster.partitions import can_be, partitions_of
from deltafold.dagster.translator import DeltafoldTranslator
from deltafold.lake.durable import make_private
from deltafold.pipelines import descriptions
from deltafold.pipelines.tasks import describe_refreshed

if TYPE_CHECKING:
    from deltafold.api import View

DagsterEvent = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
WAIT_SECONDS = 60  # for another process that writes to the same Dagster instance


def report(works: Sequence[ReportedWork]) -> None:
    """Report work to the instance in DAGSTER_HOME. Raises any error of that instance."""
    with warnings.catch_warnings(), dg.DagsterInstance.get() as instance:
        warnings.simplefilter("ignore")  # parts of Dagster that may change; its version is pinned
        report_to(instance, works)


def report_to(instance: dg.DagsterInstance, works: Sequence[ReportedWork]) -> None:
    """Report work to an instance; each event is stored before the next one is built, which may refer to it.

    The pipelines' sensors are locked meanwhile: they would request a refresh between a landing's event and the next.
    """
    with ExitStack() as locks:
        for lock in sorted({following.report_lock(work.pipeline) for work in works}):
            make_private(lock.parent)
            locks.enter_context(FileLock(lock, timeout=WAIT_SECONDS))
        for work in works:
            for event in _events(instance, work):
                instance.report_runless_asset_event(event)


def _events(instance: dg.DagsterInstance, work: ReportedWork) -> Iterator[DagsterEvent]:
    [dataset] = translate([work.pipeline], DeltafoldTranslator(), checked=True)
    match work:
        case Landed(_, landing):
            yield from _landing(instance, dataset, landing)
        case Refreshed(_, view, done, below):
            if not (below and done.verdict == NOTHING_TO_DO and _is_known(instance, dataset, done)):
                yield from _refresh(instance, dataset, view, done)
        case Verified(_, view, verification):
            yield from _verification(instance, dataset, view, verification)


def _landing(instance: dg.DagsterInstance, dataset: Dataset, landing: Landing) -> Iterator[dg.AssetMaterialization]:
    """Yield the events of changed partitions and of those new to Dagster; of the whole table if unpartitioned.

    At least one event if the table has another version than Dagster knows, because of a compaction or another landing.
    """
    pipeline, key = dataset.pipeline, dataset.landed[landing.source]
    details = metadata.of_landing(landing)

    def tags(folders: Sequence[str] | None = None) -> Mapping[str, str]:
        return metadata.version_tags(metadata.landed_version(landing, folders), descriptions.digest(pipeline), {})

    missed = following.table_version(instance, key) != landing.version and not (landing.landed or landing.removed)
    if landing.source not in pipeline.partitioned:
        if landing.landed or landing.removed or missed:
            yield dg.AssetMaterialization(key, metadata=details, tags=tags())
        return
    now = datetime.now(UTC)
    reported = instance.get_materialized_partitions(key)
    unchanged = [partition for partition in landing.unchanged if can_be(pipeline, partition, now)]
    unreported = [partition for partition in unchanged if partition not in reported]
    others = unreported or (unchanged[-1:] if missed else [])
    changed = [partition for partition in (*landing.landed, *landing.removed) if can_be(pipeline, partition, now)]
    chosen = sorted([*changed, *others])
    if isinstance(partitions_of(pipeline), dg.DynamicPartitionsDefinition):
        instance.add_dynamic_partitions(pipeline.name, chosen)  # existing partitions are kept
    for partition in chosen:
        per_partition = {**details, **metadata.of_partition(landing, [partition])}
        yield dg.AssetMaterialization(key, partition=partition, metadata=per_partition, tags=tags([partition]))


def _refresh(instance: dg.DagsterInstance, dataset: Dataset, view: "View", done: Report) -> Iterator[DagsterEvent]:
    """Yield the events of tables of others at the versions that were read, then of the view.

    A rollback reports the versions consumed before it, so that the sensor does not undo it by a refresh.
    """
    consumed = following.consumed_versions(dataset, instance) if done.verdict == ROLLED_BACK else None
    more = {metadata.CONSUMED: dg.MetadataValue.json(dict(consumed))} if consumed else None
    yield from _tables_of_others(instance, dataset, done)
    inputs = {dep.asset_key: _input(instance, dep.asset_key) for dep in dataset.spec.deps}
    yield materialisation(dataset, describe_refreshed(dataset.pipeline, view, done), inputs, more)
    yield from loss_events(dataset, done)


def _input(instance: dg.DagsterInstance, key: dg.AssetKey) -> metadata.Input:
    """Return the data version of an asset, and the number of its last event."""
    record = following.last_event(instance, key)
    event = (record.asset_materialization or record.asset_observation) if record else None
    version = (event.tags or {}).get(metadata.DATA_VERSION) if event else None
    return version or metadata.NO_VERSION, record.storage_id if record else None


def _tables_of_others(instance: dg.DagsterInstance, dataset: Dataset, done: Report) -> Iterator[dg.AssetObservation]:
    for name, source in dataset.pipeline.declaration.sources.items():
        if (source.delta or source.table) and name in done.versions:
            key = dataset.sources[name]
            _, version = done.versions[name]
            if following.table_version(instance, key) != version:
                yield metadata.table_version(key, version, "was read by a refresh")


def _verification(
    instance: dg.DagsterInstance, dataset: Dataset, view: "View", verification: Verification
) -> Iterator[DagsterEvent]:
    """Yield the check of the view's last materialisation, after the materialisation if that is of another epoch."""
    last = view.history()[-1]
    if not _is_known(instance, dataset, last):
        yield from _refresh(instance, dataset, view, last)
    record = following.last_event(instance, dataset.key)
    assert record is not None
    yield dg.AssetCheckEvaluation(
        asset_key=dataset.key,
        check_name=CHECK,
        passed=verification.ok,
        description=verification.sentence,
        metadata=metadata.of_verification(verification, show_rows=dataset.pipeline.declaration.show_rows_in_errors),
        blocking=True,
        target_materialization_data=_target(record),
    )


def _target(record: dg.EventLogRecord) -> Any:
    """Return what a check was about. Its class has no public name, so it is read as Dagster stores it."""
    stored = {"storage_id": record.storage_id, "run_id": record.run_id, "timestamp": record.timestamp}
    return dg.deserialize_value(json.dumps({"__class__": "AssetCheckEvaluationTargetMaterializationData", **stored}))


def _is_known(instance: dg.DagsterInstance, dataset: Dataset, done: Report) -> bool:
    """Return whether the view's last materialisation in Dagster is of this epoch."""
    return following.view_version(instance, dataset.key) == metadata.data_version(done.generation, done.epoch)
