"""A lake in memory: tables with versions, files and MERGE as the runtime knows them, without Delta and without a disk.

It makes an epoch ten times faster, so that many more queries and histories can be tried; the Delta lake runs a sample.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from incremental.algebra.constraints import constraints
from incremental.algebra.errors import SourceError
from incremental.algebra.sources import SourceDeclaration
from incremental.algebra.sqltext import quoted
from incremental.algebra.tuning import Tuning
from incremental.compiler.compile import compiled
from incremental.lake.commit_tag import Mark
from incremental.lake.files import File, Identity
from incremental.lake.physical_layout import Storage
from incremental.lake.protocol import Clause
from incremental.landing.landing import types
from incremental.language.query import QueryText, empty, evaluate, read_query
from incremental.language.ties import settled
from incremental.refresh.constraint_checks import check_constraints
from incremental.refresh.epoch import Epoch
from incremental.refresh.full_recompute import Recomputed
from incremental.refresh.incremental_refresh import Incremental, Maintenance
from incremental.refresh.source_catalog import nullable
from incremental.spark import catalyst
from incremental.spark.job_stats import Measure
from incremental.store.journal import Intent, Pin

AS_IF_LARGE = {"prune_above_bytes": 0, "range_slices": 3}  # large inputs are read within a few ranges of the keys


@dataclass(frozen=True)
class Version:
    """What a table was: its files and the epoch of each application."""

    files: Mapping[Identity, File]
    epochs: Mapping[str, int]


class MemoryTable(Storage):
    """A table whose files are rows that Spark's driver holds."""

    def __init__(self, spark: SparkSession, name: str, first: DataFrame | None = None) -> None:
        super().__init__(spark, f"memory:{name}")
        self._name, self._versions = name, list[Version]()
        self._schema: StructType | None = None
        self.reads: list[int] = []
        if first is not None:
            self.commit([], first)

    def version(self) -> int | None:
        return len(self._versions) - 1 if self._versions else None

    def identity(self) -> str:
        return self._name

    def schema(self, version: int | None = None) -> StructType:
        assert self._schema is not None
        return self._schema

    @property
    def mapped(self) -> bool:
        return False

    def epoch(self, application: str) -> int | None:
        return self._versions[-1].epochs.get(application) if self._versions else None

    def size(self) -> tuple[int, int]:
        return len(self._versions[-1].files), sum(file.bytes for file in self._versions[-1].files.values())

    def files(self, version: int) -> dict[Identity, File]:
        return dict(self._versions[version].files)

    def commits(self, before: int, after: int) -> None:
        """A log that was cleaned up: snapshots are compared."""

    def rows_of(self, version: int, files: Sequence[File]) -> DataFrame:
        assert self._schema is not None
        frames = [catalyst.frame(self.spark, file.action.newInstance()) for file in files]
        if not frames:
            return self.spark.createDataFrame([], self._schema)
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionAll(frame)
        return whole

    def at(self, version: int) -> DataFrame:
        self.reads.append(version)
        return self.rows_of(version, list(self._versions[version].files.values()))

    def append(self, frame: DataFrame, mark: Mark, partition: str | None, name_mapping: bool = False) -> None:
        self.commit(list(self._files), frame, mark)

    def overwrite(self, frame: DataFrame, mark: Mark, partition: str | None) -> None:
        self.commit([], frame, mark)

    def touch(self, mark: Mark) -> None:
        self.commit(list(self._files), None, mark)

    def merge(self, source: DataFrame, condition: str, clauses: Sequence[Clause], mark: Mark) -> None:
        """Delta's MERGE as a full join; all rows are written anew."""
        version = self.version()
        assert version is not None
        target = self.at(version)
        named = target.withColumn("__target", F.monotonically_increasing_id()).alias("t")
        joined = named.join(source.withColumn("__source", F.lit(True)).alias("u"), F.expr(condition), "full")
        chosen = F.when(F.col("__source").isNull(), F.lit(-1))
        for number, clause in enumerate(clauses):
            here = F.col("__target").isNull() if clause.action == "insert" else F.col("__target").isNotNull()
            chosen = chosen.when(here & F.expr(clause.when or "true"), F.lit(number))
        joined = joined.withColumn("__chosen", chosen)
        again = joined.where("__chosen >= 0 AND __target IS NOT NULL").groupBy("__target").count()
        if not again.where("count > 1").isEmpty():
            raise AssertionError("several rows of a MERGE's source match one row of its target")
        deletes = [number for number, clause in enumerate(clauses) if clause.action == "delete"]
        unmatched = "__target IS NULL AND __chosen IS NULL"
        kept = joined.where(~F.coalesce(F.col("__chosen").isin(deletes), F.lit(False))).where(f"NOT ({unmatched})")
        self.commit([], kept.select(*(merged(name, clauses).alias(name) for name in target.columns)), mark)

    def commit(self, kept: Sequence[Identity], frame: DataFrame | None, mark: Mark | None = None) -> None:
        """A new version of some of the files and of the rows of a frame."""
        files = {identity: self._files[identity] for identity in kept}
        epochs = dict(self._versions[-1].epochs) if self._versions else {}
        if mark is not None:
            if epochs.get(mark.application, -1) >= mark.epoch:
                return
            epochs[mark.application] = mark.epoch
        if frame is not None:
            if self._schema is None:
                self._schema = nullable(frame.schema)
            file = self._file(frame)
            if file.rows or not files:
                files[file.identity] = file
        self._versions.append(Version(files, epochs))

    @property
    def _files(self) -> Mapping[Identity, File]:
        return self._versions[-1].files if self._versions else {}

    def _file(self, frame: DataFrame) -> File:
        assert self._schema is not None
        typed = frame.select(*(F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in self._schema.fields))
        execution = cast(Any, typed)._jdf.queryExecution()
        rows = execution.executedPlan().executeCollect()
        sequence = catalyst.jvm(self.spark).scala.collection.immutable.ArraySeq.unsafeWrapArray(rows)
        output = catalyst.vector(self.spark, [a.withNullability(True) for a in catalyst.sequence(typed_output(typed))])
        logical = catalyst.catalyst(self.spark).plans.logical
        held = logical.LocalRelation(output, sequence, False, catalyst.none(self.spark))
        return File((str(uuid.uuid4()), ""), len(rows), 100 * len(rows), held)


