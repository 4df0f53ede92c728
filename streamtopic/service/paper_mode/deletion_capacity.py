"""The rule that sets the deletion capacity of a base model (Wei et al. 2025, theorems 1 and 3)."""

from collections.abc import Sequence
from dataclasses import dataclass

from streamtopic.paper.capacity_formulas import Rule, base_capacity, head_capacity_terms
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.heads import HeadTask

__all__ = ["CapacityRule"]


@dataclass(frozen=True, slots=True)
class CapacityRule:
    """The rule that sets how many deletions a base model bears.

    rule: a `share` of its documents, a `fixed` number, or the formula of a `theorem`.
    share: share of the documents, for `share`.
    number: number of documents, for `fixed`.
    constant: c of the formula, for `theorem`.
    """

    rule: Rule = "share"
    share: float = 0.01
    number: int = 100
    constant: float = 1.0

    def limit(self, fit: TopicFit, epsilon: float, delta: float, tasks: Sequence[HeadTask] = ()) -> int:
        """Return the capacity of a base model, in documents: at least 1 under `share`, 0 or more under the others.

        fit: the base model.
        epsilon, delta: the guarantee of a version.
        tasks: the tasks whose heads are released in place of A. The formula is then the smallest of theirs.
        """
        if self.rule == "fixed":
            return self.number
        if self.rule == "theorem":
            formula = self.constant * _formula(fit, epsilon, delta, tasks)
            return int(min(formula, fit.documents))
        # With a capacity of 0, each deletion from a small corpus would be a retrain.
        return max(1, int(self.share * fit.documents))


def _formula(fit: TopicFit, epsilon: float, delta: float, tasks: Sequence[HeadTask]) -> float:
    """Return the capacity of theorem 1 at c = 1, or the smallest capacity of theorem 3 over the tasks."""
    n, r = fit.A.shape
    shares = fit.topic_masses
    # Theorem 3 is defined only if each topic has a share.
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
