"""Find the declared pipelines of a folder, open their views, and do or describe the work on them.

A pipeline is a folder with a pipeline.yaml and one query (`queries`). Loading reads and checks text only: it starts no
Spark, imports no pyspark and runs no query.py.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltafold.algebra.errors import DeltafoldError
from deltafold.algebra.local_path import local_path
from deltafold.algebra.results.address import is_same_name
from deltafold.algebra.sources import declare_external
from deltafold.pipelines import descriptions, queries
from deltafold.pipelines.declaration import parsing
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.declaration.sources import Source
from deltafold.pipelines.declaration.values import NAME_RULE, PIPELINE_NAME, parse_size, substitute
from deltafold.pipelines.pipeline import DEFAULT_WAREHOUSE, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltafold.algebra.results.address import Address
    from deltafold.algebra.results.upkeep import Status
    from deltafold.algebra.sources import SourceDeclaration
    from deltafold.api import Landing, Report, View, Warehouse
    from deltafold.pipelines.folder_project import DeclaredProject
    from deltafold.spark.doctor import Finding

    Opened = dict[str, tuple[Warehouse, View]]

FOLDER_VARIABLE = "DELTAFOLD_PIPELINES"
DEFAULT_FOLDER = "pipelines"
DECLARATION_FILE = "pipeline.yaml"
_OF_LANDED = {"path", "format", "options", "malformed", "quarantine_limit"}


def pipelines_folder() -> Path:
    """Return the folder of pipelines: DELTAFOLD_PIPELINES (set by --pipelines), else ./pipelines, which may not exist.

    Raises DeclarationError if DELTAFOLD_PIPELINES is not a folder.
    """
    named = _named_folder()
    what = f"--pipelines or {FOLDER_VARIABLE}"
    if named and named.is_file():
        raise DeclarationError(f"{what}: {named} is a file, not a folder of pipelines. Name a folder.")
    if named and not named.is_dir():
        raise DeclarationError(
            f"{what}: there is no folder {named}. Create it (`deltafold new` does), or name another."
        )
    return named or Path.cwd() / DEFAULT_FOLDER


def home_of_new() -> Path:
    """Return the folder for a new pipeline: DELTAFOLD_PIPELINES, else ./pipelines.

    Raises DeclarationError if the second is a Python package without pipelines, as many projects have one.
    """
    if named := _named_folder():
        return named
    folder = Path.cwd() / DEFAULT_FOLDER
    if is_package(folder):
        raise DeclarationError(
            f"{folder}: it is a Python package, not a folder of pipelines. Name another folder: "
            f"deltafold --pipelines DIR new, or set {FOLDER_VARIABLE}."
        )
    return folder


def is_package(folder: Path) -> bool:
    """Return whether a folder is a Python package, with or without an `__init__.py`, and has no pipelines."""
    return any(folder.glob("*.py")) and not names(folder)


def _named_folder() -> Path | None:
    named = os.environ.get(FOLDER_VARIABLE)
    return local_path(FOLDER_VARIABLE, named, DeclarationError) if named else None


def names(folder: Path | None = None) -> tuple[str, ...]:
    """Return the names of all declared pipelines, valid or not, in alphabetical order."""
    folder = folder or pipelines_folder()
    return tuple(sorted(path.parent.name for path in folder.glob(f"*/{DECLARATION_FILE}")))


def load(name: str, folder: Path | None = None) -> Pipeline:
    """Return the pipeline of this name. Raises DeclarationError if it does not exist or is not valid."""
    return _Loader.of(folder).load(name)


def load_all(folder: Path | None = None) -> tuple[Pipeline, ...]:
    """Return all pipelines of a folder. Raises the DeclarationError of the first invalid one."""
    loader = _Loader.of(folder)
    return tuple(map(loader.load, loader.names))


def explain_none(folder: Path) -> str:
    """Return the message for a folder without pipelines."""
    return f"{folder}: there are no pipelines. To get one, {_describe_new(folder)}."


def _describe_new(folder: Path) -> str:
    return f"run deltafold --pipelines {shlex.quote(str(folder))} new NAME"


def survey_pipelines(folder: Path | None = None) -> dict[str, Pipeline | DeclarationError]:
    """Return all pipelines of a folder by name; for an invalid one its error."""
    loader = _Loader.of(folder)
    pipelines: dict[str, Pipeline | DeclarationError] = {}
    for name in loader.names:
        try:
            pipelines[name] = loader.load(name)
        except DeclarationError as error:
            pipelines[name] = error
    return pipelines


@dataclass(frozen=True)
class _Loader:
    """Loads the pipelines of one folder, each once, also if several others read its view."""

    folder: Path
    names: tuple[str, ...]
    loaded: dict[str, Pipeline | DeclarationError] = field(default_factory=dict[str, "Pipeline | DeclarationError"])

    @classmethod
    def of(cls, folder: Path | None) -> _Loader:
        """Return the loader of a folder, or of `pipelines_folder`, which may not exist."""
        if folder is not None and not folder.is_dir():
            raise DeclarationError(f"{folder}: there is no such folder. Correct the path, or {_describe_new(folder)}.")
        folder = (folder or pipelines_folder()).absolute()
        return cls(folder, names(folder))

    def load(self, name: str, above: tuple[str, ...] = ()) -> Pipeline:
        """Load a pipeline and those below it; above: its readers, from the one that was asked for."""
        if name not in self.loaded:
            try:
                self.loaded[name] = self._read_pipeline(name, above)
            except DeclarationError as error:
                self.loaded[name] = error
        pipeline = self.loaded[name]
        if isinstance(pipeline, DeclarationError):
            raise pipeline
        return pipeline

    def _read_pipeline(self, name: str, above: tuple[str, ...]) -> Pipeline:
        if not PIPELINE_NAME.match(name):
            raise DeclarationError(f"pipeline `{name}`: invalid name. {NAME_RULE}.")
        home = self.folder / name
        if (home / DECLARATION_FILE).is_dir():
            raise DeclarationError(f"{home / DECLARATION_FILE}: it is a folder. Put a file with the declaration there.")
        if not (home / DECLARATION_FILE).is_file():
            new = f"It has no pipelines: run deltafold new {name}, or give another folder by --pipelines."
            near = parsing.suggest_nearest(name, self.names) if self.names else new
            raise DeclarationError(f"pipeline `{name}`: not found in {self.folder}. {near}")
        declaration = parsing.read_declaration(home / DECLARATION_FILE, os.environ)
        if declaration.datasets is not None:
            raise DeclarationError(
                f"pipeline `{name}`: it has datasets. Name one, {name}/DATASET, for show, explain, verify and history, "
                f"or refresh all: deltafold run {name}."
            )
        below = {source: part.view for source, part in declaration.sources.items() if part.view}
        for source, view in below.items():
            self._check_below(f"{home / DECLARATION_FILE}: sources.{source}.view", view, (*above, name))
        if declaration.publish_as:
            _check_sql_name_once(home, declaration.publish_as)
        query = queries.find(home, tuple(declaration.sources), declaration)
        loaded = {source: self.load(view, (*above, name)) for source, view in below.items()}
        return Pipeline(name=name, folder=home, declaration=declaration, query=query, below=loaded)

    def _check_below(self, where: str, view: str, above: tuple[str, ...]) -> None:
        """Raise DeclarationError for a missing pipeline or a cycle; above: its readers, the last of them itself."""
        if view in above:
            cycle = " → ".join([*above[above.index(view) :], view])
            raise DeclarationError(f"{where}: the pipelines read each other's views in a cycle ({cycle}). Remove one.")
        if view not in self.names:
            others = [other for other in self.names if other != above[-1]]
            near = parsing.suggest_nearest(view, others)
            raise DeclarationError(f"{where}: no pipeline `{view}` in {self.folder}. {near}")


def _check_sql_name_once(home: Path, publish_as: str) -> None:
    """Raise DeclarationError for a `publish_as` that another pipeline of the folder has too."""
    for other in sorted(home.parent.glob(f"*/{DECLARATION_FILE}")):
        name = parsing.declares(other, "publish_as")
        if other.parent != home and isinstance(name, str) and is_same_name(name, publish_as):
            raise DeclarationError(
                f"{home / DECLARATION_FILE}: publish_as: pipeline `{other.parent.name}` is published as `{name}` too. "
                "Choose another name for one of them."
            )


def start_spark(pipeline: Pipeline, *, brief: bool = False) -> SparkSession:
    """Return the Spark session that a pipeline declares; brief: of a process that will end after little work."""
    from deltafold.spark import session

    part = pipeline.declaration.spark
    asked = part.model_dump(include={"master", "memory", "warm"}, exclude_none=True)
    return session.start(f"deltafold {pipeline.name}", settings=part.settings, brief=brief, **asked)


def examine_setup(pipeline: Pipeline | None) -> tuple[Finding, ...]:
    """Return the doctor's findings, for a pipeline's warehouse and Spark or for the default ones.

    A warehouse in a store is tried by Spark if all else is right.
    """
    from deltafold.spark import doctor

    if pipeline is None:
        return doctor.examine(pipelines_folder().parent / DEFAULT_WAREHOUSE)
    part = pipeline.declaration.spark
    asked = part.model_dump(include={"memory"}, exclude_none=True)
    sources = pipeline.declaration.sources.items()
    streams = {name: source.stream.path or source.stream.format for name, source in sources if source.stream}
    findings = doctor.examine(pipeline.warehouse, settings=part.settings, streams=streams, **asked)
    if pipeline.is_remote and all(finding.ok for finding in findings):
        return (*findings, _try_warehouse(pipeline))
    return findings


def _try_warehouse(pipeline: Pipeline) -> Finding:
    """Return the doctor's finding about a warehouse in a store: Spark reaches it, and it admits one of two writers."""
    from deltafold.api import Warehouse
    from deltafold.spark.doctor import Finding

    try:
        Warehouse(start_spark(pipeline, brief=True), pipeline.warehouse)
    except DeltafoldError as error:
        return Finding(name="store", ok=False, sentence=str(error))
    sentence = f"Spark reaches {pipeline.warehouse}, and of two writers of one object the second was refused."
    return Finding.success("store", sentence)


