"""Give a Spark that somebody else starts what it lacks for tables in an object store, or refuse with what to give it.

spark-submit has started Java before this process runs, so the jars of the store have to be among its packages. The log
store is added to the running Java: Janino compiles it there, and the class loader to which spark-submit adds the user's
jars gets it as one more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from deltafold.spark.cache import SetupError, scratch_folder
from deltafold.spark.catalyst import JavaError, Package, is_java_instance
from deltafold.spark.jvm import object_stores
from deltafold.spark.jvm.object_stores import ANY_LOG_STORE, S3A, S3A_LOG_STORE, S3A_SETTINGS, STORES, stores_in

LOADER = "org.apache.spark.util.MutableURLClassLoader"
S3A_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def submitted_store_settings(java: Package, settings: Mapping[str, str]) -> dict[str, str]:
    """Return what is to be added to settings for the object stores that they ask for; adds their log store to Java.

    java: that of spark-submit, before a SparkContext is started. Raises SetupError for a Spark that lacks the store's
    jars, or to which no class can be added.
    """
    if S3A not in stores_in(settings):
        return {}
    if has_log_store(settings):
        return {name: value for name, value in S3A_SETTINGS.items() if name != S3A_LOG_STORE}
    package = object_stores.s3a_package(str(java.org.apache.hadoop.util.VersionInfo.getVersion()))
    if not knows_class(java, S3A_CLASS):
        raise SetupError(
            f"{STORES}: s3a: this Spark lacks Hadoop's S3A: its jars are not on the class path. Start it with "
            f"--packages {','.join([package.coordinate, *package.beside])} --exclude-packages "
            "software.amazon.awssdk:bundle beside Delta Lake's, or with the jars of your platform."
        )
    add_log_store(java)
    return S3A_SETTINGS


def has_log_store(settings: Mapping[str, str]) -> bool:
    """Return whether settings choose a log store for `s3a:`."""
    return S3A_LOG_STORE in settings or ANY_LOG_STORE in settings


def knows_class(java: Package, name: str) -> bool:
    """Return whether Spark finds a class of Java."""
    try:
        java.org.apache.spark.util.Utils.classForName(name, False, False)
    except JavaError:
        return False
    return True


def add_log_store(java: Package) -> None:
    """Compile our log store in a Java, and add it to the classes that Spark finds there."""
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    if not is_java_instance(loader, LOADER):
        raise SetupError(
            f"{STORES}: s3a: this Spark takes no further classes, so Deltafold's log store cannot be added. Set "
            f"{S3A_LOG_STORE} to one that admits one writer, such as io.delta.storage.S3DynamoDBLogStore."
        )
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(object_stores.LOG_STORE_SOURCE.read_text())
    place = scratch_folder() / "log-store"
    made = list[Path]()
    for name, code in dict(compiler.getBytecodes()).items():
        made.append(place / f"{str(name).replace('.', '/')}.class")
        made[-1].parent.mkdir(parents=True, exist_ok=True)
        made[-1].write_bytes(bytes(code))
    jar = object_stores.pack_classes(place, made)
    loader.addURL(java.java.io.File(str(jar)).toURI().toURL())


def check_running_stores(spark: SparkSession, given: Mapping[str, str]) -> None:
    """Raise SetupError if a session that runs already lacks the log store of an object store that is asked for."""
    if S3A in stores_in(given) and not has_log_store(dict(spark.sparkContext.getConf().getAll())):
        raise SetupError(
            f"{STORES}: s3a: the Spark that runs already has no log store for s3a: that admits one writer. Start it by "
            f"start(), or with {S3A_LOG_STORE} set to one."
        )
