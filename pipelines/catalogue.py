"""Pipelines room: the declared pipelines of a folder. In: folders. Out: Pipelines, and on request their running View.

A pipeline is a folder with a pipeline.yaml and one query (`queries`). Loading reads and checks text only: it starts no
Spark, imports no pyspark and runs no query.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from incremental.algebra.address import is_same_name
from incremental.algebra.errors import DeltafoldError
from incremental.algebra.local_path import local_path
from pipelines import amounts, descriptions, queries, reading
from pipelines.declaration import NAME, NAME_RULE, Declaration, Source
from pipelines.reading import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from incremental.algebra.address import Address
    from incremental.api import Landing, Report, View, Warehouse
    from incremental.spark.doctor import Finding

FOLDER_VARIABLE = "DELTAFOLD_PIPELINES"
DECLARATION_FILE = "pipeline.yaml"
DEFAULT_WAREHOUSE = ".warehouse"


@dataclass(frozen=True)
class Pipeline:
    """A declared pipeline. warehouse is its own folder or URI, below the declared (or default) one.

    below: the pipelines whose views it reads, by source.
    """

    name: str
    folder: Path
    declaration: Declaration
    query: queries.Query
    below: Mapping[str, Pipeline] = field(default_factory=dict[str, "Pipeline"])

    @property
    def warehouse(self) -> str:
        """Where the state and the answer are kept: a folder or URI that no other pipeline uses."""
        root = self.declaration.warehouse or str(self.folder.parent.parent / DEFAULT_WAREHOUSE)
        return f"{root.rstrip('/')}/{self.name}"

    @property
    def chain(self) -> tuple[Pipeline, ...]:
        """The pipelines below it, at any depth, each once and before all that read it."""
        found = [each for below in self.below.values() for each in (*below.chain, below)]
        return tuple({each.name: each for each in found}.values())

    @property
    def landed(self) -> tuple[str, ...]:
        """The sources that are landed from dropped files."""
        return tuple(name for name, source in self.declaration.sources.items() if source.files)

    @property
    def partitioned(self) -> tuple[str, ...]:
        """The landed sources that are cut into partitions."""
        sources = self.declaration.sources.items()
        return tuple(name for name, source in sources if source.files and source.files.partition_by)

    def check_partition(self, value: str) -> str:
        """The value, unchanged, if it can be a partition of this pipeline; else DeclarationError."""
        if not self.partitioned:
            raise DeclarationError(f"{self.name} has no partitions: no source of it declares `partition_by`.")
        try:
            return self.declaration.cut.check(value)
        except ValueError as error:
            raise DeclarationError(f"{self.name}: {error}.") from None


def pipelines_folder() -> Path:
    """The folder of pipelines: DELTAFOLD_PIPELINES, else ./pipelines if it is there, else the ones that come along."""
    named = _named_folder()
    if named:
        return named
    here = Path.cwd() / "pipelines"
    return here if here.is_dir() else Path(__file__).parent


def home_of_new() -> Path:
    """The folder that a new pipeline goes into: DELTAFOLD_PIPELINES, else ./pipelines, there or not."""
    return _named_folder() or Path.cwd() / "pipelines"


def _named_folder() -> Path | None:
    named = os.environ.get(FOLDER_VARIABLE)
    return local_path(FOLDER_VARIABLE, named, DeclarationError) if named else None


def names(folder: Path | None = None) -> tuple[str, ...]:
    """The names of all declared pipelines, valid or not, in alphabetical order."""
    folder = folder or pipelines_folder()
    return tuple(sorted(path.parent.name for path in folder.glob(f"*/{DECLARATION_FILE}")))


def load(name: str, folder: Path | None = None) -> Pipeline:
    """The pipeline of this name. Raises DeclarationError if there is none or it is not declared well."""
    return _load(name, (folder or pipelines_folder()).absolute(), ())


def _load(name: str, folder: Path, above: tuple[str, ...]) -> Pipeline:
    """A pipeline and those below it; above: those that read it, from the one that was asked for."""
    if not NAME.match(name):
        raise DeclarationError(f"`{name}` cannot be a pipeline: {NAME_RULE}.")
    home = folder / name
    if not (home / DECLARATION_FILE).is_file():
        raise DeclarationError(f"There is no pipeline `{name}` in {folder}: {reading.nearest(name, names(folder))}")
    declaration = reading.read(home / DECLARATION_FILE, os.environ)
    below = {source: part.view for source, part in declaration.sources.items() if part.view}
    for source, view in below.items():
        place = f"{home / DECLARATION_FILE}: sources.{source}.view: "
        if view in (*above, name):
            cycle = " → ".join([*(*above, name)[(*above, name).index(view) :], view])
            raise DeclarationError(f"{place}the pipelines read each other's views in a cycle ({cycle}); remove one.")
        if view not in names(folder):
            others = [other for other in names(folder) if other != name]
            raise DeclarationError(f"{place}there is no pipeline `{view}` in {folder}; {reading.nearest(view, others)}")
    if declaration.publish_as:
        _check_published_once(home, declaration.publish_as)
    query = queries.find(home, tuple(declaration.sources))
    loaded = {source: _load(view, folder, (*above, name)) for source, view in below.items()}
    return Pipeline(name, home, declaration, query, loaded)


def _check_published_once(home: Path, publish_as: str) -> None:
    """Refuse a SQL view that another pipeline of the folder is published as, too."""
    for other in sorted(home.parent.glob(f"*/{DECLARATION_FILE}")):
        known = reading.declares(other, "publish_as")
        if other.parent != home and isinstance(known, str) and is_same_name(known, publish_as):
            raise DeclarationError(
                f"{home / DECLARATION_FILE}: publish_as: pipeline `{other.parent.name}` is published as `{known}` too; "
                "choose another name for one of them."
            )


def load_all(folder: Path | None = None) -> tuple[Pipeline, ...]:
    """All pipelines of a folder. Raises the DeclarationError of the first that is not declared well."""
    return tuple(load(name, folder) for name in names(folder))


def survey(folder: Path | None = None) -> dict[str, Pipeline | DeclarationError]:
    """All pipelines of a folder by name, and for one that is not declared well the error."""
    found: dict[str, Pipeline | DeclarationError] = {}
    for name in names(folder):
        try:
            found[name] = load(name, folder)
        except DeclarationError as error:
            found[name] = error
    return found


def start(pipeline: Pipeline) -> SparkSession:
    """The Spark session that a pipeline asks for."""
    from incremental.spark import session

    part = pipeline.declaration.spark
    asked = part.model_dump(include={"master", "memory"}, exclude_none=True)
    return session.start(f"deltafold {pipeline.name}", settings=part.settings, **asked)


def examine(pipeline: Pipeline | None) -> tuple[Finding, ...]:
    """What the doctor finds on this machine, for a pipeline's warehouse and Spark or for the default ones."""
    from incremental.spark import doctor

    if pipeline is None:
        return doctor.examine(pipelines_folder().parent / DEFAULT_WAREHOUSE)
    part = pipeline.declaration.spark
    asked = part.model_dump(include={"memory"}, exclude_none=True)
    return doctor.examine(pipeline.warehouse, settings=part.settings, **asked)


