"""Measurements against a known truth: planted topics, the learner's error, and deletions that try to do harm.

    recovery    error of A and R against m, and the Learning Guarantee
    borne       T of theorem 1 with the constant c = 1, and how many deletions keep the error within 0.01 in truth

The guarantee's constants are hidden in O(...) and taken as 1. The guarantee says something only if it is below 1,
which takes gamma p near 1: a world of 12 words can be made like that; a world of 200 words is closer to documents.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from streamtopic.bench.figures import Figure
from streamtopic.counts import Counts, count
from streamtopic.paper.capacity_formulas import ModelConstants, base_capacity
from streamtopic.paper.theorem import UTILITY_LOSS, TheoremOptions, guaranteed_error, plan_theorem
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.privacy.noise import CalibratedGuarantee, release_matrix
from streamtopic.topics.display import topic_correlations
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from streamtopic.bench.synthetic import Recovery, SyntheticTopics
    from streamtopic.counts import DocumentBatch

    Positions = npt.NDArray[np.intp]

__all__ = ["Deletions", "borne", "recovered", "recovery", "whole_vocabulary"]

EPSILON, DELTA, PROBABILITY = 0.9, 1e-6, 0.9
_KEY = NoiseKey(bytes(32))  # not a secret: nothing is released here


def whole_vocabulary(topics: int, learner: str = "paper") -> LearnerOptions:
    """Return options that keep every word that occurs and let every word be an anchor, as the theory does."""
    return LearnerOptions(n_topics=topics, learner=learner, min_df=1, max_df=1.0, anchor_min_df=0.0)  # type: ignore[arg-type]  # refused there


def recovered(planted: SyntheticTopics, m: int, length: int, options: LearnerOptions, seed: int) -> Recovery:
    """Draw m documents, learn, and compare A and R with the planted ones."""
    fit = learn(planted.counts(m, length, seed, options.weighting), options)
    return planted.recovery(fit.words, fit.A, topic_correlations(fit, fit.A).R)


@dataclass(frozen=True, slots=True, eq=False)
class Deletions:
    """One draw of m documents, and the models of the rest when k of them are gone.

    The model of the rest is that of a cold start on it: unlearning gives the same to 1e-12, with or without a retrain.
    """

    planted: SyntheticTopics
    documents: DocumentBatch
    whole: Counts
    options: LearnerOptions

    @classmethod
    def drawn(cls, planted: SyntheticTopics, m: int, length: int, seed: int) -> Deletions:
        """Draw documents and count them."""
        options = whole_vocabulary(len(planted.anchors))
        documents = planted.documents(m, length, seed)
        counts = count(documents, len(planted.words), options.weighting)
        return cls(planted, documents, Counts(planted.words, counts), options)

    def orders(self, seed: int) -> Iterator[Positions]:
        """Yield orders in which documents may go: at random, and those first that hold most of an anchor or topic."""
        yield np.random.default_rng(seed).permutation(self.documents.documents)
        rows = np.repeat(self.documents.owners, np.diff(self.documents.indptr))
        shares = self.planted.C
        for k, anchor in enumerate(self.planted.anchors):
            here = self.documents.words == anchor
            for entries, weights in (
                (rows[here], self.documents.counts[here].astype(float)),
                (rows, self.documents.counts * shares[self.documents.words, k]),
            ):
                carried = np.bincount(entries, weights, self.documents.documents)
                yield np.argsort(-carried, kind="stable")

    def error(self, gone: Positions) -> float:
        """Return the greatest entry of Atilde - A*, where certified mode publishes Atilde without these documents."""
        part = count(self.documents.take(np.sort(gone)), len(self.whole.words), self.options.weighting)
        fit = learn(Counts(self.whole.words, self.whole.cooccurrence - part), self.options)
        seed = _KEY.of("truth", len(gone)).seed(str(gone.tobytes()))
        noised = release_matrix(fit.A, CalibratedGuarantee(EPSILON, DELTA, self.options.tolerance), seed)
        return self.planted.recovery(fit.words, noised.matrix).A

    def worst(self, orders: list[Positions], k: int) -> float:
        """Return the greatest error over forget sets of k documents, one from each order."""
        return max(self.error(order[:k]) for order in orders)

    def most(self, orders: list[Positions]) -> int:
        """Return the most deletions, of sizes 2 an octave, up to which no order passes the definition's 0.01."""
        m = self.documents.documents
        sizes = np.unique(np.rint(2.0 ** (np.arange(2 * math.log2(m / 4)) / 2)).astype(int))
        low, high = -1, len(sizes)
        while high - low > 1:
            middle = (low + high) // 2
            if self.worst(orders, int(sizes[middle])) <= UTILITY_LOSS:
                low = middle
            else:
                high = middle
        return int(sizes[low]) if low >= 0 else 0


