"""Sources of another format: a toy one, whose versions are lists of rows, beside a table of the lake."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from deltafold.algebra.errors import LostSourceError, SourceError
from deltafold.algebra.sources import declare_external
from deltafold.api import External, Iceberg, View
from deltafold.lake.iceberg import declare
from deltafold.pipelines import catalogue
from deltafold.pipelines.declaration.parsing import DeclarationError
from deltafold.spark import catalyst
from tests.adding import package
from tests.local_rows import local
from tests.pipelines.declared import write
from tests.sandbox import MemorySandbox, checked

SCHEMA = "k int, v int"
Rows = list[tuple[Any, ...]]


@dataclass
class Toy:
    """Versions by number; finds: it finds changed rows itself; lost: versions that can no longer be read.

    schemas: of the versions that have another one.
    """

    spark: SparkSession
    finds: bool
    versions: list[Rows] = field(default_factory=list[Rows])
    name: str = "one"
    lost: set[int] = field(default_factory=set[int])
    schemas: dict[int, str] = field(default_factory=dict[int, str])
    asked: Counter[str] = field(default_factory=Counter[str])

    def version(self) -> int | None:
        return len(self.versions) - 1 if self.versions else None

    def identity(self) -> str:
        return self.name

    def schema(self, version: int) -> StructType:
        self._check(version)
        return catalyst.schema_of(self.schemas.get(version, SCHEMA))

    def scan(self, version: int) -> DataFrame:
        self._check(version)
        self.asked["scan"] += 1
        return local(self.spark, self.versions[version], self.schema(version))

    def size(self, version: int) -> int:
        return 1000 + 100 * len(self.versions[version])

    def diff(self, before: int, after: int) -> tuple[DataFrame, int] | None:
        if not self.finds:
            return None
        self.asked["diff"] += 1
        old, new = Counter(self.versions[before]), Counter(self.versions[after])
        rows: list[tuple[Any, ...]] = [(*row, "delete") for row in (old - new).elements()]
        rows += [(*row, "insert") for row in (new - old).elements()]
        return local(self.spark, rows, f"{SCHEMA}, _change_type string"), 10 * len(rows)

    def _check(self, version: int) -> None:
        if version in self.lost or version >= len(self.versions):
            raise SourceError(f"table {self.name}: version {version} can no longer be read. Rebuild the view.")


def declared(sandbox: MemorySandbox, toy: Toy) -> View:
    sandbox.source("names", "k int, name string", [(n, f"n{n}") for n in range(4)])
    sandbox.warehouse.source("toy", External("toy://one", lambda spark: toy))
    return sandbox.view("select name, count(*) n, sum(v) s from toy join names using (k) group by name")


@pytest.mark.parametrize("finds", [False, True], ids=["compared", "found"])
def test_any_change_is_exact(sandbox: MemorySandbox, finds: bool, long: bool) -> None:
    """Protects from inserts, overwrites, deleted copies of a row, and rollbacks that are counted wrong."""
    rng, toy = random.Random(7), Toy(sandbox.spark, finds, [[(1, 1), (1, 1), (2, 5)]])
    view = declared(sandbox, toy)
    checked(view)
    changes = ("insert", "delete", "overwrite", "rollback", "nothing", "empty", "insert")
    for change in changes if long else changes[:4]:
        rows = [*toy.versions[-1]]
        match change:
            case "insert":
                rows += [(rng.randrange(4), rng.randrange(9)) for _ in range(5)]
            case "delete":
                rows = rows[1::2]
            case "overwrite":
                rows = [(rng.randrange(5), 1) for _ in range(6)]
            case "rollback":
                rows = [*toy.versions[1]]
            case "empty":
                rows = []
            case _:
                pass
        toy.versions.append(rows)
        checked(view)
    assert bool(toy.asked["diff"]) == finds


def test_a_large_change_is_taken_in_chunks(sandbox: MemorySandbox) -> None:
    """Protects from a chunk that reads a version as the other one."""
    toy = Toy(sandbox.spark, False, [[(1, 1), (2, 5)]])
    view = declared(sandbox, toy)
    checked(view)
    toy.versions.append([(1, 1), (3, 7)])
    assert checked(view, chunk=1000).epoch == 3


def test_between_two_chunks_it_may_have_no_rows(sandbox: MemorySandbox) -> None:
    """Protects from a first load, and from groups that are recomputed, where no version is taken in."""
    toy = Toy(sandbox.spark, False, [[(1, 1), (2, 5)]])
    view = declared(sandbox, toy)
    assert checked(view, chunk=1).epoch >= 2
    view = sandbox.another("select k, max(v) m from toy group by k")
    checked(view)
    toy.versions.append([(1, 0), (3, 7)])
    assert checked(view, chunk=1000).epoch == 3


@pytest.mark.parametrize(("before", "old", "after", "new", "value", "epochs"), [
    (SCHEMA, [(1, 1), (2, 5)], "w int, k int, v int", [(0, 1, 0), (0, 3, 7)], "v", 3),
    ("k int, s struct<u: int, v: int>", [(1, (0, 1)), (2, (0, 5))],
     "k int, s struct<w: int, u: int, v: int>", [(1, (0, 0, 0))], "s.v", 2),
    ("k int, l array<struct<u: int, v: int>>", [(1, [(0, 1)]), (2, [(0, 5)])],
     "k int, l array<struct<w: int, u: int, v: int>>", [(1, [(0, 0, 0)])], "l.v[0]", 2),
], ids=["column", "field", "list"])  # fmt: skip
def test_a_version_that_has_less(
    sandbox: MemorySandbox, before: str, old: Rows, after: str, new: Rows, value: str, epochs: int
) -> None:
    """Protects from an old version that is read by its own schema, in a chunk or where a struct got a field."""
    toy = Toy(sandbox.spark, False, [old], schemas={0: before, 1: after})
    sandbox.warehouse.source("toy", External("toy://one", lambda spark: toy))
    view = sandbox.view(f"select k, max({value}) m from toy group by k")
    checked(view)
    toy.versions.append(new)
    assert checked(view, chunk=1000).epoch == epochs


def test_changed_rows_between_distant_versions(sandbox: MemorySandbox) -> None:
    """Protects from a limit on Delta's commits that holds for versions whose numbers have gaps."""
    toy = Toy(sandbox.spark, True, [[(1, 1), (2, 5)]])
    view = declared(sandbox, toy)
    checked(view)
    toy.versions += [toy.versions[0]] * 150 + [[(1, 1), (3, 7)]]
    checked(view)
    assert toy.asked["diff"]


