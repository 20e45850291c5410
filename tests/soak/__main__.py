"""python -m tests.soak [--minutes N] [--seed S] [--folder F] [--store s3|hdfs]: exit code 1 where a view was wrong."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from deltafold.lake.remote.lease import LEASE_VARIABLE
from deltafold.spark.host.keeper import publish
from deltafold.spark.session import start
from tests.lake.remote import s3_server
from tests.lake.remote.hdfs_server import HdfsServer
from tests.lake.remote.s3_server import S3Server
from tests.soak.child import SETTINGS, STORE_VARIABLE, store_settings
from tests.soak.run import Soak
from tests.soak.soak_sandbox import ROOT_VARIABLE, SoakSandbox

FEW_ROWS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}  # twice as quick


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path, help="where the warehouse is made; kept where something was wrong")
    parser.add_argument("--store", choices=("s3", "hdfs"), help="of the warehouse, a server that is started for it")
    told = parser.parse_args()
    until = time.monotonic() + told.minutes * 60
    print(f"seed {told.seed}", flush=True)
    folder = told.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    server = start_store(told.store, folder) if told.store else None
    spark = start("soak", master="local[2]", memory="2g", settings=SETTINGS | FEW_ROWS | store_settings())
    publish(spark, folder / "host" / "host.json")  # in a folder that nobody else may enter
    world = SoakSandbox(spark, folder / "world").create()
    soak = Soak(world, told.seed, str(folder / "host" / "host.json"), lambda line: print(line, flush=True))
    try:
        tally = soak.run(until=until)
    finally:
        if server is not None:
            server.kill()
    print("\n".join([f"seed {told.seed}", *tally.lines()]))
    if tally.faults:
        print(f"see {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def start_store(kind: str, folder: Path) -> S3Server | HdfsServer:
    """Start a store, and tell this process and its children of the warehouse in it."""
    folder = folder / "store"
    folder.mkdir()
    built = s3_server.program() if kind == "s3" else None
    if kind == "s3" and built is None:
        raise SystemExit("There is no Go to build the S3 server with. Install it, or soak with --store hdfs.")
    server = HdfsServer(folder) if built is None else S3Server(built, folder)
    os.environ |= {ROOT_VARIABLE: f"{server.root}/soak", STORE_VARIABLE: json.dumps(server.settings)}
    os.environ.setdefault(LEASE_VARIABLE, "5")  # a process that is killed keeps its lease
    return server


if __name__ == "__main__":
    sys.exit(main())
