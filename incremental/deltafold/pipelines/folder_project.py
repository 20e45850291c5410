"""Load a folder of SQL files as a project: a pipeline.yaml whose `datasets` names them.

    sources: {orders: {delta: /lake/orders}}
    datasets: datasets/*.sql

Each file is a dataset, named as the file. Its query reads the sources and the other datasets by name, nothing else. Its
options are in the file, `-- deltafold: policy=auto tags=nightly,core`, or in pipeline.yaml:

    datasets:
      files: datasets/*.sql
      options:
        daily: {policy: auto, publish_as: shop.daily}
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from deltafold.pipelines.catalogue import DECLARATION_FILE, declare
from deltafold.pipelines.declaration import parsing
from deltafold.pipelines.declaration.declaration import DatasetPart, DatasetsPart, Declaration
from deltafold.pipelines.declaration.parsing import DeclarationError, suggest_nearest
from deltafold.pipelines.declaration.values import NAME_RULE, PIPELINE_NAME
from deltafold.pipelines.described_project import (
    DescribedDataset,
    DescribedSource,
    ProjectDescription,
    sort_datasets,
)
from deltafold.pipelines.mentioned_tables import find_tables
from deltafold.pipelines.pipeline import DEFAULT_WAREHOUSE
from deltafold.pipelines.project import Dataset, Origin, Project, RefreshPolicy, refuse_datasets

if TYPE_CHECKING:
    from deltafold.pipelines.declaration.sources import Source

POLICIES: Mapping[str, RefreshPolicy] = {"incremental": "incremental_strict", "auto": "auto", "definition": "full"}
_COMMENT = re.compile(r"^--\s*deltafold:(.*)$", re.MULTILINE)


def is_project(folder: Path) -> bool:
    """Return whether a pipeline.yaml declares datasets."""
    return parsing.declares(folder / DECLARATION_FILE, "datasets") is not None


@dataclass(frozen=True, kw_only=True)
class DeclaredProject:
    """A pipeline with datasets as its pipeline.yaml declares it; datasets: the files of these."""

    folder: Path
    declaration: Declaration
    datasets: tuple[Path, ...]


def survey_projects(folder: Path, names: Iterable[str]) -> dict[str, DeclaredProject | DeclarationError]:
    """Return the pipelines with datasets among these of a folder; for an invalid one its error. Starts no Spark."""
    found = dict[str, DeclaredProject | DeclarationError]()
    for name in filter(lambda name: is_project(folder / name), names):
        try:
            declaration = parsing.read_declaration(folder / name / DECLARATION_FILE, os.environ)
            files = _find_files(folder / name, declaration.datasets or DatasetsPart(files=""))
            found[name] = DeclaredProject(folder=folder / name, declaration=declaration, datasets=tuple(files))
        except DeclarationError as error:
            found[name] = error
    return found


def load_project(folder: Path) -> Project:
    """Return the project of a pipeline's folder; starts no Spark. Raises DeclarationError."""
    path = folder / DECLARATION_FILE
    declaration = parsing.read_declaration(path, os.environ)
    if declaration.datasets is None:
        raise DeclarationError(f"{path}: it declares no `datasets`. Add `datasets: datasets/*.sql`.")
    datasets, refusals = _read_datasets(folder, path, declaration, declaration.datasets)
    return Project(
        name=folder.name,
        folder=folder,
        storage=_find_storage(folder, declaration),
        datasets=tuple(datasets),
        sources={name: declare(source) for name, source in declaration.sources.items()},
        settings=declaration.spark.settings,
        spark=declaration.spark.model_dump(include={"master", "memory", "warm"}, exclude_none=True),
        refusals=tuple(refusals),
    )


def find_storage(folder: Path) -> str:
    """Return the folder or URI of the states and answers of a project; starts no Spark. Raises DeclarationError."""
    return _find_storage(folder, parsing.read_declaration(folder / DECLARATION_FILE, os.environ))


def _find_storage(folder: Path, declaration: Declaration) -> str:
    root = declaration.warehouse or str(folder.parent.parent / DEFAULT_WAREHOUSE)
    return f"{root.rstrip('/')}/{folder.name}"


def _read_datasets(
    folder: Path, path: Path, declaration: Declaration, files_part: DatasetsPart
) -> tuple[list[Dataset], list[str]]:
    """Return the datasets of a folder, and what else is refused. Raises DeclarationError for a source of a view."""
    if view := next((name for name, source in declaration.sources.items() if source.view), None):
        raise DeclarationError(
            f"{path}: sources.{view}.view: datasets cannot read another pipeline's view. Move its query to them."
        )
    refusals = list[str]()
    files = _find_files(folder, files_part)
    for file in files:
        if not PIPELINE_NAME.match(file.stem):
            refusals.append(f"{file}: invalid name of a dataset. {NAME_RULE}.")
        elif file.stem in declaration.sources:
            refusals.append(f"{file}: there is a source `{file.stem}`, too. Rename one of them.")
    for name in files_part.options.keys() - {file.stem for file in files}:
        near = suggest_nearest(name, [file.stem for file in files])
        refusals.append(f"{path}: datasets.options.{name}: there is no such dataset. {near}")
    return [_read_dataset(file, declaration, files_part.options.get(file.stem)) for file in files], refusals


