"""Load a dbt project from what `dbt compile --full-refresh` writes into `target`: manifest.json and run_results.json.

| node | here |
| --- | --- |
| model materialized as `table`, `incremental` or `materialized_view` | a dataset |
| model materialized as `view` | a dataset that is not kept |
| model materialized as `ephemeral` | nothing: dbt has compiled it into its readers |
| source, seed, snapshot | a table of the catalog, which dbt and others write |
| test | nothing: `dbt test` reads the published answers; in Dagster, a check of the model |
| exposure, metric and others | nothing |
| model in Python, other materializations, a model that is not compiled | refused |

dbt's own filter of an incremental model is what a maintained view replaces, so it has to be compiled without that.
A selection names all of these nodes, as it does for dbt; only datasets are refreshed.
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, cast, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError

from deltafold.algebra.errors import DeltafoldWarning
from deltafold.algebra.local_path import locate_folder
from deltafold.algebra.results.formats import list_first
from deltafold.algebra.sqltext import quoted, table_name_parts
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.described_project import (
    DescribedDataset,
    DescribedSource,
    DescribedTest,
    ProjectDescription,
    sort_datasets,
)
from deltafold.pipelines.project import Dataset, Origin, Project, RefreshPolicy, TableOptions, refuse_datasets
from deltafold.pipelines.selection import Kind, Node

COMPILE = "Run dbt compile --full-refresh"
KEPT = frozenset({"table", "incremental", "materialized_view"})
VIEW, EPHEMERAL, INCREMENTAL = "view", "ephemeral", "incremental"
MODEL, TEST, TABLES = "model", "test", frozenset({"model", "seed", "snapshot"})
META, POLICY = "deltafold", "refresh_policy"
DAGSTER = "dagster"
"""The key of `meta` with what dagster-dbt reads: asset_key, group, owners."""
STORAGE = ".warehouse"
PROJECT_FILE = "dbt_project.yml"
FOLDERS = {kind: f"{kind}s" for kind in ("model", "seed", "snapshot", "test", "macro")} | {"analysis": "analyses"}
"""The folders that dbt reads by default; dbt_project.yml names others by KIND-paths."""
READ = "sha256"


class _Config(BaseModel, extra="allow"):
    """The configuration of a node; selections may ask for any of it."""

    materialized: str = VIEW
    meta: dict[str, Any] = {}
    pre_hook: list[Any] = Field(default=[], alias="pre-hook")
    post_hook: list[Any] = Field(default=[], alias="post-hook")
    schema_name: str | None = Field(default=None, alias="schema")
    group: str | None = None
    severity: str = "error"
    fail_calc: str = "count(*)"
    error_if: str = "!= 0"
    warn_if: str = "!= 0"
    limit: int | None = None


class _DependsOn(BaseModel):
    nodes: tuple[str, ...] = ()


class _Column(BaseModel):
    name: str
    data_type: str | None = None
    description: str = ""


class _Checksum(BaseModel):
    """The checksum of a file, after its text was stripped; of the kind READ if dbt has read all of it."""

    name: str = ""
    checksum: str = ""

    def fits(self, content: bytes) -> bool:
        return self.checksum in (sha256(each).hexdigest() for each in (content.strip(), content))


class _Macro(BaseModel):
    package_name: str = ""
    original_file_path: str = ""
    macro_sql: str = ""

    def is_in(self, content: bytes) -> bool:
        return self.macro_sql.strip().encode() in content


class _Disabled(BaseModel):
    original_file_path: str = ""


class _TestMetadata(BaseModel):
    """The generic test that a test is an instance of."""

    name: str = ""


class _Node(BaseModel):
    """A node of a manifest: of a model, all that is read of it; fqn: its package, folders and name."""

    unique_id: str
    resource_type: str
    name: str
    fqn: tuple[str, ...]
    language: str | None = None
    config: _Config = _Config()
    relation_name: str | None = None
    compiled_code: str | None = None
    original_file_path: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    depends_on: _DependsOn = _DependsOn()
    alias: str | None = None
    version: str | int | float | None = None
    columns: dict[str, _Column] = {}
    attached_node: str | None = None
    test_metadata: _TestMetadata | None = None
    checksum: _Checksum = _Checksum()

    @property
    def test(self) -> DescribedTest:
        """The node of a test."""
        return DescribedTest(
            id=self.unique_id,
            name=self.name,
            query=self.compiled_code or "",
            limit=self.config.limit,
            measure=self.config.fail_calc,
            error_if=self.config.error_if,
            warn_if=self.config.warn_if,
            severity=self.config.severity.lower(),
            description=self.description,
        )

    @property
    def key(self) -> tuple[str, ...]:
        """The asset key that dagster-dbt gives the node."""
        if (asked := _dagster_meta(self.config.meta).get("asset_key")) is not None:
            return _key_of(asked, self.unique_id)
        if self.version is not None:
            return (self.alias or self.name,)
        return (self.name,) if self.config.schema_name is None else (self.config.schema_name, self.name)

    @property
    def origin(self) -> Origin:
        return Origin(file=Path(self.original_file_path or self.name), line=1)

    @property
    def policy(self) -> object:
        options: object = self.config.meta.get(META, {})
        return cast("dict[str, Any]", options).get(POLICY, "auto") if isinstance(options, dict) else options

    @property
    def refusal(self) -> str:
        """Why the model cannot be a dataset; empty if it can."""
        if self.language not in (None, "sql"):
            return f"it is a model in {self.language}. Write it in SQL, or let dbt write it and read a source."
        if self.config.materialized not in {*KEPT, VIEW}:
            kind = self.config.materialized
            return f"the materialization {kind} is not supported. Use table, incremental or view."
        if not self.compiled_code or not self.relation_name:
            return f"it is not compiled. {COMPILE}."
        if self.policy not in get_args(RefreshPolicy):
            return f"unknown meta.{META}.{POLICY} {self.policy!r}. Use {', '.join(get_args(RefreshPolicy))}."
        return ""

    @property
    def dataset(self) -> Dataset:
        """The model as a dataset; one that is refused is not inlined into its readers."""
        refusal = self.refusal
        return Dataset(
            name=self.relation_name or quoted(self.name),
            query=self.compiled_code or "",
            origin=self.origin,
            kept=bool(refusal) or self.config.materialized in KEPT,
            policy="auto" if refusal else cast(RefreshPolicy, self.policy),
            options=TableOptions(comment=self.description),
            refusal=refusal,
        )

    @property
    def node(self) -> Node:
        """The node as a selection names it."""
        is_dataset = self.resource_type == MODEL and self.config.materialized in KEPT
        kinds: dict[str, Kind] = {MODEL: "dataset", TEST: "test"}
        return Node(
            id=self.unique_id,
            qualified=self.fqn,
            kind=kinds.get(self.resource_type, "other"),
            tags=self.tags,
            path=self.original_file_path,
            reads=self.depends_on.nodes,
            dataset=self.relation_name or "" if is_dataset else "",
            config=self.config.model_dump(by_alias=True, exclude_unset=True),
            resource_type=self.resource_type,
            package=self.fqn[0],
            generic_test=self.test_metadata.name if self.test_metadata else "",
        )


def _dagster_meta(meta: dict[str, Any]) -> dict[str, Any]:
    """Return what a node's `meta` has for Dagster."""
    asked: object = meta.get(DAGSTER)
    return cast("dict[str, Any]", asked) if isinstance(asked, dict) else {}


