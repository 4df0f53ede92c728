"""Random chains of additions and deletions: after each change the updated model against one learned fresh.

A chain is a function of its seed: the kind of corpus, the documents, the learner, and the documents that come and go.
After every change all of these must hold. The first that does not hold ends the chain as a finding:

    counts      the sum of changes is the count of the documents that are there, bit for bit
    refusal     if a fresh fit cannot be learned, the update is refused too, and the other way round
    words, anchors, sets, guides   equal to the fresh fit's; of guided topics also which have ended, and why
    shape       A is finite and its columns lie on the simplex
    certificate ||A - A'||_F is at most the sum of both certificates
    precision   max |A - A'| is at most 1e-12 if both certificates are at most 1e-10
    exception   nothing else is raised, and nothing warns
"""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from streamtopic.bench.chain_corpora import KINDS, kind_of
from streamtopic.bench.twins import same_counts
from streamtopic.counts import Cooccurrence, Counts, count
from streamtopic.errors import CannotLearn
from streamtopic.topics.learner import learn
from streamtopic.topics.update import NeedsRetrain, update

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from streamtopic.bench.chain_corpora import Pool
    from streamtopic.topics.fit import TopicFit

    Float = npt.NDArray[np.float64]
    Int64 = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

__all__ = ["Described", "Finding", "Outcome", "described", "first_clause", "many_chains", "one_chain", "parted"]

PRECISION = 1e-12
"""Largest difference of an entry of A between two paths to the same counts, on corpora that are well-conditioned."""
WELL_CONDITIONED = 1e-10
"""A corpus is well-conditioned if the certificates of both models are at most this. At 5e-10 a difference of 1.4e-12
has been seen: it grows with the condition, as the certificate does."""
_STEPS = (1, 2, 3, 4, 6, 8, 10, 12, 16)
_BATCHES = (1, 1, 1, 2, 3, 5, 10, 40)
_AT_ONCE = 20
_SIMPLEX = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Described:
    """A model as chains see it.

    words: (n,) ascending.
    anchors: of the topics that were found.
    sets: the topic of every word in a super-anchor.
    guides: the guided topics that go on, by name with the seeds that are left.
    notes: a sentence for each guided topic that has ended or lacks a seed.
    A: (n, r).
    certificate: bound on its distance to the exact model.
    """

    words: tuple[str, ...]
    anchors: tuple[str, ...]
    sets: dict[str, int]
    guides: dict[str, tuple[str, ...]]
    notes: tuple[str, ...]
    A: Float
    certificate: float


@dataclass(frozen=True, slots=True)
class Finding:
    """A promise that did not hold.

    step: the change after which it was seen, 0 before the first.
    what: which promise.
    """

    seed: int
    kind: str
    step: int
    what: str
    detail: str

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.kind}, change {self.step}: {self.what}: {self.detail}"


@dataclass(slots=True)
class Outcome:
    """The outcome of a chain.

    updates: changes that an update carried the model over; relearned: changes after which it asked for a fresh fit, by
    the reason; unlearnable: changes after which no model could be learned; loose: updates whose certificate is above
    the tolerance; entered, left: updates in which words entered or left the vocabulary; ended: updates after which a
    guided topic is not there; difference: the largest of entries of A if well-conditioned.
    """

    seed: int
    kind: str
    updates: int = 0
    relearned: Counter[str] = field(default_factory=Counter)
    unlearnable: int = 0
    loose: int = 0
    entered: int = 0
    left: int = 0
    ended: int = 0
    difference: float = 0.0
    finding: Finding | None = None


def described(fit: TopicFit) -> Described:
    """Return the parts of a fit that chains compare: the one place that knows how a fit keeps them."""
    sets = {word: int(topic) for word, topic in zip(fit.words, fit.group, strict=True) if topic >= 0}
    guides = {topic.name: topic.seeds for topic in fit.guided}
    return Described(fit.words, fit.anchors, sets, guides, tuple(fit.notes.values()), fit.A, fit.certificate.bound)


def parted(one: Described, other: Described) -> tuple[str, str] | None:
    """Return the promise that two models of the same counts break, and how; None if they keep all promises."""
    return _decided_apart(one, other) or _misshapen(one) or _misshapen(other) or _too_far(one, other)


