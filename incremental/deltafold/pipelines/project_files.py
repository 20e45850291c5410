"""Find the files of a project, describe its datasets without Spark, and open it on one.

| project | description |
| --- | --- |
| a pipeline.yaml with `datasets` | of the texts of the queries |
| a dbt project | of target/manifest.json, which dbt writes |
| a Spark Declarative Pipelines project | written by `deltafold dry-run --describe`, since only Spark reads its files |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter, ValidationError

from deltafold.algebra.local_path import locate_folder
from deltafold.algebra.sqltext import table_name_parts
from deltafold.pipelines import dbt, folder_project
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.described_project import (
    DescribedDataset,
    DescribedSource,
    ProjectDescription,
    sort_datasets,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltafold.pipelines.graph import Parts, Relation
    from deltafold.pipelines.open_project import OpenProject
    from deltafold.pipelines.project import Dataset, StreamingTable

    StartSpark = Callable[[str, Mapping[str, str], Mapping[str, Any]], SparkSession]

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
DBT_MANIFEST = "target/manifest.json"
DESCRIPTION_FILE = "deltafold-datasets.json"
DESCRIBE = "Run `deltafold dry-run --describe` there"


@dataclass(frozen=True, kw_only=True)
class ProjectFiles:
    """Where a project is declared.

    path: the folder of a pipeline.yaml, or the file spark-pipeline.yml or manifest.json; tables: of a dbt project, see
    `Project`.
    """

    kind: Literal["datasets", "dbt", "spark"]
    path: Path
    tables: str | None = None

    @property
    def name(self) -> str:
        """The name of the folder of the project."""
        return {"datasets": self.path, "spark": self.path.parent, "dbt": self.path.parent.parent}[self.kind].name

    @property
    def warehouse(self) -> str:
        """The folder of states and answers; of dbt's and Spark's that of the project, which has its own."""
        if self.kind == "datasets":
            return f"{folder_project.find_storage(self.path)}/warehouse"  # beside the views of a pipeline of this name
        return str(self.path)

    def describe(self) -> ProjectDescription:
        """Describe the project; starts no Spark. Raises DeclarationError."""
        match self.kind:
            case "datasets":
                return folder_project.describe_project(self.path)
            case "dbt":
                return dbt.describe_project(self.path)
            case "spark":
                return _read_description(self.path)

    def open(self, start: StartSpark) -> OpenProject:
        """Load the project; start: returns a Spark for a name, settings and options. Raises DeclarationError."""
        from deltafold.pipelines.open_project import OpenProject

        if self.kind == "spark":
            from deltafold.pipelines import declarative

            spec = declarative.read_spec(self.path)
            spark = start(spec.name, spec.configuration, {})
            return OpenProject(declarative.load_project(self.path, spark, spec), spark)
        is_dbt = self.kind == "dbt"
        project = dbt.load_project(self.path, self.tables) if is_dbt else folder_project.load_project(self.path)
        return OpenProject(project, start(project.name, project.settings, project.spark))


def find_project(path: Path, tables: str | None = None) -> ProjectFiles | None:
    """Return the project at a path: a file that declares one, or a folder that has such a file; None for others."""
    path = path.absolute()
    tables = None if tables is None else locate_folder("tables", tables)  # another process opens the project
    if path.name in SPEC_NAMES:
        return ProjectFiles(kind="spark", path=path)
    if path.suffix == ".json":
        return ProjectFiles(kind="dbt", path=path, tables=tables)
    if (path / dbt.PROJECT_FILE).is_file():
        return ProjectFiles(kind="dbt", path=path / DBT_MANIFEST, tables=tables)
    if spec := next((path / name for name in SPEC_NAMES if (path / name).is_file()), None):
        return ProjectFiles(kind="spark", path=spec)
    return ProjectFiles(kind="datasets", path=path) if folder_project.is_project(path) else None


# the description of a Spark Declarative Pipelines project


def write_description(spec: Path, opened: OpenProject) -> Path:
    """Write the description of an opened project beside its specification, and return the file."""
    from deltafold.pipelines.declarative import read_spec

    patterns = tuple(library.include for library in read_spec(spec).libraries)
    described = _describe_opened(opened)
    path = spec.with_name(DESCRIPTION_FILE)
    stored = {"patterns": patterns, "digest": _digest(spec, patterns), "project": asdict(described)}
    path.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    return path


def _read_description(spec: Path) -> ProjectDescription:
    path = spec.with_name(DESCRIPTION_FILE)
    if not spec.is_file():
        raise DeclarationError(f"{spec}: there is no such file. Name a specification, such as {SPEC_NAMES[0]}.")
    if not path.is_file():
        raise DeclarationError(f"{spec}: its datasets are not known, since only Spark reads its files. {DESCRIBE}.")
    try:
        stored = json.loads(path.read_bytes())
        is_current = stored["digest"] == _digest(spec, tuple(stored["patterns"]))
        described = TypeAdapter(ProjectDescription).validate_python(stored["project"])
    except (ValueError, KeyError, TypeError, ValidationError):
        raise DeclarationError(f"{path}: another release wrote it, or something else. {DESCRIBE}.") from None
    if not is_current:
        raise DeclarationError(f"{path}: files of the project have changed since it was written. {DESCRIBE}.")
    datasets = (replace(dataset, folder=str(spec.parent)) for dataset in described.datasets)
    return replace(described, datasets=tuple(datasets))


def _digest(spec: Path, patterns: tuple[str, ...]) -> str:
    """Return a digest of the specification and of the files that its patterns name."""
    files = {spec, *(file for pattern in patterns for file in spec.parent.glob(pattern))}
    contents = {
        file.relative_to(spec.parent).as_posix(): sha256(file.read_bytes()).hexdigest()
        for file in files
        if file.is_file() and "__pycache__" not in file.parts
    }
    return sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def _describe_opened(opened: OpenProject) -> ProjectDescription:
    datasets, sources = list[DescribedDataset](), dict[str, DescribedSource]()
    for node in opened.reads.order:
        relations = opened.reads.reads[opened.graph.key(node)].values()
        found = [_describe_source(opened, relation) for relation in relations if relation.node is None]
        below = [relation.node.name for relation in relations if relation.node is not None]
        sources |= {source.name: source for source in found}
        datasets.append(_describe_node(opened, node, (*below, *(source.name for source in found))))
    ordered = sort_datasets(tuple(datasets), opened.project.folder)
    return ProjectDescription(name=opened.project.name, datasets=ordered, sources=sources)


def _describe_node(opened: OpenProject, node: Dataset | StreamingTable, reads: tuple[str, ...]) -> DescribedDataset:
    file, folder = node.origin.file.resolve(), opened.project.folder
    query = getattr(node, "query", "")
    columns = opened.reads.schemas[opened.graph.key(node)]
    return DescribedDataset(
        project=opened.project.name,
        name=node.name,
        relation=node.name,
        key=table_name_parts(node.name) or (node.name,),
        reads=reads,
        file=file.relative_to(folder).as_posix() if file.is_relative_to(folder) else str(file),
        line=node.origin.line,
        query=query if isinstance(query, str) else "",
        is_view=not opened.tables.is_written(node),
        description=node.options.comment,
        columns=tuple((column.name, column.dataType.simpleString(), "") for column in columns),
    )


def _describe_source(opened: OpenProject, relation: Relation) -> DescribedSource:
    """Describe a table that the project does not write, without the project's own catalog and database in its name."""
    table = name_relation(opened, relation)
    if relation.is_path:
        return DescribedSource(name=table, key=(Path(table).name,), delta=table)
    shown = table.removeprefix(f"{opened.graph.catalog.lower()}.").removeprefix(f"{opened.graph.database.lower()}.")
    return DescribedSource(name=shown, key=tuple(shown.split(".")), table=table)


def name_relation(opened: OpenProject, relation: Relation) -> str:
    """Return the name of a relation in a description: of a dataset, a declared source, or a table of the catalog."""
    project = opened.project
    if relation.node is not None:
        return relation.node.name
    if project.sources is not None:
        return relation.source
    if relation.is_path:
        path = relation.parts[-1]
        is_below = project.tables is not None and path.startswith(f"{project.tables.rstrip('/')}/")
        return ".".join(path.split("/")[-2:]).lower() if is_below else path
    return ".".join(relation.parts)


Lineage = Mapping[str, tuple[tuple[str, str], ...]]


def name_lineage(opened: OpenProject, key: Parts, lineage: Lineage) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return the lineage of columns with names as in a description, instead of those of the warehouse."""
    names = {relation.source: name_relation(opened, relation) for relation in opened.reads.reads[key].values()}
    return {
        column: tuple((names[source], origin) for source, origin in origins if source in names)
        for column, origins in lineage.items()
    }