def recovery(planted: SyntheticTopics, sizes: tuple[int, ...], length: int, draws: int) -> list[Figure]:
    """Learn from more and more documents: the largest error of several draws under the guarantee, and its exponent."""
    n, r = planted.A.shape
    constants = ModelConstants(planted.a, planted.p, planted.gamma, math.nan)
    figures, world = [], f"{n} words"
    for learner in ("paper", "default"):
        options, medians = whole_vocabulary(r, learner), []
        for m in sizes:
            found = [recovered(planted, m, length, options, seed) for seed in range(draws)]
            medians.append([float(np.median([getattr(one, of) for one in found])) for of in ("A", "R")])
            if learner == "paper":
                bound = guaranteed_error(m, n, r, length, constants)
                worst = max(max(one.A, one.R) for one in found)
                figures.append(Figure(f"{world}, error at m = {m:,}", worst, "", f"guarantee: {bound:.2g}"))
            else:
                figures.append(Figure(f"{world}, default learner at m = {m:,}", medians[-1][0], ""))
        powers = np.polyfit(np.log(sizes), np.log(medians), 1)[0]
        for of, power in zip("AR", powers.tolist(), strict=True):
            target = "guarantee: at most -0.33" if learner == "paper" else ""
            figures.append(Figure(f"{world}, {learner} learner, exponent of {of}'s error", power, "power", target))
    return figures


def borne(planted: SyntheticTopics, sizes: tuple[int, ...], length: int, draws: int) -> list[Figure]:
    """Delete up to T and beyond, against every anchor and topic: the definition's utility against the truth."""
    n, r = planted.A.shape
    figures, capacities = [], []
    for m in sizes:
        formula = base_capacity(1.0, m, n, r, EPSILON, DELTA)
        T = max(int(formula), 1)
        errors, most = [], []
        for seed in range(draws):
            drawn = Deletions.drawn(planted, m, length, seed)
            orders = list(drawn.orders(seed))
            errors.append(drawn.worst(orders, T))
            most.append(drawn.most(orders))
        capacities.append(float(np.quantile(most, 1 - PROBABILITY, method="lower")))
        kept = float(np.mean([error <= UTILITY_LOSS for error in errors]))
        figures += [
            Figure(f"m = {m:,}: T of theorem 1 at c = 1", formula, "documents"),
            Figure(f"m = {m:,}: greatest error with T gone, mean", float(np.mean(errors)), "", f"<= {UTILITY_LOSS}"),
            Figure(f"m = {m:,}: draws within {UTILITY_LOSS} with T gone", kept, "share", f">= {PROBABILITY}"),
            Figure(f"m = {m:,}: deletions that 9 of 10 draws bear", capacities[-1], "documents"),
            Figure(
                f"m = {m:,}: c at which theorem 1 gives that", capacities[-1] / formula if formula else math.nan, ""
            ),
            Figure(f"m = {m:,}: entry of Algorithm 1's noise for T at c = 1", _noise(planted, m, T), ""),
        ]
    if min(capacities) > 0:
        power = float(np.polyfit(np.log(sizes), np.log(capacities), 1)[0])
        figures.append(Figure("deletions borne, exponent in m", power, "power", "theorem 1: 1"))
    return figures


def _noise(planted: SyntheticTopics, m: int, T: int) -> float:
    """Return about the greatest entry of the noise on A that theorem mode would add."""
    n, r = planted.A.shape
    constants = ModelConstants(planted.a, planted.p, planted.gamma, 1 / math.sqrt(n * r))
    options = TheoremOptions(T, EPSILON, DELTA)
    plan = plan_theorem(m, n, r, constants, float(planted.word_masses.max()), options)
    return plan.topics.sigma * math.sqrt(2 * math.log(n * r))