def typed_output(frame: DataFrame) -> Any:
    return catalyst.analysed(frame).output()


def merged(name: str, clauses: Sequence[Clause]) -> Column:
    """A column of the merged table."""
    target = F.col(f"t.{quoted(name)}")
    value = F.when(F.lit(False), target)
    for number, clause in enumerate(clauses):
        if clause.action == "delete":
            continue
        values = {key.strip("`"): given for key, given in clause.values.items()}
        if name in values:
            given = values[name]
            value = value.when(F.col("__chosen") == number, given if isinstance(given, Column) else F.expr(given))
        elif clause.action == "insert":
            value = value.when(F.col("__chosen") == number, F.lit(None))
    return value.otherwise(target)


@dataclass
class MemoryView:
    """A view over tables in memory; `definition`: kept by recomputing before and after."""

    spark: SparkSession
    sql: QueryText
    sources: Mapping[str, MemoryTable]
    invariant: frozenset[str] = frozenset()
    definition: bool = False
    buckets: int = 1
    declared: Mapping[str, SourceDeclaration] = field(default_factory=dict[str, SourceDeclaration])
    epoch: int = 0
    tables: dict[str, MemoryTable] = field(default_factory=dict[str, MemoryTable])
    pins: dict[str, int] = field(default_factory=dict[str, int])
    paths: Mapping[str, str] = field(default_factory=dict[str, str])
    tuning: Tuning = field(default_factory=Tuning)

    def __post_init__(self) -> None:
        self._schemas = {name: nullable(table.schema()) for name, table in self.sources.items()}
        self.query = read_query(self.spark, self.sql, self._schemas)
        known = {name: types(schema) for name, schema in self._schemas.items()}
        facts = constraints(self.declared, known, self.query.sources)
        forbidden = [(f.text, f.because, f.instead) for f in self.query.forbidden]
        query = self.query
        if self.definition:
            columns = tuple(name for _, name in query.outputs)
            self.maintenance: Maintenance = Recomputed("f", query.sources, columns, self.batch, True, facts)
        else:
            self.program = compiled(query.plan, query.outputs, "f", forbidden, self.invariant, constraints=facts)
            self.maintenance = Incremental(self.program, query.attributes)
        self.tables = {name: MemoryTable(self.spark, name) for name in self.maintenance.tables}

    def refresh(self) -> Measure | None:
        """One epoch up to the latest versions; None where nothing changed."""
        latest = {name: self.sources[name].version() for name in self.query.sources}
        if self.epoch and latest == self.pins:
            return None
        pins = {name: Pin(self.pins.get(name), version or 0, name) for name, version in latest.items()}
        self.epoch += 1
        before = {} if self.epoch == 1 else {name: table.version() for name, table in self.tables.items()}
        facts = [fact.text for fact in self.maintenance.constraints]
        relied = facts if before else []
        intent = Intent("v", 1, self.epoch, "f", self.buckets, pins, before, constraints=facts, relied=relied)
        measure = Measure(self.spark)
        tuning = replace(self.tuning, **AS_IF_LARGE) if self.epoch % 2 else self.tuning
        epoch = Epoch(self.spark, intent, self.sources, self.tables, measure, tuning=tuning)
        try:
            with measure.all("epoch"):
                check_constraints(epoch, self.maintenance.constraints)
                self.paths = self.maintenance.run(epoch).paths
        except SourceError:
            self.epoch -= 1
            raise
        self.pins = {name: pin.after for name, pin in pins.items()}
        return measure

    def answer(self) -> DataFrame:
        """The view's rows."""
        table = self.tables[self.maintenance.tables[-1]]
        version = table.version()
        assert version is not None
        return table.at(version).select(*(quoted(name) for _, name in self.query.outputs))

    def batch(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """The query as Spark runs it."""
        session = self.spark if callable(self.sql) else catalyst.isolated(self.spark)

        def frame(name: str) -> DataFrame:
            return frames[name] if name in frames else empty(session, self._schemas[name])

        return settled(session, evaluate(session, self.sql, self._schemas, frame))

    def expected(self) -> DataFrame:
        """Spark's answer at the versions of the last refresh."""
        frames = {name: self.sources[name].at(version) for name, version in self.pins.items()}
        # an ordinary relation: Spark folds constant rows, and fails where two scalar subqueries meet a union of them
        return self.batch({name: frame.localCheckpoint(eager=False) for name, frame in frames.items()})
