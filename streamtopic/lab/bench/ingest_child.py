"""An ingest of a benchmark: `python -m streamtopic.lab.bench.ingest_child SERVERS REDIS MODEL COUNT CORE PARTITION...`.

It owns some of the COUNT partitions and runs on one core (-1: on any). It counts the records that are there and prints
how many. After that each line of its input is `count` or `merge`: it does that and prints the number of records.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from streamtopic.lab.bench.feed import feed
from streamtopic.lab.bench.ingest_processes import ANY_CORE
from streamtopic.state import compact

if TYPE_CHECKING:
    from streamtopic.service.ingest.partition_ingest import Ingest


def main(servers: str, redis_url: str, model: str, count: str, core: str, *partitions: str) -> None:
    """Count, then do what each line of standard input says, until it ends."""
    if int(core) != ANY_CORE and hasattr(os, "sched_setaffinity"):
        usable = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {usable[int(core) % len(usable)]})
    with feed(servers, redis_url, model, int(count)) as found:
        ingests = [found.ingest(int(partition)) for partition in partitions]
        print(_count(ingests), flush=True)
        for line in sys.stdin:
            records = _count(ingests) if line.strip() == "count" else _merge(ingests)
            print(records, flush=True)


def _count(ingests: list[Ingest]) -> int:
    """Count to the end of the log, a flush of each partition in turn; return the number of records."""
    records = 0
    while found := sum([ingest.step().records for ingest in ingests]):
        records += found
    return records


def _merge(ingests: list[Ingest]) -> int:
    for ingest in ingests:
        compact(ingest.state, everything=True)
    return 0


if __name__ == "__main__":
    main(*sys.argv[1:])
