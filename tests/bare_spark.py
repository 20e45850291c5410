"""Leave out work of the session's Spark that serves nobody in tests: a quarter of the time of Java in small refreshes.

By night Spark does all of it.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

RELEASE = "4.2."  # of the Spark that has these classes
CLEANER = "org.apache.spark.util.SparkClosureCleaner$"
CLEANER_SOURCE = """
package org.apache.spark.util;

public final class SparkClosureCleaner$ {
    public static final SparkClosureCleaner$ MODULE$ = new SparkClosureCleaner$();
    public Object clean(Object closure, boolean checked, boolean transitively) { return closure; }
    public boolean clean$default$2() { return true; }
    public boolean clean$default$3() { return true; }
}
"""
FORGETFUL = "org.apache.spark.util.ForgetfulMap"
FORGETFUL_SOURCE = """
package org.apache.spark.util;

public final class ForgetfulMap extends java.util.concurrent.ConcurrentHashMap {
    public Object compute(Object key, java.util.function.BiFunction function) { return Long.valueOf(0); }
}
"""
COUNTERS = ("timeMap", "numRunsMap", "numEffectiveRunsMap", "timeEffectiveRunsMap")


def leave_out_checks(spark: SparkSession) -> None:
    """Replace the cleaner of closures, before a first job loads it, and the counters of rules (D-219).

    Earlier releases have others, and do all of it.
    """
    if not spark.version.startswith(RELEASE):
        return
    java: Any = spark._jvm
    define(java, CLEANER, CLEANER_SOURCE)
    define(java, FORGETFUL, FORGETFUL_SOURCE)
    meter = getattr(getattr(java.org.apache.spark.sql.catalyst.rules, "RuleExecutor$"), "MODULE$").queryExecutionMeter()
    for name in COUNTERS:
        counter = field_of(meter, name).get(meter)
        field_of(counter, "map").set(counter, java.org.apache.spark.util.ForgetfulMap())


def define(java: Any, name: str, source: str) -> None:
    """Define a class beside Spark's own, compiled by the compiler that Spark has for its queries."""
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.cook(f"{name}.java", java.java.io.StringReader(source))
    handles = java.java.lang.invoke.MethodHandles
    neighbour = java.java.lang.Class.forName("org.apache.spark.util.Utils")
    handles.privateLookupIn(neighbour, handles.lookup()).defineClass(compiler.getBytecodes().get(name))


def field_of(of: Any, name: str) -> Any:
    """A private field of a Java object."""
    field = of.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field
