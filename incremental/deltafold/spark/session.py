"""Start a Spark session with Delta Lake, quickly and without console output.

Spark logs to `spark.log` in the cache, and the files that it would leave in the current folder go to the cache
too. No Spark is started under spark-submit, whose Spark is used with its own settings, or if DELTAFOLD_SPARK_HOST is
set and that host answers, or a host keeps one for the same settings: the session is one of the host's (host/).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark import __version__ as pyspark_version
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from deltafold.algebra.errors import DeltafoldWarning
from deltafold.algebra.local_path import local_path
from deltafold.algebra.secrets import is_secret
from deltafold.spark import catalyst
from deltafold.spark.cache import SetupError, cache_folder
from deltafold.spark.catalyst import JavaError
from deltafold.spark.hadoop_settings import drop_cluster_settings
from deltafold.spark.host.address import NoHostError
from deltafold.spark.host.guest import attach
from deltafold.spark.host.guests import Guests
from deltafold.spark.host.wanted import WantedSpark
from deltafold.spark.java_errors import causes, first_line
from deltafold.spark.jvm.class_data_sharing import class_archive_options
from deltafold.spark.jvm.jars import delta_coordinate, delta_jars
from deltafold.spark.jvm.java import launch_environment, provide_java
from deltafold.spark.jvm.object_stores import store_jars, store_settings
from deltafold.spark.jvm.submitted_stores import check_running_stores, knows_class, submitted_store_settings
from deltafold.spark.lost import forget_spark
from deltafold.spark.session_settings import (
    CATALOG,
    DELTA_SETTINGS,
    EVERYWHERE,
    EXTENSIONS,
    MEMORY,
    METASTORE,
    METASTORE_DATABASE,
    NO_METASTORE,
    Warm,
    add_to,
    is_laptop,
    session_settings,
    with_delta,
)

LOG_LIMIT = 10_000_000  # bytes; a longer spark.log is deleted at the next start
SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set by spark-submit: the port of the Java that it started
ECHOES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")  # loggers that repeat the message of the exception


def start(
    app_name: str = "deltafold",
    *,
    master: str = "local[*]",
    memory: str | None = None,
    settings: Mapping[str, str] | None = None,
    brief: bool = False,
    warm: Warm = "off",
) -> SparkSession:
    """Return a SparkSession with Delta Lake; the running one if this process has started one.

    Under spark-submit it is the session of the Spark that spark-submit started, with that Spark's own settings.

    app_name, master: as in Spark. memory: the heap of the driver, such as "2g", the default in local mode (there of all
    of Spark). settings: Spark settings, which override the defaults; on a Spark that runs already, only those that can
    change then. brief: the process will end after little work, so a laptop's Java is started without its second
    compiler, unless its options are set otherwise. warm: whether to attach to the Spark that a host keeps for the same
    master, memory and settings; `required` never starts one. Raises SetupError if this machine cannot run it, or the
    Spark that it is given lacks Delta Lake.
    """
    given = dict(settings or {})
    for name in ECHOES:
        PySparkLogger.getLogger(name).disabled = True
    wanted = WantedSpark(master, memory or MEMORY, given)
    spark = _find_session(wanted, warm)
    if spark is None:
        return _launch(session_settings(app_name, master, memory, given, brief))
    for name, value in given.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    return spark


def _find_session(wanted: WantedSpark, warm: Warm) -> SparkSession | None:
    """Return the session that this process already has, or that spark-submit or a warm host gives it."""
    if cast(Any, SparkContext)._active_spark_context is not None:
        return _use_running(SparkSession.builder.getOrCreate(), wanted.settings)
    if SUBMITTED in os.environ:
        return _use_submitted(wanted.settings)
    named = os.environ.get("DELTAFOLD_SPARK_HOST")
    try:
        if named:
            return attach(local_path("DELTAFOLD_SPARK_HOST", named, SetupError))
        if warm == "required" or (warm == "auto" and wanted.file.exists()):
            return _attach_to_wanted(wanted)
    except NoHostError as error:
        if warm == "required":
            raise NoHostError(f"{error}, or let this process start a Spark of its own with `warm: auto`.") from error
        warnings.warn(f"{error}. Starting a new Spark instead.", DeltafoldWarning, stacklevel=3)
    return None


def _attach_to_wanted(wanted: WantedSpark) -> SparkSession:
    """Return a session of the Spark that a host keeps for these settings; raises NoHostError."""
    session = attach(wanted.file)
    if misfit := wanted.find_misfit(session.conf):
        forget_spark()
        Guests(wanted.file).leave()
        raise NoHostError(f"Spark host {wanted.file}: {misfit}. Stop it with deltafold host stop")
    return session


def _use_running(spark: SparkSession, given: Mapping[str, str]) -> SparkSession:
    """Return a session that runs already, whoever started it, if it can do what is asked of it."""
    check_delta_lake(catalyst.jvm(spark))
    check_running_stores(spark, given)
    return spark


def _use_submitted(given: Mapping[str, str]) -> SparkSession:
    """Return a session of the Spark of spark-submit: its settings stand, those that are missing are added."""
    cast(Any, SparkContext)._ensure_initialized()
    java = catalyst.packages(cast(Any, SparkContext)._jvm)
    check_delta_lake(java)
    conf = SparkConf()  # what spark-submit was given
    extensions = with_delta(",".join(filter(None, [conf.get(EXTENSIONS), given.get(EXTENSIONS)])))
    conf.setAll([*given.items(), (EXTENSIONS, extensions)])
    stores = submitted_store_settings(java, dict(conf.getAll()))
    for name, value in {**DELTA_SETTINGS, **EVERYWHERE, **stores}.items():
        conf.setIfMissing(name, value)
    SparkContext.getOrCreate(conf)
    return SparkSession.builder.getOrCreate()


def check_delta_lake(java: catalyst.Package) -> None:
    """Raise SetupError if a Spark that somebody else started lacks Delta Lake."""
    if not knows_class(java, "org.apache.spark.sql.delta.DeltaLog"):
        raise SetupError(
            f"Spark {pyspark_version}: it lacks Delta Lake: its jars are not on the class path. Start it with "
            f"--packages {delta_coordinate()}, or with the jars of your platform."
        )


def log_file() -> Path:
    """Return the file with Spark's messages and the output of its Python workers."""
    return cache_folder() / "spark.log"


