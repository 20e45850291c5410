"""Run an S3 server on the loopback address: versitygw, built from its Go module at the first use."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from deltafold.spark.cache import cache_folder
from tests.ports import free_ports, wait_for_port

MODULE, RELEASE = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"
BUCKET = "lake"


def program() -> Path | None:
    """Return the server's program, None where there is no Go to build it."""
    folder = cache_folder("versitygw")
    if not (folder / "versitygw").exists():
        if shutil.which("go") is None:
            return None
        subprocess.run(["go", "install", f"{MODULE}@{RELEASE}"], env=os.environ | {"GOBIN": str(folder)}, check=True)
    return folder / "versitygw"


class S3Server:
    """A server whose objects survive its process."""

    def __init__(self, built: Path, folder: Path) -> None:
        (folder / "data" / BUCKET).mkdir(parents=True)
        self._built, self.folder, (self.port,) = built, folder, free_ports(1)
        self.start()

    @property
    def root(self) -> str:
        """The folder that tests use."""
        return f"s3a://{BUCKET}/team"

    @property
    def settings(self) -> dict[str, str]:
        """The settings of a Spark that uses it, and gives up soon where it does not answer."""
        store = {
            "endpoint": f"http://127.0.0.1:{self.port}",
            "endpoint.region": "us-east-1",
            "access.key": "tester",
            "secret.key": "of-this-test-alone",
            "path.style.access": "true",
            "attempts.maximum": "2",
            "retry.limit": "2",
            "retry.interval": "100ms",
        }
        return {
            "spark.deltafold.stores": "s3a",
            **{f"spark.hadoop.fs.s3a.{name}": value for name, value in store.items()},
        }

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        keys = {"ROOT_ACCESS_KEY": "tester", "ROOT_SECRET_KEY": "of-this-test-alone"}
        command = [str(self._built), "--port", f"127.0.0.1:{self.port}", "posix", str(self.folder / "data")]
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(command, env=os.environ | keys, stdout=log, stderr=log)
        wait_for_port(self.port, self._process, self.folder / "log", 30)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