def _decided_apart(one: Described, other: Described) -> tuple[str, str] | None:
    if one.words != other.words:
        return "words", f"{_some({*one.words} ^ {*other.words})} in one of the two only"
    if one.anchors != other.anchors:
        return "anchors", f"{_some({*one.anchors} ^ {*other.anchors})} in one of the two only"
    if one.guides != other.guides or one.notes != other.notes:
        return "guides", f"{one.guides} {one.notes} in one, {other.guides} {other.notes} in the other"
    if one.sets != other.sets:
        differing = {word for word in one.words if one.sets.get(word) != other.sets.get(word)}
        return "sets", f"{_some(differing)} belong elsewhere, A differs by {_largest(one, other):.2g}"
    return None


def _misshapen(model: Described) -> tuple[str, str] | None:
    finite = bool(np.isfinite(model.A).all()) and bool(np.isfinite(model.certificate))
    if finite and (model.A >= 0).all() and np.abs(model.A.sum(axis=0) - 1).max() <= _SIMPLEX:
        return None
    return "shape", f"a column of A is not on the simplex, or the certificate {model.certificate} is not one"


def _too_far(one: Described, other: Described) -> tuple[str, str] | None:
    gap, bound = float(np.linalg.norm(one.A - other.A)), one.certificate + other.certificate
    if gap > bound:
        return "certificate", f"||A - A'|| is {gap:.2g}, the certificates promise {bound:.2g}"
    if max(one.certificate, other.certificate) <= WELL_CONDITIONED and _largest(one, other) > PRECISION:
        return "precision", f"A differs by {_largest(one, other):.2g} at certificates of {bound:.2g}"
    return None


def first_clause(reason: str) -> str:
    """Return a reason without the words and numbers that it names, since these differ each time."""
    return re.sub(r"\d+", "N", re.split("[:,]", reason)[0])


def one_chain(seed: int) -> Outcome:
    """Run the chain with this seed."""
    generator = np.random.default_rng(seed)
    kind = kind_of(seed)
    pool = KINDS[kind](generator)
    outcome = Outcome(seed, kind)
    step = 0
    try:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("error")
            # What other code left open is not about this chain, and is found whenever the collector runs.
            warnings.simplefilter("ignore", ResourceWarning)
            chain = _Chain(pool, generator, outcome)
            for step in range(1, int(generator.choice(_STEPS)) + 1):
                broken = chain.change()
                if broken is not None:
                    outcome.finding = Finding(seed, kind, step, *broken)
                    break
    except Exception as error:  # noqa: BLE001  any exception is a finding, and the other chains go on
        outcome.finding = Finding(seed, kind, step, "exception", f"{type(error).__name__}: {error}")
    return outcome


