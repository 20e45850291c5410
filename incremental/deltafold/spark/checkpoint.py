"""Compute a DataFrame once for all its uses within a block, with aggregates over its rows (D-120).

The rows are checkpointed to Spark's own storage (memory, then disk) and not merely cached: Delta refuses to MERGE from
a source that Spark might recompute, and Spark does not analyse the plan below a checkpoint again. If a checkpoint
folder is set (`spark.checkpoint.dir`), they are written there too, and outlive the executor that computed them. A few
rows are kept in the driver's memory instead, which takes one Spark job for rows and aggregates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from deltafold.spark import catalyst
from deltafold.spark.catalyst import J

MEASURES = "measures"
ADAPTIVE = "spark.sql.adaptive.enabled"
CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
NON_BLOCKING = NOT_STREAMING = False  # arguments of Java, which have no keywords
ONE_PARTITION = "spark.sql.maxSinglePartitionBytes"  # Spark shuffles a single partition that it estimates as larger


@contextmanager
def computed_once(frame: DataFrame, *, now: bool = False) -> Generator[DataFrame]:
    """Yield the frame, whose rows are computed at their first use, or now, and freed after the block."""
    kept = _store_rows(frame, now=now)
    try:
        yield kept
    finally:
        spark = frame.sparkSession
        rdd = catalyst.analysed_plan(kept).rdd()
        rdd.unpersist(NON_BLOCKING)
        if _has_checkpoint_folder(spark):
            written = catalyst.module(catalyst.jvm(spark).org.apache.spark.rdd, "ReliableRDDCheckpointData")
            written.cleanCheckpoint(catalyst.context(spark), rdd.id())


def _store_rows(frame: DataFrame, *, now: bool = False) -> DataFrame:
    """Return the frame's rows, which are computed now or at their first use, and stored."""
    if not _has_checkpoint_folder(frame.sparkSession):
        return without_constraints(frame.localCheckpoint(eager=now))
    kept = without_constraints(frame.checkpoint(eager=now))
    if not now:  # Spark writes them after their first use, and would compute them again for it
        levels = catalyst.jvm(frame.sparkSession).org.apache.spark.storage.StorageLevel
        catalyst.analysed_plan(kept).rdd().persist(levels.MEMORY_AND_DISK())
    return kept


def without_constraints(kept: DataFrame) -> DataFrame:
    """Return the rows of a checkpoint without the constraints that Spark infers, such as that a column is not NULL.

    They may be of attributes that the rows do not have, and then a union with other rows fails.
    """
    spark = kept.sparkSession
    rows = catalyst.analysed_plan(kept)
    fields = [getattr(rows, f"copy$default${i}")() for i in range(1, rows.productArity() + 1)]
    statistics = catalyst.some(spark, rows.stats())
    return catalyst.frame(spark, rows.copy(*fields, catalyst.session(spark), statistics, catalyst.none(spark)))


def _has_checkpoint_folder(spark: SparkSession) -> bool:
    """Return whether a checkpoint folder is set."""
    return bool(catalyst.context(spark).getCheckpointDir().isDefined())


@contextmanager
def measured_once(
    frame: DataFrame, measures: Sequence[Column], kept_where: Column | None = None
) -> Generator[tuple[DataFrame, Mapping[str, Any]]]:
    """Yield the frame, computed now, with aggregates over its rows by name from the same job; freed after the block.

    kept_where: the rows that are kept, of all that are measured.
    """
    observed = frame.observe(MEASURES, *measures)
    if kept_where is not None:
        observed = observed.where(kept_where)
    with computed_once(observed, now=True) as kept:
        yield kept, _observed_measures(observed)


