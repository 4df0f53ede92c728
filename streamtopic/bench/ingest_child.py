"""An ingest of a benchmark: `python -m streamtopic.bench.ingest_child SERVERS REDIS MODEL COUNT CORE PARTITION...`.

It owns some of the COUNT partitions and runs on one core (-1: on any). It counts the records that are there and prints
how many, and does so again for each line of its input.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from streamtopic.bench.feed import feed
from streamtopic.bench.ingest_processes import ANY_CORE

if TYPE_CHECKING:
    from streamtopic.service.ingest.partition_ingest import Ingest


def main(servers: str, redis_url: str, model: str, count: str, core: str, *partitions: str) -> None:
    """Count, and count again for each line of standard input, until it ends."""
    if int(core) != ANY_CORE and hasattr(os, "sched_setaffinity"):
        usable = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {usable[int(core) % len(usable)]})
    with feed(servers, redis_url, model, int(count)) as found:
        ingests = [found.ingest(int(partition)) for partition in partitions]
        print(_count(ingests), flush=True)
        for _ in sys.stdin:
            print(_count(ingests), flush=True)


def _count(ingests: list[Ingest]) -> int:
    """Count to the end of the log, a flush of each partition in turn; return the number of records."""
    records = 0
    while found := sum([ingest.step().records for ingest in ingests]):
        records += found
        for ingest in ingests:
            ingest.sum_if_due()
    return records


if __name__ == "__main__":
    main(*sys.argv[1:])