def _key_of(asked: object, id: str) -> tuple[str, ...]:
    """Return the parts of `meta.dagster.asset_key`. Raises DeclarationError."""
    parts = cast("list[object]", asked) if isinstance(asked, list) else []
    if not parts or not all(isinstance(part, str) and part for part in parts):
        raise DeclarationError(f"{id}: meta.{DAGSTER}.asset_key: {asked!r} is not a list of names. Write one.")
    return tuple(map(str, parts))


class _Source(BaseModel):
    unique_id: str
    package_name: str
    source_name: str
    name: str
    original_file_path: str = ""
    tags: tuple[str, ...] = ()
    relation_name: str | None = None
    description: str = ""
    meta: dict[str, Any] = {}
    config: _Config = _Config()

    @property
    def key(self) -> tuple[str, ...]:
        """The asset key that dagster-dbt gives the source."""
        asked = _dagster_meta(self.config.meta or self.meta).get("asset_key")
        return (self.source_name, self.name) if asked is None else _key_of(asked, self.unique_id)

    @property
    def node(self) -> Node:
        """The source as a selection names it."""
        return Node(
            id=self.unique_id,
            qualified=(self.package_name, self.source_name, self.name),
            kind="source",
            tags=self.tags,
            path=self.original_file_path,
            config=self.config.model_dump(by_alias=True, exclude_unset=True),
            resource_type="source",
            package=self.package_name,
        )


class _Owner(BaseModel):
    email: str | list[str] | None = None


