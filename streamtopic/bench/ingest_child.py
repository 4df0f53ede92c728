"""An ingest process of a benchmark: `python -m streamtopic.bench.ingest_child SERVERS REDIS MODEL PARTITION...`.

Counts what is there, says so, waits for a line, counts what is there then, and says so again.
"""

import sys

from streamtopic.bench.feed import feed


def main(servers: str, redis_url: str, model: str, *partitions: str) -> None:
    """Count twice, the second time when told to."""
    with feed(servers, redis_url, model, 2) as found:
        ingests = [found.ingest(int(partition)) for partition in partitions]
        for answer in ("ready", "done"):
            while sum(ingest.step().records for ingest in ingests):
                pass
            print(answer, flush=True)
            sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