def describe_project(folder: Path) -> ProjectDescription:
    """Describe the datasets of a pipeline's folder; starts no Spark. Raises DeclarationError for all mistakes."""
    path = folder / DECLARATION_FILE
    declaration = parsing.read_declaration(path, os.environ)
    datasets, refusals = _read_datasets(folder, path, declaration, declaration.datasets or DatasetsPart(files=""))
    refusals += refuse_datasets(datasets)
    if refusals:
        raise DeclarationError("\n".join(refusals))
    names = {name.lower(): name for name in (*declaration.sources, *(dataset.name for dataset in datasets))}

    def describe(dataset: Dataset) -> DescribedDataset:
        text = str(dataset.query)
        mentioned = (names.get(parts[0].lower()) for parts in find_tables(text) if len(parts) == 1)
        return DescribedDataset(
            project=folder.name,
            name=dataset.name,
            relation=dataset.name,
            key=(folder.name, dataset.name),
            reads=tuple(name for name in mentioned if name is not None),
            file=dataset.origin.file.relative_to(folder).as_posix(),
            folder=str(folder),
            query=text,
            tags=dataset.tags,
            group=declaration.group,
            owners=declaration.owners,
        )

    return ProjectDescription(
        name=folder.name,
        datasets=sort_datasets(tuple(map(describe, datasets)), folder),
        sources={name: _describe_source(name, source) for name, source in declaration.sources.items()},
        share=declaration.check.sample,
        show_rows=declaration.show_rows_in_errors,
    )


def _describe_source(name: str, source: Source) -> DescribedSource:
    lands = f"The files of {source.files.path}" if source.files else ""
    lands = f"The stream of {source.stream.format}" if source.stream else lands
    table = (source.table or "").lower()
    return DescribedSource(name=name, key=(name,), delta=source.delta or "", table=table, lands=lands)


def _find_files(folder: Path, datasets: DatasetsPart) -> list[Path]:
    files = sorted(folder.glob(datasets.files))
    if not files:
        raise DeclarationError(f"{folder / datasets.files}: there is no such file. Write a query into one.")
    if query := next((file for file in sorted(folder.glob("query.*")) if file not in files), None):
        raise DeclarationError(f"{query}: the pipeline has `datasets`, too. Move the query to these, or remove them.")
    if (other := next((file for file in files if file.suffix != ".sql"), None)) is not None:
        raise DeclarationError(f"{other}: a dataset is a file of SQL. Name files that end in .sql.")
    return files


def _read_dataset(file: Path, declaration: Declaration, declared: DatasetPart | None) -> Dataset:
    """Return the dataset of a file, or one that is refused; declared: its options in pipeline.yaml."""
    options = {} if declared is None else declared.model_dump(exclude_unset=True)
    try:
        text = _read_query(file)
        part = DatasetPart.model_validate({**options, **_options_in(text, options)})
    except _RefusedLineError as error:
        return Dataset(name=file.stem, query="", origin=Origin(file=file, line=error.line), refusal=error.sentence)
    return Dataset(
        name=file.stem,
        query=text,
        origin=Origin(file=file, line=1),
        policy=POLICIES[part.policy or declaration.policy],
        publish_as=part.publish_as,
        tags=part.tags,
    )


class _RefusedLineError(Exception):
    """A line of a dataset's file has no meaning."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line, self.sentence = line, sentence


def _read_query(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _RefusedLineError(1, f"it cannot be read ({error}). Save it as UTF-8.") from None
    if not _COMMENT.sub("", text).strip():
        raise _RefusedLineError(1, "it is empty. Write the query there.")
    return text


def _options_in(text: str, others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options in the comments of a file; others: those in pipeline.yaml, which it may not repeat."""
    options = dict[str, Any]()
    for comment in _COMMENT.finditer(text):
        line = text.count("\n", 0, comment.start()) + 1
        for option in comment[1].split():
            key, is_assigned, value = option.partition("=")
            if not is_assigned:
                raise _RefusedLineError(line, f"`{option}` is not an option. Write key=value.")
            if key in options or key in others:
                raise _RefusedLineError(line, f"`{key}` is declared twice. Remove one of the two.")
            options[key] = value.split(",") if key == "tags" else value
        try:
            DatasetPart.model_validate(options)
        except ValidationError as error:
            raise _RefusedLineError(line, _sentence(error)) from None
    return options


def _sentence(error: ValidationError) -> str:
    mistake = error.errors()[0]
    key = str(mistake["loc"][0])
    if mistake["type"] == "extra_forbidden":
        return f"unknown option `{key}`. {suggest_nearest(key, DatasetPart.model_fields)}"
    return f"{key}: {mistake['msg']}. Correct it."
