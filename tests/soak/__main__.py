"""python -m tests.soak [--minutes N] [--seed S] [--folder F]: exit code 1 where a view was ever wrong."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from incremental.spark.host.keeper import publish
from incremental.spark.session import start
from tests.soak.child import SETTINGS
from tests.soak.run import Soak
from tests.soak.soak_sandbox import SoakSandbox

FEW_ROWS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}  # twice as quick


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path, help="where the warehouse is made; kept where something was wrong")
    told = parser.parse_args()
    until = time.monotonic() + told.minutes * 60
    print(f"seed {told.seed}", flush=True)
    folder = told.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    spark = start("soak", master="local[2]", memory="2g", settings=SETTINGS | FEW_ROWS)
    publish(spark, folder / "host" / "host.json")  # in a folder that nobody else may enter
    world = SoakSandbox(spark, folder / "world").create()
    soak = Soak(world, told.seed, str(folder / "host" / "host.json"), lambda line: print(line, flush=True))
    tally = soak.run(until=until)
    print("\n".join([f"seed {told.seed}", *tally.lines()]))
    if tally.faults:
        print(f"see {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