def open(pipeline: Pipeline, spark: SparkSession) -> tuple[Warehouse, View]:
    """The pipeline's warehouse with all its sources, and its view. Raises what the API raises (DeltafoldError)."""
    return _open(pipeline, spark, {})


def _open(pipeline: Pipeline, spark: SparkSession, opened: dict[str, tuple[Warehouse, View]]) -> tuple[Warehouse, View]:
    """A pipeline on top of those below it; opened: those that are open already, so that each is compiled once."""
    from incremental.api import Warehouse

    if pipeline.name not in opened:
        warehouse = Warehouse(spark, pipeline.warehouse)
        for name, source in pipeline.declaration.sources.items():
            below = pipeline.below.get(name)
            warehouse.source(name, _open(below, spark, opened)[1] if below else _declared(source))
        told, query = pipeline.declaration, queries.runnable(pipeline.query)
        options: Any = told.model_dump(include={"policy", "publish", "on_change", "publish_as"})
        view = warehouse.view(pipeline.name, query, **options)
        opened[pipeline.name] = warehouse, view
    return opened[pipeline.name]


def address(pipeline: Pipeline) -> Address:
    """Where the answer is now; starts no Spark. Raises StateError before the first refresh."""
    from incremental.refresh.publisher import addressed

    folder = Path(pipeline.warehouse) / "views" / pipeline.name
    return addressed(folder, pipeline.name, pipeline.declaration.publish_as)


