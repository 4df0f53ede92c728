"""Counts to a topic model; unlearning; downstream tasks; inference. Names load what they need on first use.

AnchorTopics     a topic model as a scikit-learn estimator
LearnerOptions   the choices of a learner
learn            counts to a TopicFit, cold: the whole path
TopicFit         a model before noise; Certificate: how far from exact it can be
suggest_topics   how many topics: a Suggestion, a Candidate for each number, by a TrialPlan; suggest_for: of a matrix
DeletionTrials   what becomes of a model when documents are forgotten, one Trial each
fold_in          topics of new documents (numpy alone)
top_words        topics in display order; diversity and npmi: how good they are
topic_correlations  R of a model
Statistics       what Algorithm 1 keeps of S; unlearn_base: its Newton step and projection, a BaseModel;
                 retrain_rows: the exact optimum that it stands for
HeadTask         a downstream task, on LabelledDocuments and a TopicMatrix
fit_head         a TopicHead from zero; unlearn_head: carried over; newton_step: the paper's single step

A function that has its module's name is imported from there: `streamtopic.topics.update.update` carries a TopicFit over
to changed counts (Updated or NeedsRetrain), `streamtopic.topics.remaining.remaining` takes a forget set out for
Algorithm 1, `streamtopic.topics.literal_head.literal_head` is the paper's own form of an unlearned head, kept to show
what it gives away.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamtopic.topics.algorithm1 import BaseModel, retrain_rows, unlearn_base
    from streamtopic.topics.certificate import Certificate
    from streamtopic.topics.display import diversity, npmi, top_words
    from streamtopic.topics.estimator import AnchorTopics
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.heads import TopicHead, fit_head, newton_step, unlearn_head
    from streamtopic.topics.inference import fold_in
    from streamtopic.topics.learner import learn
    from streamtopic.topics.options import LearnerOptions
    from streamtopic.topics.recommend import Candidate, Suggestion
    from streamtopic.topics.released import topic_correlations
    from streamtopic.topics.remaining import Statistics
    from streamtopic.topics.suggest import TrialPlan, suggest_for, suggest_topics
    from streamtopic.topics.tasks import HeadTask, LabelledDocuments, TopicMatrix
    from streamtopic.topics.trials import DeletionTrials, Trial
    from streamtopic.topics.update import NeedsRetrain, Updated

_HOMES = {
    "algorithm1": ("BaseModel", "retrain_rows", "unlearn_base"),
    "certificate": ("Certificate",),
    "display": ("diversity", "npmi", "top_words"),
    "estimator": ("AnchorTopics",),
    "fit": ("TopicFit",),
    "heads": ("TopicHead", "fit_head", "newton_step", "unlearn_head"),
    "inference": ("fold_in",),
    "learner": ("learn",),
    "options": ("LearnerOptions",),
    "recommend": ("Candidate", "Suggestion"),
    "released": ("topic_correlations",),
    "remaining": ("Statistics",),
    "suggest": ("TrialPlan", "suggest_for", "suggest_topics"),
    "tasks": ("HeadTask", "LabelledDocuments", "TopicMatrix"),
    "trials": ("DeletionTrials", "Trial"),
    "update": ("NeedsRetrain", "Updated"),
}

__all__ = [
    "AnchorTopics",
    "BaseModel",
    "Candidate",
    "Certificate",
    "DeletionTrials",
    "HeadTask",
    "LabelledDocuments",
    "LearnerOptions",
    "NeedsRetrain",
    "Statistics",
    "Suggestion",
    "TopicFit",
    "TopicHead",
    "TopicMatrix",
    "Trial",
    "TrialPlan",
    "Updated",
    "diversity",
    "fit_head",
    "fold_in",
    "learn",
    "newton_step",
    "npmi",
    "retrain_rows",
    "suggest_for",
    "suggest_topics",
    "top_words",
    "topic_correlations",
    "unlearn_base",
    "unlearn_head",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562): a subscriber that only infers must not load the learner."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
