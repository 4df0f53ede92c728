"""Topics that keep their number over versions: how many, where each version has other documents than the one before."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamtopic.signed import Release
    from streamtopic.topics.estimator import AnchorTopics

__all__ = ["CASES", "OPTIONS", "as_release"]

OPTIONS = {"documents": "", "topics": 20, "versions": 50, "seed": 1}
"""documents: a file of JSON lines, installed docstrings if none is given; seed: of documents that come and go."""

_TOP = 10


def as_release(model: AnchorTopics, words: Sequence[str], version: int) -> Release:
    """Return a fitted model as a subscriber would have it, before noise. words: of the model's columns."""
    from streamtopic.signed import Envelope, Payload, Release

    columns, _ = model.word_places()
    A = model.components_.T[columns]
    r = A.shape[1]
    names = tuple(words[column] for column in columns.tolist())
    top = tuple(row.words for row in sorted(model.topic_info(words, top=_TOP)))
    R = np.eye(r, dtype=np.float32) / r
    payload = Payload(names, A.astype(np.float32), R, model.topic_shares_, top, anchors=model.topic_names_)
    envelope = Envelope(
        model="bench", version=version, kind="unlearn", parent=version - 1, base=1, cut={0: 0},
        m=model.n_documents_, n=len(names), r=r, guarantee="certified", epsilon=1.0, delta=1e-6, sigma=0.0,
        tolerance=1e-7, certificate=model.certificate_, forgotten=0, capacity=0, capacity_rule="share",
        cumulative_epsilon=1.0, withdrawn=(), created=0,
    )  # fmt: skip
    return Release(payload, envelope)


def _case(rate: float, documents: str, topics: int, versions: int, seed: int) -> list[Figure]:
    """In each version, a share of the documents goes and as many others come."""
    from streamtopic.client.topic_book import TopicBook
    from streamtopic.documents.corpus import load_docstrings, load_jsonl
    from streamtopic.text_counts import TextCounts
    from streamtopic.topics.estimator import AnchorTopics

    corpus = load_jsonl(Path(documents)) if documents else load_docstrings()
    counts = TextCounts()
    X = counts.fit_transform([one.text for one in corpus.documents])
    rng = np.random.default_rng(seed)
    waiting = rng.permutation(X.shape[0])
    there, waiting = np.split(waiting, [2 * len(waiting) // 3])
    moved = max(1, int(rate * len(there)))
    model = AnchorTopics(topics).fit(X[there])
    book = TopicBook()
    before = {topic.id: topic for topic in book.follow(as_release(model, counts.words_, 1))}
    kept = alike = cold = 0
    spent = 0.0
    for version in range(2, versions + 1):
        gone, there = there[:moved], there[moved:]
        come, waiting = waiting[:moved], waiting[moved:]
        model.unlearn(X[gone]).partial_fit(X[come])
        cold += model.retrain_reason_ is not None
        there, waiting = np.append(there, come), np.append(waiting, gone)
        release = as_release(model, counts.words_, version)
        start = time.perf_counter()
        now = {topic.id: topic for topic in book.follow(release)}
        spent += time.perf_counter() - start
        same = now.keys() & before.keys()
        kept += len(same)
        alike += sum(_alike(now[number].words, before[number].words) for number in same)
        before = now
    pairs = topics * (versions - 1)
    return [
        Figure("documents", len(there), "documents"),
        Figure("documents that go and come a version", moved, "documents"),
        Figure("topics that keep their number", 100 * kept / pairs, "%", "97"),
        Figure("of these, with half of their ten words or more", 100 * alike / max(kept, 1), "%"),
        Figure("topics of the first version that are there at the end", sum(n <= topics for n in before), "topics"),
        Figure("cold starts", cold, f"of {versions - 1}"),
        Figure("following a version", 1000 * spent / (versions - 1), "ms"),
    ]


def _alike(now: Mapping[str, float], before: Mapping[str, float]) -> bool:
    """Return whether two topics share half of their ten most frequent words. Words come in this order."""
    return len({*list(now)[:_TOP]} & {*list(before)[:_TOP]}) >= _TOP // 2


CASES = {"one-in-100": partial(_case, 0.01), "one-in-20": partial(_case, 0.05)}
