"""Private mode: what its noise costs, and what an attacker gets out of its versions.

least        NPMI that the last version of a period loses against the same learner without noise, over parts of the
             corpus, vocabularies and epsilons: how many documents the mode needs
attack       a document is deleted between two versions, and ranked among 300 by the difference of all noised counts, of
             which a version publishes only what follows from its topics
subtraction  the attack of `bench difference`: the same by the topics alone that two versions publish
canaries     200 documents are inserted and 200 are not; whoever has all noised counts of a period tells which are which
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import numpy.typing as npt

    from streamtopic.bench.runner import Option
    from streamtopic.counts import DocumentBatch
    from streamtopic.privacy.private_counts import SeriesNoise

    Float = npt.NDArray[np.float64]
    Int64 = npt.NDArray[np.int64]

__all__ = ["CASES", "OPTIONS"]

OPTIONS: dict[str, Option] = {"documents": "", "topics": 20, "words": 2_000, "epsilon": 3, "versions": 64, "draws": 100}
"""documents: a file of JSON lines, installed docstrings if none is given; draws: deletions that are attacked."""
DELTA = 1e-6
MAX_DF = 0.1
CANDIDATES = 300
CANARIES = 200
CANARY_WORDS = 8
AUDIT_WORDS = 300


# A case may ask for several vocabularies of one corpus.
@lru_cache(maxsize=1)
def _read(documents: str) -> tuple[list[str], DocumentBatch]:
    """Return the documents over all of their words."""
    from streamtopic.documents.corpus import load_corpus
    from streamtopic.service.verify.recount import batch_of

    return batch_of(document.passages for document in load_corpus(documents).documents)


def _batch(documents: str, words: int) -> tuple[list[str], DocumentBatch]:
    """Return the documents over their most frequent words, as if these were public."""
    import numpy as np

    from streamtopic.counts import narrowed, statistics
    from streamtopic.counts.arrays import places

    held, batch = _read(documents)
    frequency, _, _ = statistics(batch, len(held), np.ones(batch.documents, np.int64))
    frequency[frequency > MAX_DF * batch.documents] = 0
    chosen = np.sort(np.argsort(-frequency, kind="stable")[:words])
    return [held[k] for k in chosen.tolist()], narrowed(batch, places(len(held), chosen, np.int32))


def _noise(epsilon: float, versions: int) -> SeriesNoise:
    from streamtopic.privacy.accounting import gaussian_scale
    from streamtopic.privacy.private_counts import SeriesNoise

    return SeriesNoise(versions, gaussian_scale(epsilon, DELTA))


def _noised(exact: Int64, noise: SeriesNoise, number: int, start: int = 0) -> Float:
    """Return the counts as version `number` of a period has them. start: of the seeds."""
    from streamtopic.privacy.keystream import NoiseSeed
    from streamtopic.privacy.private_counts import noised_matrix

    seeds = [NoiseSeed((start + k).to_bytes(32, "big")) for k in range(number)]
    return noised_matrix(exact, noise, seeds)


def _whole(exact: Int64) -> Float:
    """Return the counts without noise."""
    import numpy as np

    from streamtopic.privacy.private_counts import UNIT

    upper = exact / UNIT
    return np.asarray(upper + np.triu(upper, 1).T)


def _quality(words: list[str], batch: DocumentBatch, counts: Float, deviation: float, topics: int) -> float:
    """Return NPMI of the ten shown words on all documents. Raises CannotLearn."""
    import numpy as np

    from streamtopic.privacy.private_counts import topics_of_noised
    from streamtopic.service.schedule.payload import frequencies
    from streamtopic.topics.display import WordEvidence, npmi, top_words
    from streamtopic.topics.learner_options import LearnerOptions

    fit, source, _ = topics_of_noised(words, counts, deviation, LearnerOptions(n_topics=topics))
    evidence = WordEvidence.of(fit, frequencies(fit.words, source))
    position = {word: k for k, word in enumerate(words)}
    place = np.array([position[word] for word in fit.words])
    shown = place[top_words(fit.A, evidence)]
    return npmi(shown, batch)


def _least(documents: str, topics: int, words: int, epsilon: int, versions: int, draws: int) -> list[Figure]:  # noqa: ARG001
    """NPMI lost, by documents, words and epsilon; refused combinations are left out."""
    import numpy as np

    from streamtopic.console import progress
    from streamtopic.errors import CannotLearn
    from streamtopic.privacy.private_counts import document_matrices

    found = []
    rng = np.random.default_rng(0)
    sizes = [words // 4, words // 2, words]
    with progress("vocabularies", "words") as update:
        for done, size in enumerate(sizes):
            held, batch = _batch(documents, size)
            order = rng.permutation(batch.documents)
            for part in (8, 4, 2, 1):
                some = batch.take(np.sort(order[: batch.documents // part]))
                exact = document_matrices(some, size)
                without = _quality(held, batch, _whole(exact), 0.0, topics)
                for one in (epsilon / 3, epsilon, 10 * epsilon / 3):
                    noise = _noise(one, versions)
                    name = f"{some.documents} documents, {size} words, epsilon {one:g}"
                    # As large as that of the last version, and drawn at once.
                    alike = _alone(noise, versions)
                    try:
                        npmi = _quality(held, batch, _noised(exact, alike, 1), alike.sigma, topics)
                    except CannotLearn:
                        continue
                    found.append(Figure(f"{name}: lost", without - npmi, f"of {without:.3f}"))
            update(done + 1, len(sizes))
    return found


def _alone(noise: SeriesNoise, number: int) -> SeriesNoise:
    """Return noise of one version that is as large as that of version `number` of a period."""
    from streamtopic.privacy.private_counts import SeriesNoise, sensitivity

    return SeriesNoise(1, noise.deviation(number) / sensitivity(1))


@dataclass(frozen=True, slots=True, eq=False)
class _Deletion:
    """A deletion between the first and the second version of a period.

    rows: the words of each candidate; the first candidate was deleted.
    before, after: the noised counts of both versions.
    """

    rows: Sequence[npt.NDArray[np.integer]]
    before: Float
    after: Float


def _ranked(
    held: list[str], batch: DocumentBatch, noise: SeriesNoise, draws: int, scored: Callable[[_Deletion], list[float]]
) -> list[Figure]:
    """Delete documents, one at a time, and say how each ranks among candidates. scored: a score for each of them."""
    import numpy as np

    from streamtopic.console import progress
    from streamtopic.privacy.private_counts import document_matrices

    exact = document_matrices(batch, len(held))
    rng = np.random.default_rng(1)
    ranks = []
    with progress("deletions", "versions") as update:
        for draw in range(draws):
            candidates = rng.choice(batch.documents, CANDIDATES, replace=False)
            rows = [np.unique(batch.take(np.array([one])).words) for one in candidates.tolist()]
            gone = document_matrices(batch.take(candidates[:1]), len(held))
            # The second version has the noise of the first one in part, so the attacker takes that part off.
            before = _noised(exact, noise, 1, 2 * draw)
            scores = scored(_Deletion(rows, before, _noised(exact - gone, noise, 2, 2 * draw)))
            ranks.append(1 + sum(other > scores[0] for other in scores))
            update(draw + 1, draws)
    return [
        Figure("candidates", CANDIDATES, "documents"),
        Figure("deletions", draws, "documents"),
        Figure("ranked first", sum(rank == 1 for rank in ranks) / draws, "of the deletions", "<= .08"),
        Figure("mean rank", float(np.mean(ranks)), f"of {CANDIDATES}, {CANDIDATES / 2:g} by chance"),
    ]


def _attack(documents: str, topics: int, words: int, epsilon: int, versions: int, draws: int) -> list[Figure]:  # noqa: ARG001
    """Rank candidates for the document that was deleted between the first and the second version of a period."""

    def scored(deletion: _Deletion) -> list[float]:
        fell = deletion.before - deletion.after
        return [_projection(fell, row) for row in deletion.rows]

    found = _ranked(*_batch(documents, words), _noise(epsilon, versions), draws, scored)
    return [*found, Figure("bound on ranked first, all versions", _bound(epsilon), "of the deletions")]


def _subtraction(documents: str, topics: int, words: int, epsilon: int, versions: int, draws: int) -> list[Figure]:
    """Rank candidates by the fall of the words' probabilities between the two versions."""
    from streamtopic.audit.subtraction import fall, score

    held, batch = _batch(documents, words)
    noise = _noise(epsilon, versions)

    def scored(deletion: _Deletion) -> list[float]:
        before = _probabilities(held, deletion.before, noise.deviation(1), topics)
        fell = fall(before, _probabilities(held, deletion.after, noise.deviation(2), topics))
        shares = [dict.fromkeys((held[k] for k in row.tolist()), 1 / max(len(row), 1)) for row in deletion.rows]
        return [score(own, fell, before) for own in shares]

    return _ranked(held, batch, noise, draws, scored)


