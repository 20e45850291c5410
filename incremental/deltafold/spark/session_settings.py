"""Choose the settings of a Spark session (D-104).

| Spark | settings |
| --- | --- |
| `local`, `local[…]` | DELTA_SETTINGS, EVERYWHERE, and `_laptop_settings`: for few cores, with files below the cache |
| any other master | DELTA_SETTINGS, EVERYWHERE; Spark and the user choose address, memory, folders, parallelism |
| started by spark-submit | DELTA_SETTINGS, EVERYWHERE, if they are not set |
| running | none |

The caller's settings replace all of these, but extensions of Spark are added to Delta's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

from deltafold.spark.cache import cache_folder, scratch_folder
from deltafold.spark.jvm.object_stores import ANY_LOG_STORE
from deltafold.spark.local_files import replace_file

EXTENSIONS = "spark.sql.extensions"
CATALOG = "spark.sql.catalogImplementation"
METASTORE, METASTORE_DATABASE = "hive.metastore.uris", "javax.jdo.option.ConnectionURL"
NO_METASTORE = (
    f"{CATALOG} is hive: no metastore is set, so Hive would make a database in the current folder. Set "
    f"spark.hadoop.{METASTORE} to a metastore, or spark.hadoop.{METASTORE_DATABASE} to a database, such as "
    "jdbc:derby:;databaseName=/folder/metastore;create=true, which one process at a time can open."
)
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
DELTA_SETTINGS = {
    EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
EVERYWHERE = {
    # checksums list the files of tables of up to 1,000 (default: 50), so that a landing need not replay the log
    "spark.databricks.delta.allFilesInCrc.thresholdNumFiles": "1000",
    # recording the call site of every DataFrame method takes a tenth of a refresh
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # default: 100 classes, so a process with several views recompiles all of its queries in every refresh
    "spark.sql.codegen.cache.maxEntries": "2000",
    # Spark 4.2 hangs when it passes columnar scan output to a Python function
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    # wrong in Spark 4.2: `select (select … where s.a > t.n) from (select n from t order by n limit 1) t` loses ORDER BY
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughLimitAndOffset",
    # of the default, INT96, Parquet keeps no statistics, so no page of it is skipped
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # answers do not depend on the machine's time zone
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
LOOPBACK_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
Warm = Literal["auto", "off", "required"]
"""Whether to use a Spark that a host keeps for the same settings: if there is one, never, or always."""

LOG_STORE = "spark.delta.logStore.file.impl"
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
MEMORY = "2g"  # the heap of a laptop's Spark
# Without its second compiler, which takes half of the time of a process that ends after a small refresh, Java also
# reserves too little memory for code.
BRIEF = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
ARRAY_HEADER = 16  # bytes; a 4 MB array plus its header would take 6 MB, since G1 rounds large arrays up to regions
LOGGING = """\
# Everything goes to standard error, which spark/session.py sends to spark.log.
status = error
rootLogger.level = warn
rootLogger.appenderRef.log.ref = log
appender.log.type = Console
appender.log.name = log
appender.log.target = SYSTEM_ERR
appender.log.layout.type = PatternLayout
appender.log.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def session_settings(
    app_name: str, master: str, memory: str | None, own: Mapping[str, str], *, brief: bool = False
) -> dict[str, str]:
    """Return all settings of a Spark that is to be started; own: the caller's; brief: see `session.start`."""
    master = own.get("spark.master", master)
    settings = {"spark.app.name": app_name, "spark.master": master, **DELTA_SETTINGS, **EVERYWHERE}
    if _is_loopback(master):
        settings |= LOOPBACK_SETTINGS
    if is_laptop(master):
        settings |= _laptop_settings()
    if memory or is_laptop(master):
        settings["spark.driver.memory"] = memory or MEMORY
    if ANY_LOG_STORE in own:
        settings.pop(LOG_STORE, None)
    settings |= {**own, EXTENSIONS: with_delta(own.get(EXTENSIONS))}
    if is_laptop(master):
        settings[JAVA_OPTIONS] = _java_options(settings.get(JAVA_OPTIONS, ""), brief=brief)
    return settings


def is_laptop(master: str) -> bool:
    """Return whether all of Spark runs in the driver's process, so that this machine's settings are Spark's."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def _is_loopback(master: str) -> bool:
    """Return whether every part of Spark is on this machine, so that no other one has to reach the driver."""
    return master.startswith("local") or (urlsplit(master).hostname or "") in ("127.0.0.1", "localhost", "::1")


def with_delta(extensions: str | None) -> str:
    """Return a list of Spark's extensions with Delta's."""
    names = [name.strip() for name in (extensions or "").split(",") if name.strip()]
    return ",".join(names if DELTA_SETTINGS[EXTENSIONS] in names else [DELTA_SETTINGS[EXTENSIONS], *names])


def _laptop_settings() -> dict[str, str]:
    """Return the settings of a Spark that runs on this machine alone."""
    cores = str(max(2, min(os.cpu_count() or 2, 200)))
    return {
        "spark.databricks.delta.snapshotPartitions": "2",  # default: 50 tasks, also for a table of ten files
        # the default one starts some ten processes (readlink) for each commit, and does not exclude a second writer
        LOG_STORE: "io.delta.storage.LocalLogStore",
        # the default one starts four processes to rename the checksum file of a commit
        "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
        "spark.ui.enabled": "false",
        # all files are written below the cache
        "spark.local.dir": str(scratch_folder()),
        "spark.sql.warehouse.dir": str(cache_folder("warehouse")),
        CATALOG: "in-memory",
        # for each of four attempts to reach Hive's metastore; default: 600 s
        "spark.hadoop.hive.metastore.client.socket.timeout": "20s",
        "spark.sql.shuffle.partitions": cores,
        # the first page of every broadcast, sort and group-by; default: 16 to 64 MB
        "spark.buffer.pageSize": str((4 << 20) - ARRAY_HEADER),
        # the number of tasks of Delta's VACUUM, even of an empty folder; default: 10,000
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": cores,
        **_umask_settings(),
    }


def _umask_settings() -> dict[str, str]:
    """Return the setting by which Hadoop, which has a umask of its own, uses this process's where that is another."""
    umask = os.umask(0o022)
    os.umask(umask)
    return {} if umask == 0o022 else {"spark.hadoop.fs.permissions.umask-mode": f"{umask:03o}"}


def _java_options(own: str, *, brief: bool) -> str:
    """Return the options of a laptop's Java, which logs to standard error and writes below the cache; own: the user's.

    Of two options of one name Java uses the second, so the user's override those of `brief`.
    """
    logging = cache_folder() / "log4j2.properties"
    if not logging.is_file() or logging.read_text() != LOGGING:
        replace_file(logging, LOGGING)
    ours = f'-Dlog4j2.configurationFile="{logging.as_uri()}" -Djava.io.tmpdir="{scratch_folder()}" -XX:-UsePerfData'
    ours += f' -Dderby.stream.error.file="{scratch_folder() / "derby.log"}"'
    first = BRIEF if brief and not any(os.environ.get(name) for name in JAVA_VARIABLES) else ""
    return " ".join(filter(None, [first, own, ours]))


def add_to(settings: dict[str, str], name: str, separator: str, *values: str) -> None:
    """Append values to the list that a setting has."""
    settings[name] = separator.join(filter(None, [settings.get(name), *values]))
