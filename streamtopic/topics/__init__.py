"""Counts to a topic model; unlearning; inference.

    options      the choices of a learner
    vocabulary   which words
    anchors      which words stand for topics
    simplex      every word as a mixture of anchors, exactly
    certificate  how far from exact the result can be
    learner      the whole path from counts, cold
    update       the same model after a change of counts, warm
    inference    topics of new documents (numpy alone)
    estimator    AnchorTopics, the scikit-learn face

Modules are imported by name, so that a subscriber that only infers does not load the learner.
"""
