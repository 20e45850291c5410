"""Keep a Spark warm: `python -m deltafold.spark.host FILE [--wanted]`, in the foreground until it is interrupted."""

from __future__ import annotations

import sys

from deltafold.algebra.local_path import local_path
from deltafold.spark.cache import SetupError
from deltafold.spark.host.address import COMMAND
from deltafold.spark.host.keeper import keep
from deltafold.spark.host.wanted import WantedSpark

if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--wanted"]):
        sys.exit(f"usage: {COMMAND} FILE [--wanted]  (--wanted: read the Spark's settings as JSON from standard input)")
    try:
        wanted = WantedSpark.of_json(sys.stdin.read()) if sys.argv[2:] else WantedSpark()
        sys.exit(keep(local_path("Spark host", sys.argv[1], SetupError), wanted))
    except SetupError as error:
        sys.exit(str(error))