def land(pipeline: Pipeline, warehouse: Warehouse, partitions: Sequence[str] = ()) -> tuple[Landing, ...]:
    """Lands the dropped files of every source, and says what changed.

    partitions: land just these, even if they look unchanged; by default every partition whose files changed.
    """
    chosen = [pipeline.check_partition(value) for value in partitions]
    return tuple(
        warehouse.land(name, chosen if chosen and name in pipeline.partitioned else None) for name in pipeline.landed
    )


def replay(pipeline: Pipeline, warehouse: Warehouse, source: str | None = None) -> tuple[Landing, ...]:
    """Lands again what has rows in quarantine, of one source or of all, by the schema that is declared now."""
    return tuple(warehouse.replay(name) for name in ([quarantining(pipeline, source)] if source else pipeline.landed))


def quarantining(pipeline: Pipeline, source: str) -> str:
    """The source, if it is landed from dropped files; else DeclarationError."""
    if source not in pipeline.landed:
        raise DeclarationError(
            f"{pipeline.name} lands no source `{source}`: {reading.nearest(source, pipeline.landed)}"
        )
    return source


def refresh(
    pipeline: Pipeline, view: View, progress: Callable[[str], None], rebuild: bool = False, chunk: str | None = None
) -> Report:
    """Refresh or rebuild the view, in parts of the given or the declared size, if there is one; write its plan down."""
    asked = chunk or pipeline.declaration.chunk
    most = None if asked is None else amounts.bytes_of(asked)
    report = (view.rebuild if rebuild else view.refresh)(progress=progress, chunk=most)
    descriptions.describe(pipeline, view, progress)
    return report


def land_below(pipeline: Pipeline, spark: SparkSession) -> dict[str, tuple[Landing, ...]]:
    """Lands what was dropped for every pipeline below, by its name, the lowest first."""
    return {below.name: land(below, open(below, spark)[0]) for below in pipeline.chain}


def state(pipeline: Pipeline, spark: SparkSession) -> dict[str, Any]:
    """Where a pipeline stands, as plain data: what View.status tells, and `state` in a word or two.

    state: never refreshed, interrupted (an epoch is unfinished), behind (its sources have moved on) or up to date.
    """
    _, view = open(pipeline, spark)
    status = view.status()
    word = "up to date" if status.current else "behind"
    if status.unfinished is not None:
        word = "interrupted"
    elif status.epoch is None:
        return {"state": "never refreshed", "quarantined": status.quarantined}
    sizes = {"state": asdict(status.state), "view": None if status.answer is None else asdict(status.answer)}
    return {**asdict(status), "state": word, "sizes": sizes}


def standing(name: str, pipeline: Pipeline | DeclarationError) -> dict[str, Any]:
    """Where a pipeline stands, with its name; of one that fails or is not declared well, the problem."""
    if isinstance(pipeline, Exception):
        return {"name": name, "state": "not declared well", "problem": str(pipeline)}
    try:
        return {"name": name} | state(pipeline, start(pipeline))
    except DeltafoldError as error:
        return {"name": name, "state": "failing", "problem": str(error)}


def facts(name: str, pipeline: Pipeline | DeclarationError) -> dict[str, Any]:
    """What a pipeline declares, as plain data."""
    if isinstance(pipeline, Exception):
        return {"name": name, "problem": str(pipeline)}
    return {"name": name, "folder": str(pipeline.folder), **pipeline.declaration.model_dump(mode="json", by_alias=True)}


def _declared(source: Source) -> Any:
    from incremental.api import Delta, Files, ForeignKey

    keys: Any = {
        "primary_key": source.primary_key,
        "foreign_keys": tuple(ForeignKey(key.columns, key.source) for key in source.foreign_keys),
        "append_only": source.append_only,
    }
    if source.files is None:
        return Delta(source.delta, table=source.table, invariant=source.invariant, **keys)
    files = source.files
    return Files(
        files.path,
        format=files.format,
        schema=files.schema_ddl,
        partition_by=files.partition_by,
        invariant=source.invariant,
        options=files.options,
        malformed=files.malformed,
        quarantine_limit=files.quarantine_limit,
        **keys,
    )
