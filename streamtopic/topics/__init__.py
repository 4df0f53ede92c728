"""Counts to a topic model; unlearning; downstream tasks; inference. Names load what they need on first use.

AnchorTopics     a topic model as a scikit-learn estimator
LearnerOptions   the choices of a learner; GuidedTopic: a topic of seed words among them
learn            counts to a TopicFit, from a cold start
TopicFit         a model before noise; Certificate: how far from exact it can be
suggest_topics   how many topics: a Suggestion, a Candidate for each number, by a TrialPlan; suggest_for: of a matrix
fold_in          topics of new documents (numpy alone)
top_words        topics in display order; diversity and npmi: how good they are
topic_correlations  R of a model
ShareEstimator   topics over time and by class: SliceKeys and SliceSums of documents to TopicSlices,
                 which a SliceReport shows; read_days, periods
HeadTask         a downstream task, on LabelledDocuments and a TopicMatrix
fit_head         a TopicHead from zero; unlearn_head: carried over; newton_step: the paper's single step

A function that has its module's name is imported from there: `streamtopic.topics.update.update` carries a TopicFit over
to changed counts (Updated or NeedsRetrain).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic import lazily

if TYPE_CHECKING:
    from streamtopic.topics.certificate import Certificate
    from streamtopic.topics.display import diversity, npmi, top_words, topic_correlations
    from streamtopic.topics.estimator import AnchorTopics
    from streamtopic.topics.fit import TopicFit
    from streamtopic.topics.heads import (
        HeadTask,
        LabelledDocuments,
        TopicHead,
        TopicMatrix,
        fit_head,
        newton_step,
        unlearn_head,
    )
    from streamtopic.topics.how_many_topics import Candidate, Suggestion, TrialPlan, suggest_for, suggest_topics
    from streamtopic.topics.inference import fold_in
    from streamtopic.topics.learner import learn
    from streamtopic.topics.learner_options import GuidedTopic, LearnerOptions
    from streamtopic.topics.over_time import (
        ShareEstimator,
        SliceKeys,
        SliceReport,
        SliceSums,
        TopicSlices,
        periods,
        read_days,
    )
    from streamtopic.topics.update import NeedsRetrain, Updated

_HOMES = {
    "certificate": ("Certificate",),
    "display": ("diversity", "npmi", "top_words", "topic_correlations"),
    "estimator": ("AnchorTopics",),
    "fit": ("TopicFit",),
    "heads": ("HeadTask", "LabelledDocuments", "TopicHead", "TopicMatrix", "fit_head", "newton_step", "unlearn_head"),
    "how_many_topics": ("Candidate", "Suggestion", "TrialPlan", "suggest_for", "suggest_topics"),
    "inference": ("fold_in",),
    "learner": ("learn",),
    "learner_options": ("GuidedTopic", "LearnerOptions"),
    "over_time": ("ShareEstimator", "SliceKeys", "SliceReport", "SliceSums", "TopicSlices", "periods", "read_days"),
    "update": ("NeedsRetrain", "Updated"),
}

__all__ = [
    "AnchorTopics",
    "Candidate",
    "Certificate",
    "GuidedTopic",
    "HeadTask",
    "LabelledDocuments",
    "LearnerOptions",
    "NeedsRetrain",
    "ShareEstimator",
    "SliceKeys",
    "SliceReport",
    "SliceSums",
    "Suggestion",
    "TopicFit",
    "TopicHead",
    "TopicMatrix",
    "TopicSlices",
    "TrialPlan",
    "Updated",
    "diversity",
    "fit_head",
    "fold_in",
    "learn",
    "newton_step",
    "npmi",
    "periods",
    "read_days",
    "suggest_for",
    "suggest_topics",
    "top_words",
    "topic_correlations",
    "unlearn_head",
]

__getattr__, __dir__ = lazily(__name__, _HOMES)
