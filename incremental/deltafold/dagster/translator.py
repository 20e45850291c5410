"""Translate datasets into assets: their keys, groups, owners, tags and metadata, for users to override."""

import inspect
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import dagster as dg

from deltafold.algebra.errors import DeltafoldWarning
from deltafold.pipelines import catalogue, descriptions
from deltafold.pipelines.catalogue import DeclarationError, Pipeline
from deltafold.pipelines.declaration.declaration import TAG
from deltafold.pipelines.declaration.values import PIPELINE_NAME
from deltafold.pipelines.described_project import DescribedDataset, DescribedSource

KeyLike = str | Sequence[str] | dg.AssetKey | dg.AssetSpec | dg.AssetsDefinition
"""An asset key, its parts, its text such as `raw/orders`, or the asset."""


def asset_key(key: KeyLike) -> dg.AssetKey:
    """Return an asset key of its text, of its parts, or of the asset."""
    if isinstance(key, dg.AssetKey):
        return key
    if isinstance(key, dg.AssetSpec | dg.AssetsDefinition):
        return key.key
    return dg.AssetKey.from_user_string(key) if isinstance(key, str) else dg.AssetKey(key)


def replace_attributes(spec: dg.AssetSpec, **attributes: Any) -> dg.AssetSpec:
    """Return a spec with other attributes."""
    return spec.replace_attributes(**attributes)  # pyright: ignore[reportUnknownMemberType]


