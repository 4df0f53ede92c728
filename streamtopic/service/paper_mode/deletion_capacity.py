"""The deletion capacity of a base model: the rule that sets it, and the figures that are kept for people.

The service hands `measure_capacity` to the scheduler. Formulas and trials are those of the paper (Wei et al. 2025,
definition of the deletion capacity, theorems 1 and 3).
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopic.counts import Counts
from streamtopic.errors import UsageError
from streamtopic.paper.calibration import Calibration, CalibrationPlan, Probe, calibrate
from streamtopic.paper.capacity_formulas import Rule, base_capacity, fit_constants, head_capacity_terms, most_deletions
from streamtopic.service.schedule.situation import BaseCapacity
from streamtopic.state import DocumentCounts
from streamtopic.state.documents import read_documents
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.heads import HeadTask
from streamtopic.topics.learner import reachable_words

__all__ = ["TRIALS", "CapacityRule", "measure_capacity", "model_facts", "try_deletions"]

TRIALS = CalibrationPlan(most_updates=100)
"""The trials of `calibrated`: as many updates as a person waits for, over forget sets of any kind as in the paper's
definition, random ones and some that aim at a topic."""
# Fixed, so that the same sets are tried for the same documents, whenever and wherever.
_SEED = 1
_SAMPLE = 20_000


@dataclass(frozen=True, slots=True)
class CapacityRule:
    """The rule that sets how many deletions a base model bears.

    rule: a `share` of its documents, a `fixed` number, the formula of a `theorem`, or `calibrated` by trials.
    share: share of the documents, for `share`.
    number: number of documents, for `fixed`.
    constant: c of the formula, for `theorem`.
    """

    rule: Rule = "share"
    share: float = 0.01
    number: int = 100
    constant: float = 1.0

    def limit(
        self,
        fit: TopicFit,
        epsilon: float,
        delta: float,
        tasks: Sequence[HeadTask] = (),
        calibration: Calibration | None = None,
    ) -> int:
        """Return the capacity of a base model, in documents: at least 1 under `share`, 0 or more under the others.

        fit: the base model.
        epsilon, delta: the guarantee of a version.
        tasks: the tasks whose heads are released in place of A. The formula is then the smallest of theirs.
        calibration: of the same model, for `calibrated`.

        Raises UsageError under `calibrated` without a calibration.
        """
        if self.rule == "fixed":
            return self.number
        if self.rule == "theorem":
            formula = self.constant * _formula(fit, epsilon, delta, tasks)
            return int(min(formula, fit.documents))
        if self.rule == "share":
            # With a capacity of 0, each deletion from a small corpus would be a retrain.
            return max(1, int(self.share * fit.documents))
        if calibration is None:
            raise UsageError("the rule `calibrated` needs a calibration of the same model: calibrate first")
        return calibration.limit


def _formula(fit: TopicFit, epsilon: float, delta: float, tasks: Sequence[HeadTask]) -> float:
    """Return the capacity of theorem 1 at c = 1, or the smallest capacity of theorem 3 over the tasks."""
    n, r = fit.A.shape
    shares = fit.topic_masses
    # Theorem 3 is defined only where each topic has a share.
    if not tasks or not (shares > 0).all():
        return base_capacity(1.0, fit.documents, n, r, epsilon, delta)
    place = {name: k for k, name in enumerate(fit.topic_names)}
    formulas = []
    for task in tasks:
        # A task may name topics that are gone.
        topics = [place[topic] for topic in task.topics if topic in place]
        terms = head_capacity_terms(1.0, fit.documents, n, epsilon, delta, shares, topics)
        formulas.append(terms.formula)
    return min(formulas)


def measure_capacity(
    rule: CapacityRule,
    counts: DocumentCounts,
    fit: TopicFit,
    epsilon: float,
    delta: float,
    tasks: Sequence[HeadTask] = (),
) -> BaseCapacity:
    """Return the capacity of a base model: a function of its documents and the settings.

    counts: the counts that it was learned from.
    fit: the base model.
    epsilon, delta: the guarantee of a version.
    tasks: the tasks whose heads are released in place of A.

    It makes no pass over Q, except under `calibrated`, see `try_deletions`. Raises StateCorrupt, CutGone.
    """
    found: Calibration | None = None
    facts = model_facts(fit, counts, epsilon, delta, tasks)
    if rule.rule == "calibrated":
        found, facts["tried"] = try_deletions(TRIALS, counts, fit)
    limit = rule.limit(fit, epsilon, delta, tasks, found)
    return BaseCapacity(limit, {"rule": rule.rule, "limit": limit, **facts})


def model_facts(
    fit: TopicFit, counts: DocumentCounts, epsilon: float, delta: float, tasks: Sequence[HeadTask] = ()
) -> dict[str, Any]:
    """Return the figures that the formulas of a model's capacity need, and their results at c = 1.

    All values have types of msgpack and JSON.
    """
    n, r = fit.A.shape
    held = _anchor_documents(fit, counts)
    fitted = asdict(fit_constants(fit)).items()
    constants = {name: _plain(value) for name, value in fitted}
    shares = dict(zip(fit.topic_names, fit.topic_masses.tolist(), strict=True))
    anchor_documents = dict(zip(fit.anchors, held.tolist(), strict=True))
    return {
        "documents": fit.documents,
        "words": n,
        "topics": r,
        "epsilon": epsilon,
        "delta": delta,
        "formula": _formula(fit, epsilon, delta, tasks),
        "constants": constants,
        "shares": shares,
        "anchor_documents": anchor_documents,
        "hard_limit": most_deletions(held),
    }


def _anchor_documents(fit: TopicFit, counts: DocumentCounts) -> npt.NDArray[np.int64]:
    """Return the number of documents that hold each anchor word, (r,)."""
    place = {word: k for k, word in enumerate(counts.words)}
    anchors = [place[word] for word in fit.anchors]
    return np.asarray(counts.frequency[anchors])


def try_deletions(
    plan: CalibrationPlan,
    counts: DocumentCounts,
    fit: TopicFit,
    update: Callable[[int, int], None] = lambda _done, _most: None,
) -> tuple[Calibration, dict[str, Any]]:
    """Remove forget sets of stored documents from copies of a model, and see how many deletions it bears.

    plan: sizes and number of the trials.
    counts: the counts that the model was learned from.
    fit: the model.
    update: told how many updates were made, of how many at most.

    Return the calibration, and the same as facts. It makes plan.most_updates updates at most, and reads the counts
    once. At most 20,000 documents are read, by hash of their ids. Raises StateCorrupt, CutGone.
    """
    start = time.perf_counter()
    largest = int(plan.largest_share * counts.documents) + 1
    keep = reachable_words(counts.frequency, counts.documents, fit.options, largest)
    # In memory: deletions bring other words into the vocabulary, and the cut may be gone before the last trial.
    words = [counts.words[k] for k in keep]
    held = Counts(words, counts.restrict(keep))
    documents = read_documents(counts, held.words, limit=_SAMPLE)
    generator = np.random.default_rng(_SEED)
    found = calibrate(held, documents.batch, fit.options, generator, plan, fit, update)
    facts = _calibration_facts(found)
    facts["sampled"] = documents.batch.documents
    facts["utility"] = plan.utility
    facts["probability"] = plan.probability
    facts["seconds"] = time.perf_counter() - start
    return found, facts


def _calibration_facts(found: Calibration) -> dict[str, Any]:
    """Return a calibration in types of msgpack and JSON; None stands for a figure that was not measured."""
    random = [_probe(probe) for probe in found.random]
    aimed = [_probe(probe) for probe in found.aimed]
    return {
        "limit": found.limit,
        "random_limit": found.random_limit,
        "aimed_limit": found.aimed_limit if aimed else None,
        "hard_limit": found.hard_limit,
        "updates": found.updates,
        "complete": found.complete,
        "random": random,
        "aimed": aimed,
    }


def _probe(probe: Probe) -> dict[str, Any]:
    """Return the trials of one size in types of msgpack and JSON."""
    means = {name: _plain(probe.mean(name)) for name in ("moved", "l1", "overlap")}
    reasons = sorted({trial.reason for trial in probe.trials if trial.reason})
    return {
        "size": probe.size,
        "asked": probe.asked,
        "tried": len(probe.trials),
        "borne": probe.borne,
        "passed": probe.passed,
        **means,
        # Each failed set names its own words in the reason, and three reasons show the kind.
        "reasons": reasons[:3],
    }


def _plain(value: float) -> float | None:
    """Return a number, None for infinity and nan: JSON has neither."""
    return value if math.isfinite(value) else None
