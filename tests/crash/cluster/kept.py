"""Compute rows once on a cluster, wait for a line of input, and use them.

python -m tests.crash.cluster.kept ADDRESS [DIR]
DIR: the folder of checkpoints. Prints `computed`, then the number of rows, or the reason why they are lost.
"""

from __future__ import annotations

import sys

from deltafold.spark.catalyst import JavaError
from deltafold.spark.checkpoint import computed_once
from deltafold.spark.java_errors import cause
from deltafold.spark.session import start


def main(address: str, folder: str | None) -> None:
    settings = {"spark.executor.memory": "768m", "spark.executor.cores": "1"}
    settings |= {"spark.checkpoint.dir": folder} if folder else {}
    spark = start("kept", master=address, memory="1g", settings=settings)
    spark.range(0, 100, 1, 20).foreach(lambda _: None)  # both executors are there
    with computed_once(spark.range(0, 1000, 1, 8).selectExpr("id", "uuid() u"), now=True) as kept:
        print("computed", flush=True)
        sys.stdin.readline()
        try:
            print(kept.distinct().count())
        except JavaError as error:
            print(cause(error))


if __name__ == "__main__":
    main(sys.argv[1], *(sys.argv[2:] or [None]))
