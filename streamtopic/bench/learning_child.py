"""A scheduler of a benchmark: `python -m streamtopic.bench.learning_child REDIS TOPICS` reads and learns.

Prints, as JSON: seconds of reading the statistics of words and of learning, words, and the process's peak memory.
"""

import json
import sys
import time

import numpy as np

from streamtopic.bench.figures import peak_bytes


def main(redis_url: str, topics: str) -> None:
    """Read and learn once each."""
    from streamtopic.errors import CannotLearn
    from streamtopic.state import Connection, Reader
    from streamtopic.topics.learner import learn
    from streamtopic.topics.learner_options import LearnerOptions

    with Connection(redis_url) as connection:
        start = time.perf_counter()
        counts = Reader(connection, "bench", 1).counts()
        read = time.perf_counter() - start
        found = {"words": len(counts.words), "hapaxes": int(np.count_nonzero(counts.frequency == 1))}
        held = peak_bytes()
        start = time.perf_counter()
        try:
            fit = learn(counts, LearnerOptions(n_topics=int(topics)))
            found["used"] = len(fit.words)
        except CannotLearn as error:
            sys.stderr.write(f"{error}\n")
        learned = time.perf_counter() - start
    print(json.dumps({"read": read, "read_peak": held, "learn": learned, "peak": peak_bytes(), **found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
