"""Counts to a topic model; unlearning; downstream tasks; inference. Each name is imported from its module.

estimator          AnchorTopics: a topic model as a scikit-learn estimator; fitted: all that it holds; saved: as a file
learner_options    LearnerOptions: the choices of a learner; GuidedTopic: a topic of seed words among them
learner            learn: counts to a TopicFit, from a cold start
fit                TopicFit: a model before noise; certificate: how far from exact it can be (Certificate)
update             update: a TopicFit carried over to changed counts (or NeedsRetrain)
how_many_topics    suggest_topics: a Suggestion, a Candidate for each number, by a TrialPlan; suggest_for: of a matrix
inference          fold_in: topics of new documents (numpy alone)
display            top_words: topics in display order; diversity and npmi: how good they are; topic_correlations: R
heads              HeadTask: a downstream task (LabelledDocuments, TopicMatrix); fit_head: a TopicHead from zero
What learning and updates are made of:
anchors            the words that represent topics; paper_anchors: of the published learner; guided: by seed words of
                   people
mixtures           every word as a mixture of rows, by simplex: least squares over the simplex
products           products of Q with thin matrices, also after a change; reproducible: in a fixed order
"""
