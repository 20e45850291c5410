"""Find the keys of datasets and of what they read, for assets of the user's that depend on them or write them."""

import contextlib
from collections.abc import Sequence

import dagster as dg

from deltafold.algebra.errors import UsageError
from deltafold.dagster.dataset_step import step_of
from deltafold.pipelines.declaration.parsing import suggest_nearest


def get_asset_key_for_dataset(assets: dg.AssetsDefinition | Sequence[dg.AssetsDefinition], name: str) -> dg.AssetKey:
    """Return the key of a dataset, to depend on it, as `get_asset_key_for_model` of dagster-dbt does.

    Args:
        assets: results of `deltafold_assets`, `pipeline_steps` or `maintained_view`.
        name: of the dataset, or of the pipeline.

    Raises:
        UsageError: for a name that none of them has, and for assets of any other kind.
    """
    keys = dict[str, dg.AssetKey]()
    for step in map(step_of, [assets] if isinstance(assets, dg.AssetsDefinition) else assets):
        keys |= {dataset.name: dataset.key for dataset in step.datasets}
        if (project := step.project) is not None:
            described = (each for each in project.project.datasets if each.relation in project.datasets)
            keys |= {each.name: project.keys[each.relation] for each in described}
    if name not in keys:
        raise UsageError(f"dataset {name}: these assets have none of this name. {suggest_nearest(name, list(keys))}")
    return keys[name]


def get_asset_key_for_source(assets: dg.AssetsDefinition | Sequence[dg.AssetsDefinition], name: str) -> dg.AssetKey:
    """Return the key of the asset of a source, to write it, as `get_asset_key_for_source` of dagster-dbt does.

    Args:
        assets: results of `deltafold_assets`, `pipeline_steps` or `maintained_view`.
        name: of the source, as the pipelines declare it; of a dbt project `SOURCE.TABLE`, or that of a seed.

    Raises:
        UsageError: for a name that none of them reads, or that stands for several assets, and for assets of any other
            kind.
    """
    keys = dict[str, set[dg.AssetKey]]()
    for step in map(step_of, [assets] if isinstance(assets, dg.AssetsDefinition) else assets):
        read = [
            (source, key)
            for each in step.datasets
            for source, key in each.sources.items()
            if source not in each.pipeline.below
        ]
        if (project := step.project) is not None:
            read += [(source, project.keys[source]) for source in project.project.sources]
        for source, key in read:
            keys.setdefault(source, set()).add(key)
    if name not in keys:
        fix = suggest_nearest(name, list(keys))
        with contextlib.suppress(UsageError):
            get_asset_key_for_dataset(assets, name)
            fix = "It is a dataset: get_asset_key_for_dataset has its key."
        raise UsageError(f"source {name}: these assets read none of this name. {fix}")
    key, *others = sorted(keys[name])
    if others:
        named = ", ".join(each.to_user_string() for each in (key, *others))
        raise UsageError(f"source {name}: it stands for several assets ({named}). Name one, or ask for one dataset.")
    return key