class _Group(BaseModel):
    name: str
    owner: _Owner = _Owner()


class _Metadata(BaseModel):
    project_name: str | None = None


class _Manifest(BaseModel):
    metadata: _Metadata
    nodes: dict[str, _Node]
    sources: dict[str, _Source] = {}
    groups: dict[str, _Group] = {}
    macros: dict[str, _Macro] = {}
    disabled: dict[str, tuple[_Disabled, ...]] = {}

    @property
    def selectable(self) -> tuple[Node, ...]:
        nodes = [node.node for node in self.nodes.values() if node.resource_type in {*TABLES, TEST}]
        return *nodes, *(source.node for source in self.sources.values())


class _Arguments(BaseModel):
    full_refresh: bool | None = None


class _RunResults(BaseModel):
    args: _Arguments


def load_project(manifest: Path, tables: str | None = None) -> Project:
    """Return the project of a compiled manifest; starts nothing. Raises DeclarationError.

    States and answers are kept in `.warehouse` beside the folder of the manifest; tables: see `Project`.
    """
    content, folder = _read(manifest), manifest.resolve().parent.parent
    models = [node for node in content.nodes.values() if node.resource_type == MODEL]
    models = [model for model in models if model.config.materialized != EPHEMERAL]
    refusals = list[str]()
    incremental = [model.name for model in models if model.config.materialized == INCREMENTAL]
    if incremental and not _is_full_refresh(manifest):
        refusals.append(
            f"{manifest}: incremental models ({', '.join(incremental)}): nothing shows that they were compiled without "
            f"dbt's own filter. {COMPILE}."
        )
    if hooked := [model.name for model in models if model.config.pre_hook or model.config.post_hook]:
        warnings.warn(
            f"{manifest}: the hooks of {', '.join(hooked)} are not run. Run what they do after deltafold run.",
            DeltafoldWarning,
            stacklevel=2,
        )
    if changed := _find_changed(content, folder):
        warnings.warn(
            f"{manifest}: {list_first(changed)} changed since dbt wrote it, and what it has is maintained. {COMPILE}.",
            DeltafoldWarning,
            stacklevel=2,
        )
    return Project(
        name=content.metadata.project_name or folder.name,
        folder=folder,
        storage=str(folder / STORAGE),
        tables=None if tables is None else locate_folder("tables", tables),
        datasets=tuple(model.dataset for model in models),
        nodes=content.selectable,
        refusals=tuple(refusals),
    )


def describe_project(manifest: Path) -> ProjectDescription:
    """Describe the datasets of a compiled manifest, with the keys, groups and owners that dagster-dbt gives them.

    Starts no Spark. Raises DeclarationError for all that cannot be a dataset.
    """
    project, content = load_project(manifest), _read(manifest)
    if refusals := (*project.refusals, *refuse_datasets(project.datasets)):
        raise DeclarationError("\n".join(refusals))
    models = {id: node for id, node in content.nodes.items() if node.resource_type == MODEL}
    kept = {id for id, model in models.items() if model.config.materialized in KEPT}
    sources = dict(_describe_sources(content))
    names = {source.id: name for name, source in sources.items()}
    tests = [node for node in content.nodes.values() if node.resource_type == TEST and node.compiled_code]

    def is_of(test: _Node, model: str) -> bool:
        """Return whether a test is of a model: the one that it is attached to, or the only one that it reads."""
        return (test.attached_node or [*kept.intersection(test.depends_on.nodes)]) in (model, [model])

    def read(node: _Node) -> Iterator[str]:
        """Yield what a model reads, also by models that are inlined into it."""
        for id in node.depends_on.nodes:
            if id in kept:
                yield content.nodes[id].relation_name or ""
            elif id in names:
                yield names[id]
            elif id in content.nodes:
                yield from read(content.nodes[id])

    def describe(node: _Node) -> DescribedDataset:
        asked = _dagster_meta(node.config.meta)
        group = asked.get("group") or node.config.group
        return DescribedDataset(
            project=project.name,
            name=node.node.name,
            relation=node.relation_name or "",
            key=node.key,
            reads=tuple(dict.fromkeys(read(node))),
            file=node.original_file_path,
            folder=str(project.folder),
            id=node.unique_id,
            query=node.compiled_code or "",
            description=node.description,
            tags=node.tags,
            group=group,
            owners=tuple(asked.get("owners") or _find_owners(content, node.config.group)),
            columns=tuple((each.name, each.data_type or "?", each.description) for each in node.columns.values()),
            meta=node.config.meta,
            tests=tuple(test.test for test in tests if is_of(test, node.unique_id)),
        )

    datasets = tuple(describe(content.nodes[id]) for id in content.nodes if id in kept)
    return ProjectDescription(
        name=project.name,
        datasets=sort_datasets(datasets, manifest),
        sources=sources,
        nodes=project.nodes,
    )