def _launch(settings: dict[str, str]) -> SparkSession:
    java = provide_java()
    environment = launch_environment(java)
    jars = delta_jars(java)
    settings, jars = store_settings(settings), (*jars, *store_jars(settings, java, jars))
    if is_laptop(settings["spark.master"]):
        add_to(settings, "spark.driver.extraClassPath", os.pathsep, *map(str, jars))
        classes = class_archive_options(java, Path(environment["SPARK_HOME"]), jars)
        add_to(settings, "spark.driver.extraJavaOptions", " ", classes)
    else:
        add_to(settings, "spark.jars", ",", *map(str, jars))  # executors get them too
    public, whole = SparkConf(loadDefaults=False), SparkConf(loadDefaults=False)
    public.setAll([(name, value) for name, value in settings.items() if not is_secret(name)])
    whole.setAll(list(settings.items()))
    with _log() as log, _environment(environment):
        try:
            gateway = cast(Any, java_gateway).launch_gateway(public, {"stdout": log, "stderr": log})
        except PySparkRuntimeError as error:
            raise SetupError(
                f"Java ({java.origin}): it ended while Spark was starting. "
                f"See {log_file()} for the cause, then start again."
            ) from error
        spark = _begin(whole, gateway)  # secrets are not on the command line, which every user can list
    catalyst.remember_classes(gateway.jvm)
    if settings.get(CATALOG) == "hive":
        _check_metastore(spark)
    if is_laptop(settings["spark.master"]):
        drop_cluster_settings(spark)
    return spark


def _begin(settings: SparkConf, gateway: Any) -> SparkSession:
    """Return the session of a Java; raises SetupError for a master, or a setting, that Spark refuses."""
    try:
        SparkContext(conf=settings, gateway=gateway)
        spark = SparkSession.builder.getOrCreate()
        catalyst.session(spark).sessionState()  # else made at its first use
    except JavaError as error:
        raise SetupError(
            f"Spark cannot start with these settings: {first_line(causes(error)[-1]).rstrip('.')}. Correct them."
        ) from error
    return spark


def _check_metastore(spark: SparkSession) -> None:
    """Raise SetupError, and stop Spark, if Hive would make a metastore of its own in the current folder."""
    known = catalyst.session(spark).sessionState().newHadoopConf()  # with those of hive-site.xml
    if known.get(METASTORE) or known.get(METASTORE_DATABASE):
        return
    spark.stop()
    raise SetupError(NO_METASTORE)


@contextmanager
def _log() -> Generator[int]:
    """Open spark.log for a process to append to."""
    path = log_file()
    if path.is_file() and path.stat().st_size > LOG_LIMIT:
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _environment(variables: dict[str, str]) -> Generator[None]:
    """Set environment variables within the block, and restore them after it."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
