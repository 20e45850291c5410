"""Make a pipeline of a query and options that code passes, instead of a folder with a pipeline.yaml."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltafold.pipelines import queries
from deltafold.pipelines.declaration import parsing
from deltafold.pipelines.declaration.declaration import ProgramPart
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.pipelines.declaration.values import NAME_RULE, PIPELINE_NAME
from deltafold.pipelines.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from deltafold.language.query_language import LanguageQuery

    Query = str | Path | LanguageQuery | Callable[..., DataFrame]


def declare_pipeline(
    name: str, query: Query, options: Mapping[str, Any], folder: Path, below: Mapping[str, Pipeline]
) -> Pipeline:
    """Return the pipeline of a query; raises DeclarationError as for a pipeline.yaml with these options.

    query: SQL, the path of a file that ends in .sql, .mrql or .py, a function, or a program of MRQL;
    options: the keys and values of pipeline.yaml; folder: the one that relative paths start at; below: the pipelines
    whose views it reads, by source.
    """
    if not PIPELINE_NAME.match(name):
        raise DeclarationError(f"maintained view `{name}`: invalid name. {NAME_RULE}.")
    where = f"maintained view `{name}`"
    present = {key: value for key, value in options.items() if value is not None}
    declaration = parsing.check_declaration(where, present, folder, os.environ)
    if not isinstance(query, str | Path) and not callable(query) and getattr(query, "text", None) is None:
        raise DeclarationError(
            f"{where}: query: {type(query).__name__} is not a query. Pass SQL, the path of a file, a function, or a "
            "program of MRQL."
        )
    query_file = _find_query(query, tuple(declaration.sources), folder)
    return Pipeline(
        name=name,
        folder=folder / "pipelines" / name,
        declaration=declaration,
        query=query_file,
        below=below,
        in_folder=False,
    )


def _find_query(query: Query, sources: tuple[str, ...], folder: Path) -> queries.QueryFile:
    if isinstance(query, Path):
        return queries.read(folder / query, sources)
    if isinstance(query, str):
        return queries.QueryFile(folder / "query.sql", query, ProgramPart())
    if callable(query):
        return queries.QueryFile(_file_of(query, folder), _source_of(query), ProgramPart(), query)
    return queries.QueryFile((query.folder or folder) / query.file, query.text, ProgramPart(), query)


def _file_of(function: Callable[..., Any], folder: Path) -> Path:
    """Return the file that defines a function; one that does not exist where it was typed into a prompt."""
    file = inspect.getsourcefile(inspect.unwrap(function))
    return Path(file) if file and file.endswith(".py") else folder / "query.py"


def _source_of(function: Callable[..., Any]) -> str:
    """Return the text of a function, or its name where it has none."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return getattr(function, "__qualname__", repr(function))
