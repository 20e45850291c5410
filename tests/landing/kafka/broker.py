"""Run a Kafka broker on the loopback address, from the jars of its own release: one process, broker and controller."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from deltafold.spark.jvm.jars import JarPackage, add_jars, kafka_package, provide_jars
from deltafold.spark.jvm.java import provide_java
from tests.ports import free_ports, wait_for_port

KAFKA = JarPackage("org.apache.kafka:kafka_2.13:4.1.0", "", "Kafka's broker")
MAIN, FORMAT = "kafka.Kafka", "kafka.tools.StorageTool"
JAVA = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{1}
listeners=PLAINTEXT://127.0.0.1:{0},CONTROLLER://127.0.0.1:{1}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={2}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
num.partitions=2
"""


class Broker:
    """A broker whose messages survive its process."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        folder.mkdir()
        self._folder, (port, controller) = folder, free_ports(2)
        self._settings = folder / "server.properties"
        self._settings.write_text(SETTINGS.format(port, controller, folder / "data") + settings)
        self.port, self.address = port, f"127.0.0.1:{port}"
        self._java(FORMAT, "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._settings)).wait()
        self.start()

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        self._process = self._java(MAIN, str(self._settings))
        wait_for_port(self.port, self._process, self._folder / "log", 120)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def send(self, spark: SparkSession, topic: str, rows: list[tuple[str | None, str | None]]) -> None:
        """Send messages (key, value); those of one key stay in order."""
        add_jars(spark, kafka_package())
        frame = spark.createDataFrame(rows, "key STRING, value STRING").coalesce(1)
        frame.write.format("kafka").option("kafka.bootstrap.servers", self.address).option("topic", topic).save()

    def _java(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        jars, scala = provide_jars(KAFKA), Path(pyspark.__file__).parent / "jars"  # Spark's resolution leaves Scala out
        path = ":".join([f"{jars[0].parent}/*", *map(str, scala.glob("scala-[lr]*.jar"))])
        command = [str(provide_java().home / "bin" / "java"), *JAVA, "-cp", path, main, *arguments]
        with (self._folder / "log").open("a") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self._folder)