def declare(source: Source) -> SourceDeclaration:
    """Return a declared source, other than a view, for `Warehouse.source`."""
    from deltafold.api import Delta, Expire, Files, ForeignKey, Stream

    keys: Any = {
        "primary_key": source.primary_key,
        "foreign_keys": tuple(ForeignKey(key.columns, key.source) for key in source.foreign_keys),
    }
    if source.external is not None:
        table = declare_external(source.external.format, _fill("table", source.external.options))
        return replace(table, invariant=source.invariant, **keys)
    keys["append_only"] = source.append_only
    if source.stream is not None:
        stream: Any = source.stream.model_dump(include={*_OF_LANDED, "key"})
        stream["options"] = _fill("stream", source.stream.options)
        return Stream(**stream, schema=source.stream.schema_ddl, **keys)
    if source.files is not None:
        files: Any = source.files.model_dump(include={*_OF_LANDED, "partition_by"})
        expire = source.files.expire
        files |= {"schema": source.files.schema_ddl, "invariant": source.invariant}
        return Files(**files, expire=expire and Expire(expire.column, expire.after), **keys)
    return Delta(source.delta, table=source.table, invariant=source.invariant, **keys)


def _fill(kind: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a source with their variables; raises DeclarationError for one that is not set."""
    filled = dict[str, str]()
    for name, value in options.items():
        try:
            filled[name] = substitute(value, os.environ)
        except ValueError as error:
            raise DeclarationError(f"the option `{name}` of a {kind}: {error}.") from None
    return filled


def open(pipeline: Pipeline, spark: SparkSession, opened: Opened | None = None) -> tuple[Warehouse, View]:
    """Return the pipeline's warehouse with all its sources, and its view. Raises what the API raises (DeltafoldError).

    opened: pipelines that are open in this Spark already, by name; this one and those below it are added. Each is
    compiled once, also if several pipelines read it.
    """
    from deltafold.api import Warehouse

    opened = {} if opened is None else opened
    if pipeline.name not in opened:
        warehouse = Warehouse(spark, pipeline.warehouse)
        for name, source in pipeline.declaration.sources.items():
            below = pipeline.below.get(name)
            warehouse.source(name, open(below, spark, opened)[1] if below else declare(source))
        for name, monoid in pipeline.declaration.monoids.items():
            warehouse.monoid(name, **monoid.model_dump())
        declared = {"policy", "publish", "publish_as", "on_change", "on_lost", "table_properties", "cluster_by"}
        options: Any = {
            **pipeline.declaration.model_dump(include=declared),
            "comment": pipeline.declaration.description,
            "origin": pipeline.origin,
        }
        opened[pipeline.name] = warehouse, warehouse.view(pipeline.name, queries.runnable(pipeline.query), **options)
    return opened[pipeline.name]


def address(pipeline: Pipeline) -> Address:
    """Return the current address of the answer; starts Spark only for a warehouse at a URI, which Spark has to read.

    Raises StateError before the first refresh.
    """
    from deltafold.lake.remote.remote_path import place_of
    from deltafold.store.answer_pointer import find_address

    if pipeline.is_remote:
        start_spark(pipeline, brief=True)
    folder = place_of(pipeline.warehouse) / "views" / pipeline.name
    return find_address(folder, pipeline.name, pipeline.declaration.publish_as)


def land(pipeline: Pipeline, warehouse: Warehouse, partitions: Sequence[str] = ()) -> tuple[Landing, ...]:
    """Land the input files or the stream of every source; returns one landing per source.

    partitions: land just these, even if they look unchanged; by default every partition whose files changed.
    """
    chosen = check_partitions(pipeline, partitions)
    return tuple(
        warehouse.land(name, chosen if chosen and name in pipeline.partitioned else None) for name in pipeline.landed
    )


def check_partitions(pipeline: Pipeline, partitions: Sequence[str]) -> list[str]:
    """Return partitions as the pipeline spells them; raises DeclarationError for one that it cannot have."""
    return [pipeline.check_partition(value) for value in partitions]


def replay(
    pipeline: Pipeline, warehouse: Warehouse, source: str | None = None, *, allow_loss: bool = False
) -> tuple[Landing, ...]:
    """Land quarantined rows again, of one source or of all of files, by the current schema; a stream only if named.

    allow_loss: a stream that has fewer records than were landed, too.
    """
    names = sources_to_replay(pipeline, source)
    return tuple(warehouse.replay(name, allow_loss=allow_loss and bool(source)) for name in names)


def sources_to_replay(pipeline: Pipeline, source: str | None) -> tuple[str, ...]:
    """Return the named source, or all that are landed from files; raises DeclarationError if there is none."""
    if source:
        return (require_landed(pipeline, source),)
    if pipeline.streams and len(pipeline.streams) == len(pipeline.landed):
        raise DeclarationError(
            f"{pipeline.name}: a replay lands a stream from its beginning, so name it: "
            f"--source {' or '.join(pipeline.streams)}."
        )
    return tuple(name for name in pipeline.landed if name not in pipeline.streams)


def require_landed(pipeline: Pipeline, source: str) -> str:
    """Return the source if it is landed. Raises DeclarationError otherwise."""
    if source not in pipeline.landed:
        near = parsing.suggest_nearest(source, pipeline.landed)
        raise DeclarationError(f"pipeline `{pipeline.name}`: it lands no source `{source}`. {near}")
    return source


def refresh(
    pipeline: Pipeline,
    view: View,
    progress: Callable[[str], None],
    *,
    rebuild: bool = False,
    chunk: str | None = None,
) -> Report:
    """Refresh or rebuild the view, in chunks of the given or declared size, if any; store its description."""
    asked = chunk or pipeline.declaration.chunk
    work = view.rebuild if rebuild else view.refresh
    report = work(progress=progress, chunk=None if asked is None else parse_size(asked))
    descriptions.save_descriptions(pipeline, view, progress)
    return report


def land_below(pipeline: Pipeline, spark: SparkSession) -> dict[str, tuple[Landing, ...]]:
    """Land input files for every pipeline below, the lowest first; returns the landings by name."""
    opened: Opened = {}
    return {below.name: land(below, open(below, spark, opened)[0]) for below in pipeline.chain}


def _pipeline_state(pipeline: Pipeline, spark: SparkSession, opened: Opened | None = None) -> dict[str, Any]:
    """Return the state of a pipeline as plain data: View.status, and a summary in `state`.

    opened: as of `open`.
    state: never refreshed, interrupted (an epoch is unfinished), behind (its sources have changed), up to date, or
    failing (the table of a source cannot be found: see `problem`).
    """
    warehouse, view = open(pipeline, spark, opened)
    # the quarantine also of landed sources that the query does not read
    return describe_status(replace(view.status(), quarantined=warehouse.quarantined()))


def describe_status(status: Status) -> dict[str, Any]:
    """Return a status as plain data, with the summary of `_pipeline_state`."""
    word = "up to date" if status.current else "behind"
    if status.unfinished is not None:
        word = "interrupted"
    elif status.epoch is None:
        return {"state": "never refreshed", "quarantined": status.quarantined}
    sizes = {"state": asdict(status.state), "view": None if status.answer is None else asdict(status.answer)}
    row = {**asdict(status), "state": word, "sizes": sizes}
    if status.problems:
        row |= {"state": "failing", "problem": "; ".join(status.problems.values())}
    return row


def status_row(name: str, pipeline: Pipeline | DeclarationError, opened: Opened | None = None) -> dict[str, Any]:
    """Return the state of a pipeline with its name; the problem for an invalid or failing one.

    opened: as of `open`, of one Spark for all pipelines.
    """
    if isinstance(pipeline, Exception):
        return {"name": name, "state": "invalid declaration", "problem": str(pipeline)}
    try:
        return {"name": name} | _pipeline_state(pipeline, start_spark(pipeline, brief=True), opened)
    except DeltafoldError as error:
        return {"name": name, "state": "failing", "problem": str(error)}


def declaration_row(name: str, pipeline: Pipeline | DeclaredProject | DeclarationError) -> dict[str, Any]:
    """Return a pipeline's declaration as plain data."""
    if isinstance(pipeline, Exception):
        return {"name": name, "problem": str(pipeline)}
    return {"name": name, "folder": str(pipeline.folder), **pipeline.declaration.model_dump(mode="json", by_alias=True)}
