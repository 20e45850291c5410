"""Run a Hive metastore on the loopback address, from Spark's own jars, with its tables in Derby."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from deltafold.spark.jvm.java import launch_environment, provide_java
from tests.ports import free_ports, wait_for_port

MAIN = "org.apache.hadoop.hive.metastore.HiveMetaStore"
JAVA = ["-Xmx300m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


class HiveMetastore:
    """A server whose databases survive its process; settings: Hive's own, beside those of a new one."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self.folder, (self.port,) = folder, free_ports(1)
        own = {
            "hive.async.log.enabled": "false",
            "hive.metastore.schema.verification": "false",
            "datanucleus.schema.autoCreateAll": "true",
            "datanucleus.connectionPoolingType": "none",  # Spark lacks the jar of the default
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder / 'metastore'};create=true",
            "hive.metastore.warehouse.dir": str(folder / "hive"),
            "derby.stream.error.file": str(folder / "derby.log"),
        }
        self._options = [f"-D{name}={value}" for name, value in (own | (settings or {})).items()]
        self.start()

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a Spark that uses it."""
        uris = {"spark.hadoop.hive.metastore.uris": f"thrift://127.0.0.1:{self.port}"}
        folder = {"spark.sql.warehouse.dir": str(self.folder / "hive")}
        return {"spark.sql.catalogImplementation": "hive", **uris, **folder}

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        java = provide_java()
        jars = Path(launch_environment(java)["SPARK_HOME"]) / "jars"
        command = [str(java.home / "bin" / "java"), *JAVA, *self._options, "-cp", f"{jars}/*", MAIN]
        with (self.folder / "metastore.log").open("a") as log:
            self._process = subprocess.Popen(
                [*command, "-p", str(self.port)], cwd=self.folder, stdout=log, stderr=log, env=os.environ
            )
        wait_for_port(self.port, self._process, self.folder / "metastore.log", 120)

    def pause(self) -> None:
        """Make it accept connections and answer nothing, as one that hangs."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
