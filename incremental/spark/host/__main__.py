"""Keep a Spark warm: `python -m incremental.spark.host FILE [--wanted]`, in the foreground until it is interrupted."""

from __future__ import annotations

import sys

from incremental.algebra.local_path import local_path
from incremental.spark.cache import SetupError
from incremental.spark.host.address import COMMAND
from incremental.spark.host.keeper import keep
from incremental.spark.host.wanted import WantedSpark

if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--wanted"]):
        sys.exit(f"usage: {COMMAND} FILE [--wanted]  (--wanted: read the Spark's settings as JSON from standard input)")
    try:
        wanted = WantedSpark.of_json(sys.stdin.read()) if sys.argv[2:] else WantedSpark()
        sys.exit(keep(local_path("Spark host", sys.argv[1], SetupError), wanted))
    except SetupError as error:
        sys.exit(str(error))
