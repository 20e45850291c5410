"""Start a Spark session with Delta Lake, quickly and without console output.

Spark logs to `spark.log` in the cache, and the files that it would leave in the current folder go to the cache
too. With DELTAFOLD_SPARK_HOST set, no Spark is started if that host answers: the session is one of the host's
(shared_session.py).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from incremental.algebra.errors import DeltafoldWarning
from incremental.algebra.local_path import local_path
from incremental.algebra.secrets import is_secret
from incremental.spark.cache import SetupError, cache_folder, scratch_folder
from incremental.spark.class_data_sharing import class_archive_options
from incremental.spark.jars import delta_jars
from incremental.spark.java import launch_environment, provide_java
from incremental.spark.shared_session import NoHostError, attach

LOG_LIMIT = 10_000_000  # bytes; a longer spark.log is deleted at the next start
ECHOES = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")  # loggers that repeat the message of the exception
# Java without its second compiler, which costs half of the time of a process that ends after a small refresh; it then
# also reserves too little memory for code
BRIEF = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
ARRAY_HEADER = 16  # bytes; a 4 MB array plus its header would take 6 MB, since G1 rounds large arrays up to regions
LOGGING = """\
# Everything goes to standard error, which incremental/spark/session.py sends to spark.log.
status = error
rootLogger.level = warn
rootLogger.appenderRef.log.ref = log
appender.log.type = Console
appender.log.name = log
appender.log.target = SYSTEM_ERR
appender.log.layout.type = PatternLayout
appender.log.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def start(
    app_name: str = "deltafold",
    *,
    master: str = "local[*]",
    memory: str = "2g",
    settings: Mapping[str, str] | None = None,
    brief: bool = False,
) -> SparkSession:
    """Return a SparkSession with Delta Lake; the running one if this process has started one.

    app_name, master: as in Spark. memory: the heap of the driver, such as "2g" (in local mode, of all of Spark).
    settings: Spark settings, which override the defaults; on a Spark that runs already, only those that can change
    then. brief: the process will end after little work, so Java is started without its second compiler, unless its
    options are set otherwise. Raises SetupError if this machine cannot run it.
    """
    given = dict(settings or {})
    host = os.environ.get("DELTAFOLD_SPARK_HOST")
    for name in ECHOES:
        PySparkLogger.getLogger(name).disabled = True
    running = cast(Any, SparkContext)._active_spark_context is not None
    if running:
        spark = SparkSession.builder.getOrCreate()
    elif host:
        try:
            spark = attach(local_path("DELTAFOLD_SPARK_HOST", host, SetupError))
        except NoHostError as error:
            warnings.warn(f"{error}. Starting a new Spark instead.", DeltafoldWarning, stacklevel=2)
            return _launch(_settings(app_name, master, memory, given, brief))
    else:
        return _launch(_settings(app_name, master, memory, given, brief))
    for name, value in given.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    return spark


def log_file() -> Path:
    """Return the file with Spark's messages and the output of its Python workers."""
    return cache_folder() / "spark.log"


def _launch(settings: dict[str, str]) -> SparkSession:
    java = provide_java()
    environment = launch_environment(java)
    jars = delta_jars(java)
    if settings["spark.master"].startswith("local"):
        _add(settings, "spark.driver.extraClassPath", os.pathsep, *map(str, jars))
        classes = class_archive_options(java, Path(environment["SPARK_HOME"]), jars)
        _add(settings, "spark.driver.extraJavaOptions", " ", classes)
    else:
        _add(settings, "spark.jars", ",", *map(str, jars))  # executors get them too
    public, whole = SparkConf(loadDefaults=False), SparkConf(loadDefaults=False)
    public.setAll([(name, value) for name, value in settings.items() if not is_secret(name)])
    whole.setAll(list(settings.items()))
    with _log() as log, _environment(environment):
        try:
            gateway = cast(Any, java_gateway).launch_gateway(public, {"stdout": log, "stderr": log})
        except PySparkRuntimeError as error:
            raise SetupError(f"Spark's Java ({java.origin}) ended at its start. See {log_file()}.") from error
        SparkContext(conf=whole, gateway=gateway)  # secrets are not on the command line, which every user can list
    return SparkSession.builder.getOrCreate()


def _settings(app_name: str, master: str, memory: str, given: dict[str, str], brief: bool) -> dict[str, str]:
    cores = os.cpu_count() or 2
    settings = {
        "spark.app.name": app_name,
        "spark.master": master,
        "spark.driver.memory": memory,
        # Delta Lake
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",  # default: 50 tasks, also for a table of ten files
        # checksums list the files of tables of up to 1,000 (default: 50), so that a landing need not replay the log
        "spark.databricks.delta.allFilesInCrc.thresholdNumFiles": "1000",
        # recording the call site of every DataFrame method takes a tenth of a refresh
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # default: 100 classes, so a process with several views recompiles all of its queries in every refresh
        "spark.sql.codegen.cache.maxEntries": "2000",
        # Spark 4.2 hangs when it passes columnar scan output to a Python function
        "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
        # this machine only, without a web UI
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # all files are written below the cache
        "spark.local.dir": str(scratch_folder()),
        "spark.sql.warehouse.dir": str(cache_folder("warehouse")),
        "spark.sql.catalogImplementation": "in-memory",  # no metastore_db, no derby.log
        # answers do not depend on the machine's time zone; small shuffles for few cores
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(max(2, min(cores, 200))),
        # the first page of every broadcast, sort and group-by; default: 16 to 64 MB
        "spark.buffer.pageSize": str((4 << 20) - ARRAY_HEADER),
        # the number of tasks of Delta's VACUUM, even of an empty folder; default: 10,000
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(max(2, min(cores, 200))),
    }
    settings |= given
    options = "spark.driver.extraJavaOptions"
    settings[options] = _java_options(settings.get(options, ""), brief)
    return settings


def _java_options(given: str, brief: bool) -> str:
    """Return Java's options; of two of one name Java takes the second, so the user's win over those of `brief`."""
    logging = cache_folder() / "log4j2.properties"
    if not logging.is_file() or logging.read_text() != LOGGING:
        fresh = logging.with_name(f"log4j2.{os.getpid()}.properties")
        fresh.write_text(LOGGING)
        fresh.replace(logging)
    ours = f'-Dlog4j2.configurationFile="{logging.as_uri()}" -Djava.io.tmpdir="{scratch_folder()}" -XX:-UsePerfData'
    first = BRIEF if brief and not any(os.environ.get(name) for name in JAVA_VARIABLES) else ""
    return " ".join(filter(None, [first, given, ours]))


def _add(settings: dict[str, str], name: str, separator: str, *values: str) -> None:
    settings[name] = separator.join(filter(None, [settings.get(name), *values]))


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
