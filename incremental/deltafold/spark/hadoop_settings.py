"""Drop the settings of Hadoop's cluster managers from a Spark that runs in one process.

Hadoop loads 1,100 settings with its defaults, 720 of them for YARN and the jobs of MapReduce. Spark copies all of
them for each query, and sends all of them to the tasks of each scan, compressed one by one: a quarter of the time
of a scan of a small table. Where Hadoop's classes read one of these, they have the same default in their code.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from deltafold.spark import catalyst

LOADERS = ("mapred.JobConf", "hdfs.HdfsConfiguration")  # classes of org.apache.hadoop that make it load its files again
FILES = ("yarn-default.xml", "mapred-default.xml")
UNUSED = r"^(yarn|mapreduce\.(am|cluster|job|jobhistory|map|reduce|shuffle|task))\."  # not: committer, input, output


def drop_cluster_settings(spark: SparkSession) -> None:
    """Unset what this Spark never uses, where it still has Hadoop's default; what a user set stays."""
    java = catalyst.jvm(spark)
    for name in LOADERS:  # as the first scan would
        java.java.lang.Class.forName(f"org.apache.hadoop.{name}")
    defaults = java.org.apache.hadoop.conf.Configuration(False)
    for file in FILES:
        defaults.addResource(file)
    settings = catalyst.context(spark).hadoopConfiguration()
    unused = settings.getValByRegex(UNUSED)
    unused.entrySet().retainAll(defaults.getValByRegex(UNUSED).entrySet())
    # a loop within Java: a call of each from here takes longer than the first scans gain
    text, nothing = java.java.lang.Class.forName("java.lang.String"), java.java.lang.Void.TYPE
    unset = java.java.lang.invoke.MethodHandles.publicLookup().bind(
        settings, "unset", java.java.lang.invoke.MethodType.methodType(nothing, text)
    )
    consumer = java.java.lang.Class.forName("java.util.function.Consumer")
    unused.keySet().forEach(java.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(consumer, unset))