def _probabilities(words: list[str], counts: Float, deviation: float, topics: int) -> dict[str, float]:
    """Return the probability of each word in a version made of these counts. Raises CannotLearn."""
    from streamtopic.audit.subtraction import probabilities
    from streamtopic.privacy.private_counts import topics_of_noised
    from streamtopic.topics.display import topic_correlations
    from streamtopic.topics.learner_options import LearnerOptions

    fit, _, _ = topics_of_noised(words, counts, deviation, LearnerOptions(n_topics=topics))
    return probabilities(fit.words, fit.A, topic_correlations(fit, fit.A).shares)


def _projection(counts: Float, words: npt.NDArray[np.integer]) -> float:
    """Return the inner product of counts with the matrix of a document of these words."""
    import numpy as np

    return float(counts[np.ix_(words, words)].sum()) / len(words) if len(words) else -math.inf


def _bound(epsilon: float) -> float:
    """Return how often any attack on all versions together can rank the right one of random candidates first.

    If no document had been deleted each of 300 would be first once in 300 times on average; a Gaussian mechanism of mu
    lets a test of that rate hit at most at the rate Phi(Phi^-1(1 / 300) + mu).
    """
    from scipy.special import ndtr, ndtri

    from streamtopic.privacy.accounting import gaussian_scale

    return float(ndtr(ndtri(1 / CANDIDATES) + 1 / gaussian_scale(epsilon, DELTA)))


