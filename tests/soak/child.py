"""Run one piece of work in a process that may be killed on the way.

python -m tests.soak.child HOST FOLDER TOLD
HOST: the file of a running Spark, or `own`. TOLD: JSON of the arguments of work.do, of how and where it ends: `how`
is `kill` at the point, `during` the write that the point begins, or `not`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from deltafold.algebra.errors import DeltafoldError
from deltafold.spark.host.guest import attach
from deltafold.spark.session import start
from tests.crash.child import kill_soon
from tests.crash.points import kill_process, watched
from tests.soak.soak_sandbox import SoakSandbox
from tests.soak.work import do

REFUSED = 3
SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}
STORE_VARIABLE = "SOAK_STORE"


def store_settings() -> dict[str, str]:
    """The settings of a Spark that reaches the store of the warehouse; none for a local one."""
    return json.loads(os.environ.get(STORE_VARIABLE, "{}"))


def main(host: str, folder: str, told: str) -> int:
    work = json.loads(told)
    how, stop = work.pop("how"), work.pop("stop")
    settings = SETTINGS | store_settings()
    spark = start("soak", master="local[2]", memory="1g", settings=settings) if host == "own" else attach(Path(host))
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    with watched(stop, {"kill": kill_process, "during": kill_soon, "not": lambda: None}[how]):
        try:
            print(do(SoakSandbox(spark, Path(folder)), **work))
        except DeltafoldError as error:
            print(error)
            return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