@dataclass(frozen=True)
class Checkpoints:
    """Frames computed once until a block ends; most: the largest number of rows kept in the driver.

    _sizes: the bytes of each frame by the number of its RDD, or the plan from which they are estimated.
    """

    cached: ExitStack
    most: int
    _sizes: dict[int, int | J] = field(default_factory=dict[int, "int | J"])

    def keep(self, frame: DataFrame) -> DataFrame:
        """Checkpoint the frame in Spark's storage; its rows are computed at their first use."""
        kept = self.cached.enter_context(computed_once(frame))
        self._sizes[_rdd_number(kept)] = catalyst.analysed_plan(frame)
        return kept

    def learn(self, frame: DataFrame, rows: int) -> None:
        """Record the number of rows of a frame that was computed."""
        plan = catalyst.analysed_plan(frame)
        if catalyst.kind(plan) == "LogicalRDD":
            self._sizes[_rdd_number(frame)] = rows * int(plan.schema().defaultSize())

    def estimate_bytes(self, frame: DataFrame) -> int:
        """Estimate the bytes of a frame: in an equi-join, each row of the larger side is assumed to have one match.

        If the left side is broadcast, as a change of few rows is, each row of that side is. Spark multiplies the sizes
        of both sides, so a change that is joined with three tables seems larger than all of them.
        """
        return self._estimate(frame.sparkSession, catalyst.analysed_plan(frame))

    def _estimate(self, spark: SparkSession, plan: J) -> int:
        children = catalyst.sequence(plan.children())
        if not children:
            return self._estimate_leaf(spark, plan)
        sizes = [self._estimate(spark, child) for child in children]
        if catalyst.kind(plan) != "Join":
            return sum(sizes)
        if catalyst.keeps_left(plan):
            return sizes[0]
        keys = catalyst.module(catalyst.catalyst(spark).planning, "ExtractEquiJoinKeys").unapply(plan)
        if str(plan.joinType()) != "Inner" or not keys.isDefined():
            return prod(sizes)
        return sizes[0] if catalyst.kind(plan.left()) == "ResolvedHint" else max(sizes)

    def _estimate_leaf(self, spark: SparkSession, leaf: J) -> int:
        number = int(leaf.rdd().id()) if catalyst.kind(leaf) == "LogicalRDD" else -1
        size = self._sizes.get(number)
        if size is None:
            return int(str(leaf.stats().sizeInBytes()))
        if not isinstance(size, int):
            size = self._sizes[number] = self._estimate(spark, size)
        return size

    def small(self, frame: DataFrame) -> DataFrame:
        """Compute the frame now in one task; the driver keeps its rows if they are few."""
        return self.measure(frame, [F.count(F.lit(1)).alias("rows")], small=True)[0]

    def measure(
        self, frame: DataFrame, measures: Sequence[Column], *, small: bool
    ) -> tuple[DataFrame, Mapping[str, Any]]:
        """Return the frame computed once, and aggregates over it by name; small: try the driver first."""
        if small and (local := collect_rows(frame.coalesce(1), measures, self.most)) is not None:
            return local
        kept, values = self.cached.enter_context(measured_once(frame, measures))
        self._sizes[_rdd_number(kept)] = catalyst.analysed_plan(frame)
        return kept, values


def _rdd_number(kept: DataFrame) -> int:
    """Return the number of the RDD in which Spark stores the rows of a checkpoint."""
    return int(catalyst.analysed_plan(kept).rdd().id())


def _observed_measures(observed: DataFrame) -> Mapping[str, Any]:
    """Return the aggregates by name that were computed with the rows of a frame; the values have JSON's types."""
    return json.loads(str(catalyst.execution(observed).observedMetrics().get(MEASURES).get().json()))


def compute_measures(frame: DataFrame, measures: Sequence[Column]) -> Mapping[str, Any]:
    """Compute aggregates over a frame's computed rows by name, in a Spark job of their own."""
    row = plan_at_once(frame.agg(*measures)).first()
    assert row is not None
    return row.asDict()


def collect_rows(frame: DataFrame, measures: Sequence[Column], most: int) -> tuple[DataFrame, Mapping[str, Any]] | None:
    """Collect a frame's rows in the driver, with aggregates over them by name, in one Spark job.

    Returns None if there are more rows than `most`. The values have JSON's types.
    """
    return LocalPlan(frame, measures, most).run()


class LocalPlan:
    """A plan that computes few rows and aggregates over them in the driver, by one Spark job; it can run repeatedly."""

    def __init__(self, frame: DataFrame, measures: Sequence[Column], most: int) -> None:
        self._spark = frame.sparkSession
        self._frame = plan_at_once(frame.observe(MEASURES, *measures).limit(most + 1))
        self._most = most

    def run(self) -> tuple[DataFrame, Mapping[str, Any]] | None:
        """Return the rows and the values of the aggregates by name; None if there are too many rows."""
        return self._collect(self._frame)

    def _collect(self, observed: DataFrame) -> tuple[DataFrame, Mapping[str, Any]] | None:
        rows = internal_rows(observed)
        if len(rows) > self._most:
            return None
        values = _observed_measures(observed)
        data = catalyst.jvm(self._spark).scala.collection.immutable.ArraySeq.unsafeWrapArray(rows)
        relation = _local_relation(self._spark, catalyst.analysed_plan(observed).output(), data)
        return catalyst.frame(self._spark, relation), values

    def over(self, held: DataFrame) -> Callable[[DataFrame], tuple[DataFrame, Mapping[str, Any]] | None] | None:
        """Return a function that runs the same plan over other rows in place of those of `held`, a frame in the driver.

        None if the plan does not read them. This saves planning the operators; Spark still optimises the whole.
        """
        make = _substitute_rows(self._spark, catalyst.analysed_plan(self._frame), catalyst.analysed_plan(held))
        if make is None:
            return None
        session = self._frame.sparkSession
        return lambda other: self._collect(catalyst.frame(session, make(catalyst.analysed_plan(other).data())))


