"""An ingest of a benchmark: `python -m streamtopic.lab.bench.ingest_child SERVERS REDIS MODEL CORE PARTITION...`.

It runs on one core (-1: on any), counts the records that are there, reports, waits for a line, counts the records that
are there then, and reports again.
"""

import os
import sys

from streamtopic.lab.bench.feed import feed


def main(servers: str, redis_url: str, model: str, core: str, *partitions: str) -> None:
    """Count twice, the second time after a line on standard input."""
    if core != "-1" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[int(core)]})
    with feed(servers, redis_url, model, 2) as found:
        ingests = [found.ingest(int(partition)) for partition in partitions]
        for answer in ("ready", "done"):
            while sum(ingest.step().records for ingest in ingests):
                pass
            print(answer, flush=True)
            sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
