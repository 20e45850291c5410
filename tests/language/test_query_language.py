"""A language that another package adds: its files are queries of pipelines, and its queries are maintained."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import DataFrame, SparkSession

from deltafold.algebra import added
from deltafold.algebra.errors import QueryError
from deltafold.language import query_language
from deltafold.language.query_language import LanguageQuery, NoSchemaError, QueryLanguage, Schemas
from deltafold.pipelines import queries
from deltafold.pipelines.declaration.declaration import ProgramPart
from deltafold.pipelines.declaration.parsing import DeclarationError
from tests.adding import package
from tests.sandbox import MemorySandbox, checked


@dataclass(frozen=True)
class Sums(LanguageQuery):
    """`sum v of t by k`."""

    language: ClassVar[str] = "SUMS"

    text: str
    file: str = "query.sums"
    folder: Path | None = None

    @property
    def parts(self) -> tuple[str, str, str]:
        _, value, _, source, _, key = self.text.split()
        return value, source, key

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.parts[1].lower()})

    def evaluate(self, spark: SparkSession, declared: Collection[str], schema: Schemas) -> DataFrame:
        if schema(self.parts[1]) is None:
            raise NoSchemaError(f"{self.file}: no data", self.parts[1])
        return spark.sql(self.show(declared, schema))

    def show(self, declared: Collection[str], schema: Schemas) -> str:
        value, source, key = self.parts
        return f"select {key}, sum({value}) s from {source} group by {key}"


def check(file: str, text: str) -> None:
    if not text.startswith("sum "):
        raise QueryError(f"{file}: it is not a sum. Begin with sum.")


def load(text: str, keys: Mapping[str, Any], file: str, folder: Path) -> LanguageQuery:
    assert not keys
    return Sums(text, file, folder)


@pytest.fixture
def _added() -> Iterator[None]:
    sums = QueryLanguage(name="sums", suffix=".sums", check=check, load=load)
    with package(query_language.GROUP, "sums", sums):
        query_language._others.cache_clear()
        yield
    query_language._others.cache_clear()


def test_its_queries_are_maintained(sandbox: MemorySandbox) -> None:
    """Protects from a part of the engine that knows MRQL by name."""
    sandbox.source("t", "k int, v int", [(1, 1), (2, 5)])
    view = sandbox.view(Sums("sum v of t by k"))
    checked(view)
    sandbox.insert("t", "k int, v int", [(1, 2)])
    report = checked(view)
    assert report.paths == {"state_1": "rewrite"}
    assert "SUMS became:\nselect k, sum(v) s from t group by k" in str(view.explain())


def test_a_query_that_its_package_fails_for_fails_alone(sandbox: MemorySandbox) -> None:
    """Protects from an error of a package, which is none of ours, that ends the run of all views."""
    sandbox.source("t", "k int, v int", [(1, 1)])
    sandbox.view(Sums("sum v of"), "broken")
    sandbox.view("select k from t", "whole")
    outcomes = {dataset.name: dataset.outcome for dataset in sandbox.warehouse.refresh().datasets}
    assert outcomes == {"broken": "failed", "whole": "refreshed"}


@pytest.mark.usefixtures("_added")
def test_its_files_are_queries_of_pipelines(tmp_path: Path) -> None:
    """Protects from a list of suffixes that another package cannot add to."""
    (tmp_path / "query.sums").write_text("sum v of t by k")
    (tmp_path / "query.txt").write_text("notes")
    found = queries.find(tmp_path, ["t"])
    assert (found.language, found.keys) == ("sums", frozenset())
    assert queries.runnable(found) == Sums("sum v of t by k", str(tmp_path / "query.sums"), tmp_path)
    with pytest.raises(DeclarationError, match=r"query\.sums: `args` is for query\.mrql\. Remove it"):
        queries.find(tmp_path, ["t"], ProgramPart(args=("1",)))
    (tmp_path / "query.sums").write_text("select")
    with pytest.raises(DeclarationError, match=r"it is not a sum\. Begin with sum"):
        queries.find(tmp_path, ["t"])
    (tmp_path / "query.sums").unlink()
    with pytest.raises(DeclarationError, match=r"Write query\.sql, query\.py, query\.mrql or query\.sums\."):
        queries.find(tmp_path, ["t"])
    with pytest.raises(DeclarationError, match=r"Name a file that ends in \.sql, \.py, \.mrql or \.sums\."):
        queries.read(tmp_path / "query.txt", ["t"])


def test_a_package_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects from a traceback, and from a file that is said to be no query although its package is there."""
    broken = EntryPoint("sums", "no_such_package.sums:LANGUAGE", query_language.GROUP)
    monkeypatch.setattr(query_language, "_others", query_language._others.__wrapped__)
    monkeypatch.setattr(added, "entry_points", lambda *, group: [broken])
    (tmp_path / "query.sql").write_text("select 1")
    assert queries.find(tmp_path, []).language == "sql"
    with pytest.raises(QueryError, match=r"entry point sums of deltafold\.languages: loading no_such_package\.sums"):
        queries.read(tmp_path / "query.sums", ["t"])


def test_without_its_package_its_files_are_none(tmp_path: Path) -> None:
    """Protects from a file that is taken for SQL."""
    (tmp_path / "query.sums").write_text("sum v of t by k")
    with pytest.raises(DeclarationError, match="there is no query"):
        queries.find(tmp_path, ["t"])
    with pytest.raises(DeclarationError, match="it is not a query"):
        queries.read(tmp_path / "query.sums", ["t"])