def _find_changed(content: _Manifest, folder: Path) -> list[str]:
    """Return the files of the project's models, tests and macros that are others now, new or gone.

    None where only the manifest is kept. It has no text of YAML files and of variables.
    """
    project, own = folder / PROJECT_FILE, content.metadata.project_name
    if not project.is_file():
        return []
    checks = defaultdict[str, list[Callable[[bytes], bool]]](list)
    for node in content.nodes.values():
        if node.fqn[0] == own and node.resource_type in (MODEL, TEST) and node.checksum.name == READ:
            checks[node.original_file_path].append(node.checksum.fits)
    for macro in content.macros.values():
        if macro.package_name == own:
            checks[macro.original_file_path].append(macro.is_in)

    def is_same(file: str) -> bool:
        try:
            text = (folder / file).read_bytes()
        except OSError:
            return False
        return all(fits(text) for fits in checks[file])

    disabled = (node.original_file_path for nodes in content.disabled.values() for node in nodes)
    known = {*(node.original_file_path for node in content.nodes.values()), *disabled}
    added = () if (folder / ".dbtignore").exists() else _list_models(folder, project)
    return sorted([*(file for file in checks if not is_same(file)), *(file for file in added if file not in known)])


def _list_models(folder: Path, project: Path) -> Iterator[str]:
    """Yield the files of models in SQL, from the folder of their project."""
    for models in list_folders(project, ("model",)):
        yield from (file.relative_to(folder).as_posix() for file in (folder / models).rglob("*.sql"))


def list_folders(project: Path, kinds: Collection[str] = FOLDERS) -> Sequence[str]:
    """Return the folders that dbt reads for some kinds, of a dbt_project.yml; the usual ones if it names none.

    Raises:
        DeclarationError: it is no YAML.
    """
    try:
        declared: object = yaml.safe_load(project.read_bytes())
    except yaml.YAMLError as error:
        raise DeclarationError(f"{project}: it is no YAML: {error}. Correct it.") from None
    asked = cast("dict[str, Any]", declared) if isinstance(declared, dict) else {}
    return [folder for kind in kinds for folder in asked.get(f"{kind}-paths") or [FOLDERS[kind]]]


def _describe_sources(content: _Manifest) -> Iterator[tuple[str, DescribedSource]]:
    """Yield what no model writes: sources, as SOURCE.TABLE, seeds and snapshots, as their names.

    Of several packages that have the same name, only the project itself has it without its package before.
    """
    others = [node for node in content.nodes.values() if node.resource_type in TABLES - {MODEL}]
    named = [
        *((f"{source.source_name}.{source.name}", source.package_name, source) for source in content.sources.values()),
        *((node.name, node.fqn[0], node) for node in others),
    ]
    packages = Counter(name for name, _, _ in named)
    for short, package, each in named:
        is_short = packages[short] == 1 or package == content.metadata.project_name
        name = short if is_short else f"{package}.{short}"
        table = ".".join(table_name_parts(each.relation_name or "") or ()).lower()
        yield (
            name,
            DescribedSource(name=name, key=each.key, id=each.unique_id, table=table, description=each.description),
        )


def _find_owners(content: _Manifest, group: str | None) -> tuple[str, ...]:
    """Return the addresses of the owner of a group."""
    emails = [each.owner.email for each in content.groups.values() if each.name == group]
    return tuple(email for each in emails if each for email in ([each] if isinstance(each, str) else each))


def _read(manifest: Path) -> _Manifest:
    if not manifest.is_file():
        raise DeclarationError(f"{manifest}: there is no such file. {COMPILE}, and name target/manifest.json.")
    try:
        return _Manifest.model_validate_json(manifest.read_bytes())
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "the file"
        raise DeclarationError(
            f"{manifest}: it is not a manifest of dbt: {where}: {error.errors()[0]['msg']}. Name target/manifest.json."
        ) from error


def _is_full_refresh(manifest: Path) -> bool:
    """Return whether the run that wrote the manifest was asked to refresh incremental models in full."""
    try:
        results = _RunResults.model_validate_json(manifest.with_name("run_results.json").read_bytes())
    except (OSError, ValidationError):
        return False
    return results.args.full_refresh is True
