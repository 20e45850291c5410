"""Start a Spark session with Delta Lake, quickly and without console output.

Spark logs to `spark.log` in the cache, and the files that it would write to the current folder are in the cache too. No
Spark is started under spark-submit, whose Spark is used with its own settings, or if DELTAFOLD_SPARK_HOST is set and
that host answers, or if a host keeps one for the same settings: then the session is one of the host's (host/).

A Spark that spark-submit started may lack what tables in an object store need. Its Java runs before this process does,
so the jars of the store have to be among its packages. The log store is added to the running Java: Janino compiles it
there, and the class loader to which spark-submit adds the user's jars gets it.
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
from deltafold.spark import catalyst, connect
from deltafold.spark.cache import SetupError, cache_folder, scratch_folder
from deltafold.spark.catalyst import JavaError, is_java_instance
from deltafold.spark.host.address import NoHostError
from deltafold.spark.host.guest import attach
from deltafold.spark.host.guests import Guests
from deltafold.spark.host.wanted import WantedSpark
from deltafold.spark.java_errors import causes, first_line
from deltafold.spark.jvm.jars import delta_coordinate, delta_jars
from deltafold.spark.jvm.java import class_archive_options, launch_environment, provide_java
from deltafold.spark.jvm.object_stores import (
    ANY_LOG_STORE,
    LOG_STORE_SOURCE,
    S3A,
    S3A_LOG_STORE,
    S3A_SETTINGS,
    STORES,
    pack_classes,
    s3a_package,
    store_jars,
    store_settings,
    stores_in,
)
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
CLASS_LOADER = "org.apache.spark.util.MutableURLClassLoader"
S3A_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
HADOOP_LOADERS = ("mapred.JobConf", "hdfs.HdfsConfiguration")  # classes that make Hadoop load its files again
HADOOP_DEFAULTS = ("yarn-default.xml", "mapred-default.xml")
# not those of MapReduce's committer, input and output
CLUSTER_SETTINGS = r"^(yarn|mapreduce\.(am|cluster|job|jobhistory|map|reduce|shuffle|task))\."


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
    master, memory and settings; `required` never starts one. Raises SetupError if this machine cannot run it, the
    Spark that already runs lacks Delta Lake, or PySpark would use Spark Connect.
    """
    own_settings = dict(settings or {})
    if refusal := connect.explain_request(own_settings, master):
        raise SetupError(refusal)
    for name in ECHOES:
        PySparkLogger.getLogger(name).disabled = True
    wanted = WantedSpark(master, memory or MEMORY, own_settings)
    spark = _find_session(wanted, warm)
    if spark is None:
        return _launch(session_settings(app_name, master, memory, own_settings, brief=brief))
    for name, value in own_settings.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    return spark


def _find_session(wanted: WantedSpark, warm: Warm) -> SparkSession | None:
    """Return the session that this process already has, or that spark-submit or a warm host gives it."""
    if cast(Any, SparkContext)._active_spark_context is not None:
        return _use_running(SparkSession.builder.getOrCreate(), wanted.settings)
    if SUBMITTED in os.environ:
        return _use_submitted(wanted.settings)
    host_file = os.environ.get("DELTAFOLD_SPARK_HOST")
    try:
        if host_file:
            return attach(local_path("DELTAFOLD_SPARK_HOST", host_file, SetupError))
        if warm == "required" or (warm == "auto" and wanted.file.exists()):
            return _attach_to_wanted(wanted)
    except NoHostError as error:
        if warm == "required":
            raise NoHostError(f"{error}, or let this process start a Spark of its own with `warm: auto`.") from error
        warnings.warn(f"{error}. Starting a new Spark instead.", DeltafoldWarning, stacklevel=3)
    return None


def _attach_to_wanted(wanted: WantedSpark) -> SparkSession:
    """Return a session of the Spark that a host keeps for these settings. Raises NoHostError if there is none."""
    session = attach(wanted.file)
    if misfit := wanted.find_misfit(session.conf):
        forget_spark()
        Guests(wanted.file).leave()
        raise NoHostError(f"Spark host {wanted.file}: {misfit}. Stop it with deltafold host stop")
    return session