def _canaries(documents: str, topics: int, words: int, epsilon: int, versions: int, draws: int) -> list[Figure]:  # noqa: ARG001
    """Insert documents of random words, and tell them from others by all noised counts of a period."""
    import numpy as np
    from scipy.linalg import solve_triangular, toeplitz
    from scipy.stats import beta

    from streamtopic.console import progress
    from streamtopic.privacy.private_counts import UNIT, document_matrices, factors

    n = min(words, AUDIT_WORDS)
    held, batch = _batch(documents, n)
    exact = document_matrices(batch, len(held))
    rng = np.random.default_rng(2)
    canaries = [np.sort(rng.choice(len(held), CANARY_WORDS, replace=False)) for _ in range(2 * CANARIES)]
    for row in canaries[:CANARIES]:
        upper = np.triu(np.full((CANARY_WORDS, CANARY_WORDS), UNIT // CANARY_WORDS))
        exact[np.ix_(row, row)] += upper
    noise = _noise(epsilon, versions)
    published = np.empty((versions, 2 * CANARIES))
    with progress("versions", "versions") as update:
        for number in range(1, versions + 1):
            counts = _noised(exact, noise, number)
            published[number - 1] = [_projection(counts, row) for row in canaries]
            update(number, versions)
    # The best statistic: what is independent noise, weighted as the canary is in it.
    B = toeplitz(factors(versions), np.zeros(versions))
    own = solve_triangular(B, np.ones(versions), lower=True)
    scores = own @ solve_triangular(B, published, lower=True) / float(own @ own)
    # For each canary the attacker knows all other documents, the other canaries too, so their part is known.
    inserted = np.arange(2 * CANARIES) < CANARIES
    known = _whole(exact)
    scores -= [_projection(known, row) for row in canaries] - inserted
    guessed = scores > 0.5
    hits, alarms = int(guessed[:CANARIES].sum()), int(guessed[CANARIES:].sum())
    least_hits = float(beta.ppf(0.025, hits, CANARIES - hits + 1)) if hits else 0.0
    most_alarms = float(beta.ppf(0.975, alarms + 1, CANARIES - alarms)) if alarms < CANARIES else 1.0
    shown = math.log(max((least_hits - DELTA) / most_alarms, 1.0))
    return [
        Figure("inserted", CANARIES, "documents"),
        Figure("found", hits / CANARIES, "of the inserted"),
        Figure("false alarms", alarms / CANARIES, "of the others"),
        Figure("epsilon at least", shown, "with 95 % confidence", f"<= {epsilon}"),
    ]


CASES = {"attack": _attack, "subtraction": _subtraction, "canaries": _canaries, "least": _least}
