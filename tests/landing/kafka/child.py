"""Land a Kafka topic in a process of its own, in many small batches, until it is killed.

python -m tests.landing.kafka.child WAREHOUSE SERVERS
"""

from __future__ import annotations

import sys

from incremental.api import Stream, Warehouse, start

SCHEMA = "id INT, _partition INT, _offset BIGINT"


def clicks(servers: str, batch: int) -> Stream:
    """The topic `clicks`, in batches of so many messages."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": "clicks", "maxOffsetsPerTrigger": str(batch)}
    return Stream("kafka", SCHEMA, options=options, malformed="quarantine")


def main(root: str, servers: str) -> None:
    warehouse = Warehouse(start("kafka child", master="local[1]", memory="1g"), root)
    warehouse.source("clicks", clicks(servers, 20))
    print("landing", flush=True)
    warehouse.land("clicks")
    print("landed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
