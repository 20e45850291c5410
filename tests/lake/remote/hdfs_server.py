"""Run an HDFS of one node on the loopback address, from Hadoop's own jars, downloaded at the first use."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from deltafold.spark.jvm.jars import JarPackage, provide_jars
from deltafold.spark.jvm.java import launch_environment, provide_java
from deltafold.spark.jvm.object_stores import compile_java, hadoop_release
from tests.ports import free_ports

SOURCE = Path(__file__).with_name("HdfsNode.java")
CARRIED = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime,org.slf4j:*,junit:*,org.junit*:*"


class HdfsServer:
    """A node whose files survive its process."""

    def __init__(self, folder: Path) -> None:
        self._java, self.folder, (self.port,) = provide_java(), folder, free_ports(1)
        spark = Path(launch_environment(self._java)["SPARK_HOME"]) / "jars"
        coordinate = f"org.apache.hadoop:hadoop-client-minicluster:{hadoop_release(spark)}"
        package = JarPackage(coordinate, CARRIED, "HDFS", ("commons-logging:commons-logging:1.2",))
        self._classes = [folder / "classes", *provide_jars(package, self._java), *sorted(spark.glob("*.jar"))]
        self._classes[0].mkdir()
        compile_java(self._java, spark, SOURCE, self._classes[1:], self._classes[0])
        self.start("new")

    @property
    def root(self) -> str:
        """The folder that tests use."""
        return f"hdfs://127.0.0.1:{self.port}/team"

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a Spark that gives up soon where it does not answer."""
        client = {"connect.max.retries": "2", "connect.retry.interval": "200", "connect.timeout": "2000"}
        return {f"spark.hadoop.ipc.client.{name}": value for name, value in client.items()}

    def start(self, *how: str) -> None:
        """Start the process, and wait until it answers."""
        path = os.pathsep.join(map(str, self._classes))
        command = [str(self._java.home / "bin" / "java"), "-Xmx300m", "-cp", path, SOURCE.stem]
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                [*command, str(self.port), str(self.folder / "hdfs"), *how],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        assert any(line == "ready\n" for line in self._process.stdout), (self.folder / "log").read_text()[-2000:]

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