def internal_rows(frame: DataFrame) -> J:
    """Compute the rows of a frame as a Java array of Spark's InternalRow.

    Only Spark's actions on Datasets pass the session's settings on to the tasks, and they do not return rows in this
    form. Therefore the plan is run here, and the settings are passed on as Spark's SQLExecution does.
    """
    execution = catalyst.execution(frame)
    with _settings_in_tasks(frame.sparkSession, execution.sparkSession()):
        return execution.executedPlan().executeCollect()


@contextmanager
def _settings_in_tasks(spark: SparkSession, session: J) -> Generator[None]:
    """Make a Scala session the active one, and pass its settings on to the tasks of all jobs within the block."""
    sessions = catalyst.sql(spark).classic.SparkSession
    context = catalyst.context(spark)
    active = catalyst.option(sessions.getActiveSession())
    properties = context.getLocalProperties()
    with_settings = properties.clone()
    settings = session.sessionState().conf().getAllConfs()
    with_settings.putAll(catalyst.jvm(spark).scala.jdk.javaapi.CollectionConverters.asJava(settings))
    context.setLocalProperties(with_settings)
    sessions.setActiveSession(session)
    try:
        yield
    finally:
        context.setLocalProperties(properties)
        if active is None:
            sessions.clearActiveSession()
        else:
            sessions.setActiveSession(active)


def in_one_task(rows: DataFrame, few: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return both frames in one partition each, so that one task joins them without a shuffle or a broadcast."""
    return rows.coalesce(1), few.coalesce(1).hint("shuffle_hash")


def plan_at_once(frame: DataFrame) -> DataFrame:
    """Plan a frame of few rows, or of few aggregates, without exchanges and jobs that pay for larger ones alone.

    Adaptive execution, which runs each exchange as a job, is off, and a single partition is not shuffled.
    """
    # Spark would shuffle it for its estimate of a join, which is the product of the sides
    return _with_settings(frame, {ADAPTIVE: "false", ONE_PARTITION: str(2**62)})


def plan_without_constraints(frame: DataFrame) -> DataFrame:
    """Plan a frame without the constraints that Spark infers, which are of use only above filters and joins.

    Spark repeats the constraints of each column that is renamed, so a query that renames all columns, and whose
    expressions use many of them, would be planned for hours.
    """
    return _with_settings(frame, {CONSTRAINTS: "false"})


def _with_settings(rows: DataFrame, settings: Mapping[str, str]) -> DataFrame:
    """Return a frame of the same rows in a session of its own that has other settings."""
    spark = catalyst.isolate_session(rows.sparkSession)
    for name, value in settings.items():
        spark.conf.set(name, value)
    return catalyst.frame(spark, catalyst.analysed_plan(rows))


def is_local(rows: DataFrame) -> bool:
    """Return whether a frame is rows in the driver's memory."""
    return catalyst.kind(catalyst.analysed_plan(rows)) == "LocalRelation"


def _local_relation(spark: SparkSession, output: J, data: J) -> J:
    """Return the plan of rows in the driver's memory."""
    return catalyst.catalyst(spark).plans.logical.LocalRelation(output, data, NOT_STREAMING, catalyst.none(spark))


def _substitute_rows(spark: SparkSession, plan: J, held: J) -> Callable[[J], J] | None:
    """Return a function that substitutes other rows for those of a LocalRelation in a plan; None if it is not there."""
    if catalyst.kind(plan) == "LocalRelation":
        if not _is_identical(spark, plan.data(), held.data()):
            return None
        output = plan.output()
        return lambda data: _local_relation(spark, output, data)
    children = catalyst.sequence(plan.children())
    substitutions = [_substitute_rows(spark, child, held) for child in children]
    if not any(substitutions):
        return None
    pairs = list(zip(children, substitutions, strict=True))
    return lambda data: plan.withNewChildren(
        catalyst.vector(spark, [make(data) if make else child for child, make in pairs])
    )


def _is_identical(spark: SparkSession, one: J, other: J) -> bool:
    """Return whether two Java objects are the same, not only equal."""
    identities = catalyst.jvm(spark).java.util.IdentityHashMap()
    identities.put(one, one)
    return bool(identities.containsKey(other))
