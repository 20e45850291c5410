"""Find and check the query of a pipeline, and load it on request.

query.sql is one Spark SQL query over the sources by name. query.py defines `query(source, ...)`, which takes DataFrames
and returns one. Other files are in languages of their own, such as query.mrql (language/query_language.py). Finding a
query only parses it; query.py is run when the view is opened, since it may import pyspark.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING

from deltafold.algebra.errors import QueryError
from deltafold.language.query_language import LanguageQuery, QueryLanguage, find_language, list_languages
from deltafold.pipelines.declaration.declaration import ProgramPart
from deltafold.pipelines.declaration.parsing import DeclarationError, suggest_nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PROGRAM_KEYS = tuple(ProgramPart.model_fields)
OF_SPARK = {".sql": "sql", ".py": "python"}


@dataclass(frozen=True)
class QueryFile:
    """The query's file and its text; program: the keys of pipeline.yaml for a query in a language of its own.

    given: the query itself, where Python code passed it; then path and text are where it is defined, if that is known.
    """

    path: Path
    text: str
    program: ProgramPart
    given: LanguageQuery | Callable[..., DataFrame] | None = field(default=None, compare=False, repr=False)

    @property
    def language(self) -> str:
        """Return sql, python, or the name of a language of its own."""
        own = _find_language(self.path)
        return OF_SPARK[self.path.suffix] if own is None else own.name

    @property
    def keys(self) -> frozenset[str]:
        """The keys of pipeline.yaml that are for this language alone."""
        own = _find_language(self.path)
        return frozenset() if own is None else own.keys

    @property
    def function(self) -> bool:
        """Return whether it is query.py."""
        return self.language == "python"


def find(home: Path, sources: Sequence[str], program: ProgramPart | None = None) -> QueryFile:
    """Return the one query in a pipeline's folder. Raises DeclarationError.

    sources: the declared sources, which the parameters of a function must be named after; program: what is declared
    of a query in MRQL.
    """
    paths = sorted((path for path in home.glob("query.*") if path.is_file() and is_query_file(path)), reverse=True)
    if not paths:
        raise DeclarationError(f"{home}: there is no query. Write {_name_any('query')}.")
    if len(paths) > 1:
        several = " and ".join(path.name for path in paths)
        raise DeclarationError(f"{home}: there are {several}, and a pipeline has one query. Remove the others.")
    return read(paths[0], sources, program)


def read(path: Path, sources: Sequence[str], program: ProgramPart | None = None) -> QueryFile:
    """Return the query of a file, such as one that ends in .sql. Raises DeclarationError; arguments as of `find`."""
    if not is_query_file(path):
        raise DeclarationError(f"{path}: it is not a query. Name a file that ends in {_name_any()}.")
    try:
        text = read_text(path)
    except FileNotFoundError:
        raise DeclarationError(f"{path}: there is no such file. Correct its name, or write the query there.") from None
    if not text.strip():
        raise DeclarationError(f"{path}: it is empty. Write the query there.")
    if path.suffix == ".py":
        _check_function(path, text, sources)
    own, part = _find_language(path), program or ProgramPart()
    if own is not None:
        try:
            own.check(str(path), text)
        except QueryError as error:
            raise DeclarationError(str(error)) from None
    _check_keys(path, own, part)
    return QueryFile(path, text, part)


def read_text(path: Path) -> str:
    """Return the text of a file; raises FileNotFoundError, and DeclarationError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DeclarationError(f"{path}: it is not UTF-8 text. Save it as UTF-8.") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DeclarationError(f"{path}: it cannot be read ({error.strerror}). Let this user read it.") from None


def is_query_file(path: Path) -> bool:
    """Return whether a file is a query, by its suffix."""
    return path.suffix in OF_SPARK or _find_language(path) is not None


def _find_language(path: Path) -> QueryLanguage | None:
    """Return the language of its own that a file is in; None for Spark's."""
    return None if path.suffix in OF_SPARK else find_language(path.suffix)


def _name_any(stem: str = "") -> str:
    """Return the names of files of this stem that are queries, for messages: `query.sql, query.py or query.mrql`."""
    *names, last = [f"{stem}{suffix}" for suffix in (*OF_SPARK, *(own.suffix for own in list_languages()))]
    return f"{', '.join(names)} or {last}"


def _check_keys(path: Path, own: QueryLanguage | None, program: ProgramPart) -> None:
    """Raise DeclarationError for keys that are declared for a query in a language that does not take them."""
    taken = frozenset[str]() if own is None else own.keys
    for key in PROGRAM_KEYS:
        if getattr(program, key) and key not in taken:
            others = " or ".join(f"query{other.suffix}" for other in list_languages() if key in other.keys)
            raise DeclarationError(f"{path}: `{key}` is for {others}. Remove it.")


def runnable(query: QueryFile) -> str | LanguageQuery | Callable[..., DataFrame]:
    """Return the query as the API takes it: a text, or the function of query.py, which is executed."""
    if query.given is not None:
        return query.given
    if (own := _find_language(query.path)) is not None:
        part = query.program
        values = {"args": part.args, "paths": part.paths, "loops": part.ends}
        taken = {name: value for name, value in values.items() if name in own.keys}
        return own.load(query.text, taken, str(query.path), query.path.parent)
    if not query.function:
        return query.text
    name = f"query_of_{query.path.parent.name}"
    spec = importlib.util.spec_from_file_location(name, query.path, loader=UncompiledFile(name, str(query.path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise DeclarationError(
            f"{query.path}: loading it fails: {type(error).__name__}: {error}. Correct it."
        ) from error
    return module.query


class UncompiledFile(SourceFileLoader):
    """Loads a file's text: Python takes what it compiled of a file before for one of the same size and time."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the file as it is now."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _check_function(path: Path, text: str, sources: Sequence[str]) -> None:
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise DeclarationError(f"{path}{line}: it is not Python ({error.args[0]}). Correct it.") from None
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "query"]
    if not functions:
        raise DeclarationError(f"{path}: it defines no function `query`. Add one with a parameter per source.")
    arguments = functions[-1].args
    named = arguments.posonlyargs + arguments.args
    needed = named[: len(named) - len(arguments.defaults)]
    needed += [name for name, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if not default]
    for argument in needed:
        if argument.arg not in sources:
            hint = suggest_nearest(argument.arg, sources)
            raise DeclarationError(f"{path}, line {argument.lineno}: `{argument.arg}` is not a declared source. {hint}")
