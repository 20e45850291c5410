"""Run the day's sample of the corpus in a warehouse on a store, tables of others too: a line for each query.

python -m tests.corpus.on_store ROOT, Spark's settings as JSON in the variable STORE; fails where an answer is wrong.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import cast

from deltafold.lake.remote.remote_path import place_of
from deltafold.spark.session import start
from tests.conftest import SMALL
from tests.corpus.test_corpus import SAMPLE, check
from tests.sandbox import DeltaSandbox

PLAIN = SMALL | {"spark.sql.adaptive.enabled": "false"}


def main(root: str) -> None:
    spark = start("corpus", master="local[2]", memory="2g", settings=json.loads(os.environ["STORE"]) | PLAIN)
    for name, sample in SAMPLE.items():
        for number in sample:
            place = cast(Path, place_of(f"{root}/{name}{number}"))  # a sandbox uses of it what both have
            check(DeltaSandbox(spark, place), (name, number), 2)
            print(f"checked {name} {number}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
