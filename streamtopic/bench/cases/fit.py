"""From documents to a model with the estimator: processor time, documents a second, peak memory; inference.

Made-up posts of planted topics: Zipf words, lengths log-normal with a mean of 66 tokens, which is as heavy-tailed as
newsgroups are. `matrix` starts from word counts as a vectoriser makes them, `text` from lines of text. They are drawn
in another process, so that memory is that of whoever fits.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from streamtopic.bench.runner import Option

__all__ = ["CASES", "OPTIONS"]

OPTIONS: dict[str, Option] = {"posts": 18_771, "words": 5_000, "topics": 50}
TOKENS = 66
_MEMORY, _SECONDS, _RATE = "<= 350 (goal)", "<= 4", ">= 15,000"


def _case(kind: str, posts: int, words: int, topics: int) -> list[Figure]:
    from threadpoolctl import threadpool_limits

    from streamtopic.bench.drawn import drawn, peak_megabytes
    from streamtopic.topics.estimator import AnchorTopics

    with TemporaryDirectory() as name, threadpool_limits(1):
        folder = Path(name)
        drawn(folder, posts, words, topics, TOKENS)
        # Compiles, or loads what is compiled: part of the program's own memory, not of these seconds.
        AnchorTopics(2, min_df=1, min_share=0.0, max_df=1.0).fit(np.random.default_rng(0).poisson(0.5, (200, 60)))
        begin = peak_megabytes()
        clock, used = time.perf_counter(), time.process_time()
        model = AnchorTopics(topics, min_df=1, min_share=0.0, max_df=1.0)
        # Without a name here, so that the estimator can give the matrix back.
        model.fit(_matrix(folder, words) if kind == "matrix" else _text(folder))
        used, wall = time.process_time() - used, time.perf_counter() - clock
        peak = peak_megabytes()
        X = _matrix(folder, words) if kind == "matrix" else _text(folder)
        model.transform(X[:100])
        clock = time.process_time()
        model.transform(X)
        inferred = time.process_time() - clock
    return [
        Figure("documents to model", used, "CPU s", _SECONDS if kind == "matrix" else ""),
        Figure("documents a second", posts / wall, "documents/s"),
        Figure("entries of Q", model.fit_.q.entries, "entries"),
        Figure("memory of the program itself", begin, "MB"),
        Figure("peak memory", peak, "MB", _MEMORY),
        Figure("transform", posts / inferred, "documents/CPU s", _RATE if kind == "matrix" else ""),
    ]


def _matrix(folder: Path, words: int) -> csr_array:
    """Read word counts."""
    from scipy.sparse import csr_array

    with np.load(folder / "posts.npz") as found:
        return csr_array((found["counts"], found["words"], found["indptr"]), shape=(len(found["lengths"]), words))


def _text(folder: Path) -> csr_array:
    """Read lines and count their words."""
    from streamtopic.text_counts import TextCounts

    with (folder / "posts.txt").open(encoding="utf-8") as lines:
        return TextCounts().fit_transform(lines)


CASES = {kind: partial(_case, kind) for kind in ("matrix", "text")}
