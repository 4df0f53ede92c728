"""A scheduler of a benchmark: `python -m streamtopic.lab.bench.snapshot_child REDIS TOPICS` counts and learns.

Prints, as JSON: seconds to a snapshot and to its counts, of learning, words, pairs, and the process's peak memory.
"""

import json
import sys
import time

import numpy as np

from streamtopic.lab.bench.figures import peak_bytes


def main(redis_url: str, topics: str) -> None:
    """Read and learn once each."""
    from streamtopic.errors import CannotLearn
    from streamtopic.state import Connection, Reader
    from streamtopic.topics.learner import learn
    from streamtopic.topics.learner_options import LearnerOptions

    with Connection(redis_url) as connection:
        start = time.perf_counter()
        snapshot = Reader(connection, "bench", 1).snapshot()
        read = time.perf_counter() - start
        found = {"words": len(snapshot.words), "hapaxes": int(np.count_nonzero(snapshot.frequency == 1))}
        held = peak_bytes()
        start = time.perf_counter()
        try:
            fit = learn(snapshot, LearnerOptions(n_topics=int(topics)))
            found["used"] = len(fit.words)
        except CannotLearn as error:
            sys.stderr.write(f"{error}\n")
        learned = time.perf_counter() - start
    print(json.dumps({"snapshot": read, "snapshot_peak": held, "learn": learned, "peak": peak_bytes(), **found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