class _Chain:
    """Documents that are in, their counts, and the model that updates have carried along."""

    def __init__(self, pool: Pool, generator: np.random.Generator, outcome: Outcome) -> None:
        self._pool, self._generator, self._outcome = pool, generator, outcome
        self._inside = generator.random(pool.size) < generator.uniform(0.4, 0.95)
        self._counts = pool.counts(self._inside)
        # A draw that decides nothing: without it each seed would be another chain.
        generator.random()
        self._only_held = bool(generator.random() < 0.5)
        self._fit = self._learned(self._source(self._counts))

    def change(self) -> tuple[str, str] | None:
        """Add and delete some documents, by an update and afresh; return which promise was broken, and how."""
        pool, outcome = self._pool, self._outcome
        moved = self._drawn()
        now, delta = self._moved(moved)
        fresh_counts = pool.counts(self._inside)
        if not same_counts(now, fresh_counts):
            return "counts", "the sum of changes is not the count of what is there"
        before, self._counts = self._fit, now
        twin = self._learned(Counts(pool.names, fresh_counts))
        if before is None:
            self._fit = twin
            outcome.unlearnable += twin is None
            return None
        words = {*before.words}
        updated = update(before, self._source(now), delta)
        if isinstance(updated, NeedsRetrain):
            outcome.relearned[first_clause(updated.reason)] += 1
            self._fit = self._learned(self._source(now))
        else:
            outcome.updates += 1
            self._fit = updated
        if self._fit is None or twin is None:
            outcome.unlearnable += self._fit is None
            if (self._fit is None) != (twin is None):
                return "refusal", f"the {'update' if self._fit is None else 'fresh fit'} alone cannot be learned"
            return None
        one, other = described(self._fit), described(twin)
        broken = parted(one, other)
        if not isinstance(updated, NeedsRetrain):
            self._note(words, one, other)
        return broken

    def _note(self, before: set[str], one: Described, other: Described) -> None:
        outcome = self._outcome
        outcome.entered += bool({*one.words} - before)
        outcome.left += bool(before - {*one.words})
        outcome.ended += len(one.guides) < len(self._pool.options.guided)
        outcome.loose += one.certificate > self._pool.options.tolerance
        if one.words == other.words and max(one.certificate, other.certificate) <= WELL_CONDITIONED:
            outcome.difference = max(outcome.difference, _largest(one, other))

    def _drawn(self) -> Int64:
        """Return the units that come or go next."""
        generator, inside = self._generator, self._inside
        among = np.arange(len(inside))
        aim = generator.random()
        if aim < 0.35:
            # All units that move hold one word, so that its frequency crosses thresholds.
            holding = self._pool.holding(int(generator.integers(len(self._pool.names))))
            among = holding if len(holding) else among
        side = generator.random()
        if side < 0.4 and inside[among].any():
            among = among[inside[among]]
        elif side < 0.7 and not inside[among].all():
            among = among[~inside[among]]
        wanted = min(int(generator.choice(_BATCHES)), len(among))
        return np.sort(generator.choice(among, wanted, replace=False))

    def _moved(self, units: Int64) -> tuple[Cooccurrence, Counts]:
        """Add or delete units; return the counts afterwards, and the change."""
        pool, weighting = self._pool, self._pool.options.weighting
        documents = np.flatnonzero(np.isin(pool.units, units))
        batch = pool.batch.take(documents)
        signs = np.where(self._inside[pool.units[documents]], -1, 1)
        self._inside[units] ^= True
        change = count(batch, len(pool.names), weighting, signs)
        if not self._only_held:
            return self._counts + change, Counts(pool.names, change)
        # As a service does it: a change is over the words of its documents only.
        held = np.unique(batch.words).astype(np.intp)
        names = tuple(pool.names[k] for k in held)
        return self._counts + change, Counts(names, change.restrict(held))

    def _source(self, counts: Cooccurrence) -> Counts:
        """Return counts with their words: all words, or those that a document holds, as the chain has it."""
        if not self._only_held:
            return Counts(self._pool.names, counts)
        held = np.flatnonzero(counts.frequency)
        return Counts(tuple(self._pool.names[k] for k in held), counts.restrict(held))

    def _learned(self, source: Counts) -> TopicFit | None:
        try:
            return learn(source, self._pool.options)
        except CannotLearn:
            return None


def many_chains(
    minutes: float,
    seed: int,
    processes: int = 2,
    progress: Callable[[int, int | None], None] = lambda _done, _total: None,
) -> list[Outcome]:
    """Run chains with seeds from `seed` on until the time is up; 0 minutes: this one alone.

    progress: called with the seconds spent and the seconds in all.
    How many chains run depends on the time; the outcome of each does not.
    """
    if minutes <= 0:
        return [one_chain(seed)]
    outcomes: list[Outcome] = []
    started, given = time.monotonic(), 60 * minutes
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        waiting: set[Future[list[Outcome]]] = set()
        following = seed
        while waiting or not outcomes:
            spent = time.monotonic() - started
            while len(waiting) < 2 * processes and (spent < given or following == seed):
                waiting.add(pool.submit(_some_chains, following, _AT_ONCE))
                following += _AT_ONCE
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for one in done:
                outcomes += one.result()
            progress(round(min(time.monotonic() - started, given)), round(given))
    return sorted(outcomes, key=lambda outcome: outcome.seed)


def _some_chains(first: int, many: int) -> list[Outcome]:
    return [one_chain(seed) for seed in range(first, first + many)]


def _largest(one: Described, other: Described) -> float:
    return float(np.abs(one.A - other.A).max(initial=0.0))


def _some(words: set[str]) -> str:
    named = sorted(words)
    return ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