def _use_running(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Return a running session, whoever started it. Raises SetupError if it lacks Delta Lake or a log store."""
    _check_delta_lake(catalyst.jvm(spark))
    if S3A in stores_in(settings) and not _has_log_store(dict(spark.sparkContext.getConf().getAll())):
        raise SetupError(
            f"{STORES}: s3a: the Spark that runs already has no log store for s3a: that admits one writer. Start it by "
            f"start(), or with {S3A_LOG_STORE} set to one."
        )
    return spark


def _use_submitted(settings: Mapping[str, str]) -> SparkSession:
    """Return a session of the Spark of spark-submit, with its settings and those that it lacks."""
    cast(Any, SparkContext)._ensure_initialized()
    java = catalyst.packages(cast(Any, SparkContext)._jvm)
    _check_delta_lake(java)
    conf = SparkConf()  # with the settings of spark-submit
    extensions = with_delta(",".join(filter(None, [conf.get(EXTENSIONS), settings.get(EXTENSIONS)])))
    conf.setAll([*settings.items(), (EXTENSIONS, extensions)])
    stores = _submitted_store_settings(java, dict(conf.getAll()))
    for name, value in {**DELTA_SETTINGS, **EVERYWHERE, **stores}.items():
        conf.setIfMissing(name, value)
    SparkContext.getOrCreate(conf)
    return SparkSession.builder.getOrCreate()


def _check_delta_lake(java: catalyst.Package) -> None:
    """Raise SetupError if a Spark that somebody else started lacks Delta Lake."""
    if not _has_class(java, "org.apache.spark.sql.delta.DeltaLog"):
        raise SetupError(
            f"Spark {pyspark_version}: it lacks Delta Lake: its jars are not on the class path. Start it with "
            f"--packages {delta_coordinate()}, or with the jars of your platform."
        )


def _log_file() -> Path:
    """Return the file with Spark's messages and the output of its Python workers."""
    return cache_folder() / "spark.log"


def _launch(settings: dict[str, str]) -> SparkSession:
    java = provide_java()
    environment = launch_environment(java)
    jars = delta_jars(java)
    jars = (*jars, *store_jars(settings, java, jars))
    settings = store_settings(settings)
    if is_laptop(settings["spark.master"]):
        add_to(settings, "spark.driver.extraClassPath", os.pathsep, *map(str, jars))
        classes = class_archive_options(java, Path(environment["SPARK_HOME"]), jars)
        add_to(settings, "spark.driver.extraJavaOptions", " ", classes)
    else:
        add_to(settings, "spark.jars", ",", *map(str, jars))  # executors get them too
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    public = SparkConf(loadDefaults=False)
    public.setAll([(name, value) for name, value in settings.items() if not is_secret(name)])
    with _log() as log, _environment(environment):
        try:
            gateway = cast(Any, java_gateway).launch_gateway(public, {"stdout": log, "stderr": log})
        except PySparkRuntimeError as error:
            raise SetupError(
                f"Java ({java.origin}): it ended while Spark was starting. "
                f"See {_log_file()} for the cause, then start again."
            ) from error
        spark = _begin(conf, gateway)  # secrets are not on the command line, which every user can list
    catalyst.remember_classes(gateway.jvm)
    catalyst.convert_plain_values_at_once()
    catalyst.release_objects_in_batches(gateway)
    if settings.get(CATALOG) == "hive":
        _check_metastore(spark)
    if is_laptop(settings["spark.master"]):
        drop_cluster_settings(spark)
    return spark


def _begin(settings: SparkConf, gateway: Any) -> SparkSession:
    """Return the session of a Java. Raises SetupError for a master, or a setting, that Spark refuses."""
    try:
        SparkContext(conf=settings, gateway=gateway)
        spark = SparkSession.builder.getOrCreate()
        catalyst.session(spark).sessionState()  # otherwise created, and its settings checked, at its first use
    except JavaError as error:
        raise SetupError(
            f"Spark cannot start with these settings: {first_line(causes(error)[-1]).rstrip('.')}. Correct them."
        ) from error
    return spark


def _check_metastore(spark: SparkSession) -> None:
    """Raise SetupError, and stop Spark, if Hive would make a metastore of its own in the current folder."""
    conf = catalyst.session(spark).sessionState().newHadoopConf()  # also from hive-site.xml
    if conf.get(METASTORE) or conf.get(METASTORE_DATABASE):
        return
    spark.stop()
    raise SetupError(NO_METASTORE)


@contextmanager
def _log() -> Generator[int]:
    """Open spark.log for a process to append to."""
    path = _log_file()
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


def _submitted_store_settings(java: catalyst.Package, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings to add for the object stores that settings ask for; adds their log store to Java.

    java: that of spark-submit, before a SparkContext is started. Raises SetupError for a Spark that lacks the store's
    jars, or to which no class can be added.
    """
    if S3A not in stores_in(settings):
        return {}
    if _has_log_store(settings):
        return {name: value for name, value in S3A_SETTINGS.items() if name != S3A_LOG_STORE}
    package = s3a_package(str(java.org.apache.hadoop.util.VersionInfo.getVersion()))
    if not _has_class(java, S3A_CLASS):
        raise SetupError(
            f"{STORES}: s3a: this Spark lacks Hadoop's S3A: its jars are not on the class path. Start it with "
            f"--packages {','.join([package.coordinate, *package.beside])} --exclude-packages "
            "software.amazon.awssdk:bundle beside Delta Lake's, or with the jars of your platform."
        )
    _add_log_store(java)
    return S3A_SETTINGS


def _has_log_store(settings: Mapping[str, str]) -> bool:
    """Return whether settings choose a log store for `s3a:`."""
    return S3A_LOG_STORE in settings or ANY_LOG_STORE in settings


def _has_class(java: catalyst.Package, name: str) -> bool:
    """Return whether Spark finds a class of Java."""
    initialize = no_spark_class_loader = False
    try:
        java.org.apache.spark.util.Utils.classForName(name, initialize, no_spark_class_loader)
    except JavaError:
        return False
    return True


def _add_log_store(java: catalyst.Package) -> None:
    """Compile our log store in a Java, and add it to the classes that Spark finds there."""
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    if not is_java_instance(loader, CLASS_LOADER):
        raise SetupError(
            f"{STORES}: s3a: this Spark takes no further classes, so Deltafold's log store cannot be added. Set "
            f"{S3A_LOG_STORE} to one that admits one writer, such as io.delta.storage.S3DynamoDBLogStore."
        )
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(LOG_STORE_SOURCE.read_text())
    folder = scratch_folder() / "log-store"
    files = list[Path]()
    for name, code in dict(compiler.getBytecodes()).items():
        file = folder / f"{str(name).replace('.', '/')}.class"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(code))
        files.append(file)
    jar = pack_classes(folder, files)
    loader.addURL(java.java.io.File(str(jar)).toURI().toURL())


def drop_cluster_settings(spark: SparkSession) -> None:
    """Drop the settings of Hadoop's cluster managers from a Spark that runs in one process, unless a user set them.

    Hadoop loads 1,100 settings with its defaults, 720 of them for YARN and the jobs of MapReduce. Spark copies all of
    them for each query, and sends them to the tasks of each scan, compressed one by one: a quarter of the time of a
    scan of a small table. Hadoop's classes have the same defaults in their code.
    """
    java = catalyst.jvm(spark)
    for name in HADOOP_LOADERS:  # as the first scan would
        java.java.lang.Class.forName(f"org.apache.hadoop.{name}")
    load_defaults = False
    defaults = java.org.apache.hadoop.conf.Configuration(load_defaults)
    for file in HADOOP_DEFAULTS:
        defaults.addResource(file)
    settings = catalyst.context(spark).hadoopConfiguration()
    unused = settings.getValByRegex(CLUSTER_SETTINGS)
    unused.entrySet().retainAll(defaults.getValByRegex(CLUSTER_SETTINGS).entrySet())
    # a loop within Java: calls of each from here take longer than the first scans gain
    string = java.java.lang.Class.forName("java.lang.String")
    unset = java.java.lang.invoke.MethodHandles.publicLookup().bind(
        settings, "unset", java.java.lang.invoke.MethodType.methodType(java.java.lang.Void.TYPE, string)
    )
    consumer = java.java.lang.Class.forName("java.util.function.Consumer")
    unused.keySet().forEach(java.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(consumer, unset))