def test_a_lost_version_is_reported(sandbox: MemorySandbox) -> None:
    """Protects from a refresh that goes on without the rows that it has to subtract."""
    toy = Toy(sandbox.spark, False, [[(1, 1), (2, 5)]])
    view = declared(sandbox, toy)
    checked(view)
    toy.versions.append([(2, 5)])
    toy.lost.add(0)
    with pytest.raises(SourceError, match="version 0 can no longer be read"):
        view.refresh()
    toy.lost.clear()
    toy.name = "another"
    with pytest.raises(LostSourceError, match="toy://one was replaced"):
        view.refresh()


def test_it_is_not_landed_and_may_be_missing(sandbox: MemorySandbox) -> None:
    """Protects from advice that is for Delta tables."""
    view = declared(sandbox, Toy(sandbox.spark, False))
    with pytest.raises(SourceError, match="a table of another format needs no landing"):
        sandbox.warehouse.land("toy")
    with pytest.raises(SourceError, match=r"source toy has no data: there is no table toy://one\. Create it"):
        view.refresh()


def test_a_package_adds_its_format_to_pipelines(
    sandbox: MemorySandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protects from a format that Python alone can read, and from a mistake that is found in a refresh."""
    text = "sources: {toy: {primary_key: k, external: {format: toy, options: {place: '${PLACE}'}}}}\n"
    write(tmp_path, "totals", text, sql="select sum(v) s from toy")
    with pytest.raises(DeclarationError, match=r"external\.format: source format 'toy': no installed package adds it"):
        catalogue.load("totals", tmp_path)
    fault = r"entry point toy of deltafold\.sources: loading package:object fails \(ImportError: no iceberg\)\. Correct"
    with package("deltafold.sources", "toy", ImportError("no iceberg.")), pytest.raises(DeclarationError, match=fault):
        catalogue.load("totals", tmp_path)
    toy = Toy(sandbox.spark, True, [[(1, 1), (2, 5)]])
    monkeypatch.setenv("PLACE", "one")
    with package("deltafold.sources", "toy", lambda options: External(f"toy://{options['place']}", lambda _: toy)):
        declaration = catalogue.declare(catalogue.load("totals", tmp_path).declaration.sources["toy"])
    assert (declaration.address, declaration.primary_key) == ("toy://one", ("k",))
    sandbox.warehouse.source("toy", declaration)
    view = sandbox.view("select sum(v) s from toy")
    checked(view)
    toy.versions.append([(1, 2)])
    checked(view)


def test_iceberg_is_declared_and_asked_for(sandbox: MemorySandbox) -> None:
    """Protects from errors of Java's where Spark lacks Iceberg; its tables are in tests/spark/iceberg_histories.py."""
    for options in ({}, {"table": "lake.orders", "warehouse": "/lake"}):
        with pytest.raises(SourceError, match=r"`table: catalog\.database\.name`, and nothing else"):
            declare(options)
    with pytest.raises(SourceError, match="is not the name of a table"):
        Iceberg("/lake/orders")
    sandbox.warehouse.source("orders", declare({"table": "lake.shop.orders"}))
    with pytest.raises(SourceError, match=r"table lake\.shop\.orders: this Spark has no Iceberg\. Add its runtime"):
        sandbox.view("select count(*) n from orders").refresh()


class Half:
    """Has some methods of a source alone."""

    def version(self) -> int:
        return 0


def raising(_: object) -> None:
    raise KeyError("path")


@pytest.mark.parametrize(
    ("opened", "because"),
    [
        (raising, r"its package cannot open it \(KeyError: 'path'\)"),
        (lambda _: None, "its package opens a NoneType without version, identity, schema, scan, size, diff"),
        (lambda _: Half(), "its package opens a Half without identity, schema, scan, size, diff"),
    ],
    ids=["fails", "nothing", "half"],
)
def test_a_package_that_opens_no_source(sandbox: MemorySandbox, opened: Any, because: str) -> None:
    """Protects from errors of Python's that name neither source nor package."""
    sandbox.warehouse.source("toy", External("toy://one", opened))
    with pytest.raises(SourceError, match=f"source toy at toy://one: {because}"):
        sandbox.view("select * from toy").refresh()


@pytest.mark.parametrize(
    ("declares", "because"),
    [
        (raising, r"it fails \(KeyError: 'path'\) for these options: table. Correct them."),
        (lambda _: 5, "it returns a int, not an External"),
    ],
    ids=["fails", "another object"],
)
def test_a_package_that_declares_no_source(declares: Any, because: str) -> None:
    with package("deltafold.sources", "toy", declares), pytest.raises(SourceError, match=f"format toy: {because}"):
        declare_external("toy", {"table": "t"})