def without_kinds(tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags without those that Dagster makes of the kinds of an asset."""
    return {name: value for name, value in tags.items() if not name.startswith("dagster/kind/")}


def derive_name(key: dg.AssetKey) -> str:
    """Return the name of the maintained view of a key, such as `marts__revenue`; no two keys have the same.

    A digest is added where letters change, the name is cut, or another key might have it.
    """
    name = key.to_python_identifier()
    if PIPELINE_NAME.match(name) and name.split("__") == list(key.path):
        return name
    digest = sha256("\0".join(key.path).encode()).hexdigest()[:8]
    letters = re.sub(r"[^a-z0-9_]", "_", name.lower())
    return f"{letters if letters[:1].isalpha() else f'view_{letters}'}"[:54] + f"_{digest}"


KEPT_CURRENT = "An answer that Deltafold keeps current."
"""Of a dataset without a description, for which Dagster would show the docstring of its step."""


def refuse_partitions(spec: dg.AssetSpec) -> dg.AssetSpec:
    """Return the spec of a dataset; raises DeclarationError if it has partitions: a refresh takes all of its rows."""
    if spec.partitions_def is not None:
        raise DeclarationError(
            f"asset {spec.key.to_user_string()}: partitions_def: a dataset has no partitions. Remove it."
        )
    return spec


def refuse_other_check(offered: dg.AssetCheckSpec, check: dg.AssetCheckSpec | None) -> dg.AssetCheckSpec | None:
    """Return a check as a translator wants it; raises DeclarationError for another check, which nothing would run."""
    if check is not None and (check.name, check.asset_key) != (offered.name, offered.asset_key):
        raise DeclarationError(
            f"asset {offered.asset_key.to_user_string()}: its check `{offered.name}` has another name or asset in "
            "get_asset_check_spec, and would not run. Keep both."
        )
    return check


def refuse_same_keys(specs: Mapping[str, dg.AssetSpec]) -> None:
    """Raise DeclarationError if two datasets of a step, given by name, have one key."""
    names: dict[dg.AssetKey, str] = {}
    for name, spec in specs.items():
        if (other := names.setdefault(spec.key, name)) != name:
            raise DeclarationError(
                f"datasets `{other}` and `{name}`: both are the asset {spec.key.to_user_string()}. Give them keys of "
                "their own, in `translation` or a translator."
            )


class DeltafoldTranslator:
    """Translates pipelines, and datasets of projects, into asset specs, for you to subclass and override.

        class Ours(DeltafoldTranslator):
            def get_asset_spec(self, pipeline):
                return super().get_asset_spec(pipeline).replace_attributes(owners=["team:finance"])

    Args:
        source_assets: the asset that writes a source, by the source's name; by default the asset of that name.
        key_prefix: parts that the key of each dataset begins with.
    """

    def __init__(self, source_assets: Mapping[str, KeyLike] | None = None, key_prefix: Sequence[str] = ()) -> None:
        self._source_assets = {name: asset_key(key) for name, key in (source_assets or {}).items()}
        self._key_prefix = list(key_prefix)
        self._unmatched = set(self._source_assets)  # names that no folder has had a source of

    def check_source_assets(self, folder: Path, sources: Collection[str]) -> None:
        """Warn of names in `source_assets` that are probably misspelt; sources: all that a folder or project reads.

        A translator may serve several folders, so a name that this one does not have is no fault. It is taken for one
        if a source that is not mapped has nearly that name.
        """
        self._unmatched -= set(sources)
        unmapped = [source for source in sources if source not in self._source_assets]
        for name in sorted(self._unmatched):
            if near := get_close_matches(name, unmapped):
                self._unmatched.discard(name)  # once is enough
                meant = " or ".join(f"`{source}`" for source in near)
                text = f"source_assets: {folder} has no source `{name}`, so it maps nothing. Did you mean {meant}?"
                warnings.warn(text, DeltafoldWarning, stacklevel=3)

    def get_asset_key(self, pipeline: Pipeline | DescribedDataset) -> dg.AssetKey:
        """Return the key of a dataset, after the prefix: its name, or the parts of its name in a project."""
        if isinstance(pipeline, DescribedDataset):
            return dg.AssetKey([*self._key_prefix, *pipeline.key])
        return dg.AssetKey([*self._key_prefix, pipeline.name])

    def get_source_key(self, pipeline: Pipeline, source: str) -> dg.AssetKey:
        """Return the key of a source: of another dataset its own; else the mapped one, or the source's name.

        A table that a pipeline of the folder lands has the key of that landing. One that has the name of a pipeline of
        the folder, and is not its view, is `<dataset>/source/<name>`.
        """
        if source in pipeline.below:
            return self.get_asset_key(pipeline.below[source])
        if source in self._source_assets:
            return self._source_assets[source]
        if source in pipeline.landed:
            return self.get_landing_key(pipeline, source)
        if lander := find_lander(pipeline, source):
            return self.get_landing_key(*lander)
        is_pipeline = pipeline.in_folder and (pipeline.folder.parent / source / catalogue.DECLARATION_FILE).is_file()
        return dg.AssetKey([*self.get_asset_key(pipeline).path, "source", source] if is_pipeline else [source])

    def get_landing_key(self, pipeline: Pipeline, source: str) -> dg.AssetKey:
        """Return the key of the table that a source's input files, or its stream, are landed in."""
        return dg.AssetKey([*self.get_asset_key(pipeline).path, "landed", source])

    def get_landing_spec(self, pipeline: Pipeline, source: str) -> dg.AssetSpec:
        """Return the asset of a landed source. Its partitions are those that the pipeline declares."""
        declared = pipeline.declaration.sources[source]
        landed_from = declared.files or declared.stream
        assert landed_from is not None, f"{source} of {pipeline.name} is not landed"
        origin = f"The files of {landed_from.path}" if declared.files else f"The stream of {landed_from.format}"
        return dg.AssetSpec(
            self.get_source_key(pipeline, source),
            description=f"{origin}, as a Delta table.",
            kinds={"deltalake", landed_from.format},
            metadata={
                **({"folder": landed_from.path} if landed_from.path else {}),
                "format": landed_from.format,
                "columns": landed_from.schema_ddl,
            },
        )

    def get_project_source_key(self, project: str, source: DescribedSource) -> dg.AssetKey:
        """Return the key of what a project reads: the mapped one, that of the landing, or the parts of its name."""
        if source.name in self._source_assets:
            return self._source_assets[source.name]
        return dg.AssetKey([*self._key_prefix, project, "landed", source.name] if source.lands else source.key)

    def get_project_landing_spec(self, project: str, source: DescribedSource) -> dg.AssetSpec:
        """Return the asset of a source that a project lands."""
        description = f"{source.lands}, as a Delta table."
        return dg.AssetSpec(self.get_project_source_key(project, source), description=description, kinds={"deltalake"})

    def get_asset_spec(self, pipeline: Pipeline | DescribedDataset) -> dg.AssetSpec:
        """Return the asset of a dataset. Readers follow a changed key."""
        if isinstance(pipeline, DescribedDataset):
            return self._specify(pipeline)
        declared = pipeline.declaration
        return dg.AssetSpec(
            self.get_asset_key(pipeline),
            deps=self._find_deps(pipeline),
            description=declared.description or KEPT_CURRENT,
            group_name=declared.group,
            owners=declared.owners,
            tags=dict.fromkeys(declared.tags, ""),
            kinds={"deltalake", "spark"},
            code_version=descriptions.digest(pipeline),
            metadata=self.get_metadata(pipeline),
        )

    def _specify(self, dataset: DescribedDataset) -> dg.AssetSpec:
        """Return the asset of a dataset of a project, without dependencies, which its step adds."""
        return dg.AssetSpec(
            self.get_asset_key(dataset),
            description=dataset.description or KEPT_CURRENT,
            group_name=dataset.group,
            owners=dataset.owners,
            tags={tag: "" for tag in dataset.tags if TAG.match(tag)},
            kinds={"deltalake", "spark"},
            code_version=sha256(dataset.query.encode()).hexdigest()[:16] if dataset.query else None,
            metadata=self.get_metadata(dataset),
        )

    def get_partition_mapping(self, pipeline: Pipeline | DescribedDataset, source: str) -> dg.PartitionMapping | None:
        """Return which partitions of a source's asset the dataset reads; None: Dagster's rule, which is all of them."""
        return None

    def _find_deps(self, pipeline: Pipeline) -> list[dg.AssetDep]:
        mappings: dict[dg.AssetKey, dg.PartitionMapping | None] = {}
        for source in pipeline.declaration.sources:
            key = self.get_source_key(pipeline, source)
            mappings[key] = mappings.get(key) or self.get_partition_mapping(pipeline, source)
        return [dg.AssetDep(key, partition_mapping=mappings[key]) for key in sorted(mappings)]

    def get_asset_check_spec(
        self, pipeline: Pipeline | DescribedDataset, check: dg.AssetCheckSpec
    ) -> dg.AssetCheckSpec | None:
        """Return a check of a dataset, `equals_batch` or `sources_kept`, as your project wants it; None: without it.

        return dg.AssetCheckSpec(check.name, asset=check.asset_key, blocking=False)
        """
        return check

    def get_metadata(self, pipeline: Pipeline | DescribedDataset) -> Mapping[str, object]:
        """Return the metadata of a dataset that is known before it is refreshed."""
        if isinstance(pipeline, DescribedDataset):
            return _describe(pipeline)
        named = {"dagster/table_name": pipeline.declaration.publish_as} if pipeline.declaration.publish_as else {}
        return {
            "query": dg.MetadataValue.md(f"```{pipeline.query.language}\n{pipeline.query.text}\n```"),
            "dagster/storage_kind": "deltalake",
            **named,
            **_code_references(pipeline),
        }


def find_lander(pipeline: Pipeline, source: str) -> tuple[Pipeline, str] | None:
    """Return the pipeline of the same folder, and its source, whose landed table is a Delta source; None if none is."""
    path = PurePosixPath(pipeline.declaration.sources[source].delta or "")
    if not pipeline.in_folder or len(path.parts) < 3 or path.parts[-2] != "sources":
        return None
    try:
        lander = catalogue.load(path.parts[-3], pipeline.folder.parent)
    except DeclarationError:
        return None
    is_landed = path.name in lander.landed and path == PurePosixPath(lander.warehouse, "sources", path.name)
    return (lander, path.name) if is_landed else None


def _describe(dataset: DescribedDataset) -> Mapping[str, object]:
    """Return the metadata of a dataset of a project that is known before it is refreshed."""
    columns = [dg.TableColumn(name, type, description or None) for name, type, description in dataset.columns]
    schema = {"dagster/column_schema": dg.MetadataValue.table_schema(dg.TableSchema(columns))} if columns else {}
    query = {"query": dg.MetadataValue.md(f"```sql\n{dataset.query}\n```")} if dataset.query else {}
    return {
        **query,
        **schema,
        "dagster/storage_kind": "deltalake",
        **_reference(Path(dataset.folder, dataset.file), dataset.line, dataset.name),
    }


def _code_references(pipeline: Pipeline) -> Mapping[str, dg.MetadataValue]:
    """Return the file of a query, and the line of a function; nothing for a text."""
    query = pipeline.query
    if not query.path.is_file():
        return {}
    function = inspect.unwrap(query.given) if callable(query.given) else None
    line = function.__code__.co_firstlineno if inspect.isfunction(function) else 1
    return _reference(query.path, line, pipeline.name)


def _reference(file: Path, line: int, name: str) -> Mapping[str, dg.MetadataValue]:
    """Return the line of a file that has the query of a dataset."""
    with warnings.catch_warnings():  # of the classes of references, which may change in a later release
        warnings.simplefilter("ignore", dg.BetaWarning)
        reference = dg.LocalFileCodeReference(file_path=str(file), line_number=line, label=f"query of {name}")
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}
