"""What two published versions reveal: single deletions, each ranked among candidates by comparing the two.

Unlearning bounds what one version reveals about a forgotten document, not what its difference to the one before does.
The attacker holds both versions, noise and all, and 300 documents of which one was deleted. Each candidate is scored by
how well the fall of the words' probabilities fits that document; its words are read off if they fell clearly.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from streamtopic.bench.runner import Option
    from streamtopic.bench.twins import Twins
    from streamtopic.topics.fit import TopicFit

    Float = npt.NDArray[np.float64]

__all__ = ["CASES", "OPTIONS"]

OPTIONS: dict[str, Option] = {"documents": "", "topics": 20, "draws": 10, "seed": 1}
"""documents: a file of JSON lines, installed docstrings if none is given; draws: deletions, of one or one batch."""
CANDIDATES = 300
BATCH = 10
EPSILON, DELTA = 1.0, 1e-6
CLEAR = 6.0
"""A word fell if its probability did by this many times the spread of the middle half of all words."""


def _case(at_once: int, documents: str, topics: int, draws: int, seed: int) -> list[Figure]:
    """Delete `at_once` documents between two versions, `draws` times, each time from the whole corpus."""
    import numpy as np

    from streamtopic.audit.subtraction import fall, score
    from streamtopic.bench.twins import Twins
    from streamtopic.console import progress
    from streamtopic.documents.corpus import load_corpus
    from streamtopic.topics.learner_options import LearnerOptions

    twins = Twins(load_corpus(documents), LearnerOptions(n_topics=topics))
    rng = np.random.default_rng(seed)
    ranks, recovered, right = list[int](), list[float](), list[float]()
    before = _published(twins.fit, twins.options.tolerance, 0)
    with progress("deletions", "versions") as update:
        for draw in range(draws):
            candidates = rng.choice(twins.batch.documents, CANDIDATES, replace=False)
            gone = candidates[:at_once]
            after = _published(_without(twins, gone), twins.options.tolerance, draw + 1)
            fell = fall(before, after)
            scores = [score(_words(twins, int(document)), fell, before) for document in candidates]
            ranks += [1 + sum(other > scores[k] for other in scores) for k in range(at_once)]
            truth = {word for document in gone for word in _words(twins, int(document))} & fell.keys()
            clear = _clearly(fell)
            recovered.append(len(truth & clear) / len(truth))
            right.append(len(truth & clear) / max(len(clear), 1))
            update(draw + 1, draws)
    return [
        Figure("documents", twins.batch.documents, "documents"),
        Figure("candidates", CANDIDATES, "documents"),
        Figure("deletions", len(ranks), "documents"),
        Figure(
            "ranked first" if at_once == 1 else f"among the first {at_once}", _first(ranks, at_once), f"of {len(ranks)}"
        ),
        Figure("worst rank", max(ranks), f"of {CANDIDATES}"),
        Figure("words recovered, median", statistics.median(recovered), "of the deleted words"),
        Figure("words recovered, least", min(recovered), "of the deleted words"),
        Figure("words that fell and were deleted, median", statistics.median(right), "of those that fell"),
    ]


def _first(ranks: list[int], at_once: int) -> int:
    return sum(rank <= at_once for rank in ranks)


def _without(twins: Twins, gone: npt.NDArray[np.intp]) -> TopicFit:
    import numpy as np

    from streamtopic.counts import Counts, count
    from streamtopic.topics.learner import learn

    left = twins.batch.take(np.setdiff1d(np.arange(twins.batch.documents), gone))
    return learn(Counts(twins.words, count(left, len(twins.words), twins.options.weighting)), twins.options)


def _published(fit: TopicFit, tolerance: float, version: int) -> dict[str, float]:
    """Return the probability of each word as a subscriber computes it from a version: A times the topics' shares."""
    import numpy as np

    from streamtopic.audit.subtraction import probabilities
    from streamtopic.privacy.keystream import NoiseSeed
    from streamtopic.privacy.noise import CalibratedGuarantee, release_matrix
    from streamtopic.topics.display import topic_correlations

    seed = NoiseSeed(version.to_bytes(32, "big"))
    noised = release_matrix(fit.A, CalibratedGuarantee(EPSILON, DELTA, tolerance), seed)
    A = noised.matrix.astype(np.float32).astype(np.float64)
    return probabilities(fit.words, A, topic_correlations(fit, A).shares)


def _clearly(fell: dict[str, float]) -> set[str]:
    ordered = sorted(fell.values())
    spread = ordered[3 * len(ordered) // 4] - ordered[len(ordered) // 4]
    return {word for word, one in fell.items() if one > CLEAR * spread}


def _words(twins: Twins, document: int) -> dict[str, float]:
    """Return a document's words with their shares of its tokens."""
    import numpy as np

    one = twins.batch.take(np.array([document]))
    total = float(one.counts.sum())
    found: dict[str, float] = {}
    for word, times in zip(one.words.tolist(), one.counts.tolist(), strict=True):
        found[twins.words[word]] = found.get(twins.words[word], 0.0) + times / total
    return found


def _single(documents: str, topics: int, draws: int, seed: int) -> list[Figure]:
    """One deletion between two versions."""
    return _case(1, documents, topics, draws, seed)


def _batches(documents: str, topics: int, draws: int, seed: int) -> list[Figure]:
    """Ten deletions between two versions."""
    return _case(BATCH, documents, topics, draws, seed)


CASES = {"single": _single, "batches of ten": _batches}
