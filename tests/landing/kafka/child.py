"""Land a Kafka topic in a process of its own, in many small batches, until it is killed.

python -m tests.landing.kafka.child WAREHOUSE SERVERS [HOST]
HOST: the file of a running Spark; without it, one of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deltafold.api import Stream, Warehouse, start
from deltafold.spark.host.guest import attach

SCHEMA = "id INT, _partition INT, _offset BIGINT"


def clicks(servers: str, batch: int, topic: str = "clicks") -> Stream:
    """A topic, in batches of so many messages."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "maxOffsetsPerTrigger": str(batch)}
    return Stream("kafka", SCHEMA, options=options, malformed="quarantine")


def main(root: str, servers: str, *host: str) -> None:
    spark = attach(Path(host[0])) if host else start("kafka child", master="local[1]", memory="1g")
    warehouse = Warehouse(spark, root)
    warehouse.source("clicks", clicks(servers, 20, "guests" if host else "clicks"))
    print("landing", flush=True)
    warehouse.land("clicks")
    print("landed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
