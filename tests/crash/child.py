"""Refresh a view in a process that is killed on the way.

python -m tests.crash.child HOST FOLDER KIND STAGE HOW STOP
HOST: the file of a running Spark, or `own`. HOW: `kill` at the point, `during` the write that the point begins, `hold`
the lock at the point until killed, `pause` for a second there and go on. STOP: the point, as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from functools import partial
from pathlib import Path

from deltafold.spark.host.guest import attach
from deltafold.spark.session import start
from tests.crash.crash_sandbox import CrashSandbox
from tests.crash.points import kill_process, watched
from tests.crash.stages import STAGES

SHORT = 0.15  # seconds after which a write has begun and is not over yet


def kill_soon() -> None:
    threading.Timer(SHORT, kill_process).start()


def hold(seconds: float) -> None:
    print("holding", flush=True)
    time.sleep(seconds)


def main(host: str, folder: str, kind: str, stage: str, how: str, stop: str) -> None:
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}
    spark = start("crash", master="local[2]", memory="1g", settings=settings) if host == "own" else attach(Path(host))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    named = json.loads(stop)
    point = named if isinstance(named, int) else (named[0], named[1])
    world = CrashSandbox(spark, Path(folder), kind)
    ends = {"kill": kill_process, "during": kill_soon, "hold": partial(hold, 600), "pause": partial(hold, 1)}
    with watched(point, ends[how]):
        STAGES[stage].run(world)


if __name__ == "__main__":
    main(*sys.argv[1:])
