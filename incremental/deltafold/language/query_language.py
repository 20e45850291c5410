"""Let a query be written in a language of its own: what such a language is, and which ones there are.

A package adds a language by a value of `QueryLanguage` under the entry point `deltafold.languages`; ours is MRQL. Its
files are then queries of pipelines, and its queries are views: maintained as the DataFrame is that they evaluate to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from deltafold.algebra.added import load_each
from deltafold.algebra.errors import QueryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

GROUP = "deltafold.languages"
OWN = ("deltafold.language.mrql",)  # modules with a LANGUAGE, which are there without metadata of a distribution
Schemas = Callable[[str], "StructType | None"]


class NoSchemaError(QueryError):
    """A query reads a declared source that has no schema yet; source: its name."""

    def __init__(self, message: str, source: str) -> None:
        super().__init__(message)
        self.source = source


class LanguageQuery(ABC):
    """A query in a language of its own. Equal ones evaluate to the same; all methods raise QueryError.

    language: its name, for people; guard: the advice where an expression fails for a row; file: the name that errors
    cite; folder: the one that it is in.
    """

    language: ClassVar[str]
    guard: ClassVar[str] = ""

    text: str
    file: str
    folder: Path | None

    @property
    @abstractmethod
    def names(self) -> frozenset[str]:
        """The names that its sources may have, in lower case."""

    @abstractmethod
    def evaluate(self, spark: SparkSession, declared: Collection[str], schema: Schemas) -> DataFrame:
        """Return the answer, analysed, in a session that has each declared source as a view.

        schema: returns that of a source, None for one without data, for which it raises NoSchemaError.
        """

    @abstractmethod
    def show(self, declared: Collection[str], schema: Schemas) -> str:
        """Return what it is translated into, for people."""


@dataclass(frozen=True, kw_only=True)
class QueryLanguage:
    """A language: its name, and the suffix of its files.

    keys: those of pipeline.yaml that its queries take; check: raises QueryError for a text, with the name of its file;
    load: returns the query of a text, with the values of the keys, the name of its file and its folder.
    """

    name: str
    suffix: str
    check: Callable[[str, str], None]
    load: Callable[[str, Mapping[str, Any], str, Path], LanguageQuery]
    keys: frozenset[str] = frozenset()


def find_language(suffix: str) -> QueryLanguage | None:
    """Return the language of a file; other packages are asked for languages only where ours have none.

    Raises QueryError for a package whose language cannot be loaded.
    """
    return next((language for language in _own() if language.suffix == suffix), None) or _others().get(suffix)


def list_languages() -> tuple[QueryLanguage, ...]:
    """Return all languages, ours first. Raises QueryError as `find_language`."""
    return (*_own(), *_others().values())


def _own() -> Iterator[QueryLanguage]:
    return (import_module(name).LANGUAGE for name in OWN)


@cache
def _others() -> Mapping[str, QueryLanguage]:
    return {language.suffix: language for _, language in load_each(GROUP, QueryError)}
