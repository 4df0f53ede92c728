"""From a model to what is published of it, without a service around it."""

import dataclasses

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamtopic import AnchorTopics
from streamtopic.counts import Counts, count
from streamtopic.counts.matrices import as_documents
from streamtopic.privacy.accounting import Composition
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.privacy.noise import CalibratedGuarantee
from streamtopic.service.schedule.payload import Ingredients, TaskOptions, labelled_digest, make_payload
from streamtopic.service.verify.recount import batch_of
from streamtopic.state.document_counts import StoredDocuments
from streamtopic.topics.display import npmi
from streamtopic.topics.heads import HeadTask, TopicMatrix, fit_head
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.words.text import passages

NOISE = NoiseKey(bytes(range(32))).of("news", 1)
GUARDED = CalibratedGuarantee(1.0, 1e-6, 1e-9)
PLACES = {
    "garden": "rose tulip soil seed bloom",
    "kitchen": "oven flour butter knead",
    "sea": "vessel tide crew cargo mast",
}
TASKS = {"place": HeadTask(ridge=1e-6), "sea": HeadTask(ridge=1e-5, tolerance=1e-5)}


@pytest.fixture(scope="module")
def made():
    """A fit of planted documents, its counts, and what reads the documents with their labels."""
    rng = np.random.default_rng(4)
    rows, labels = [], []
    for k in range(120):
        own = list(PLACES)[k % 3]
        words = [str(rng.choice(PLACES[own if rng.random() < 0.8 else "sea"].split())) for _ in range(30)]
        rows.append(tuple(passages(" ".join(words))))
        labels.append({"place": own, "sea": str(own == "sea")} if k % 10 else {"place": own})
    options = LearnerOptions(n_topics=3, max_df=1.0, min_df=2)
    words, batch = batch_of(rows)
    source = Counts(words, count(batch, len(words), options.weighting))
    fit = learn(source, options)
    assert tuple(words) == fit.words
    stored = StoredDocuments(batch, (b"",) * len(labels), tuple(labels))
    return fit, source, lambda *_, **__: stored


def payload(made, **how):
    """The plan of version 1."""
    fit, source, read = made
    tasks = TaskOptions(TASKS, withheld=how.pop("withheld", False))
    return make_payload(fit, source, GUARDED, Ingredients(NOISE, read, tasks, **how))


def documents(made):
    """The labelled documents of each task."""
    return Ingredients(NOISE, made[2], TaskOptions(TASKS)).labelled(made[0].words)


def test_heads_do_not_change_the_topics_they_stand_beside(made):
    """With tasks or without, the model and its noise are the same bytes: a head is computed from them alone."""
    fit, source, _ = made
    alone, beside = make_payload(fit, source, GUARDED, Ingredients(NOISE, read=None)), payload(made)
    assert np.array_equal(alone.payload.A, beside.payload.A)
    assert alone.shown == beside.shown
    assert beside.payload.heads.keys() == TASKS.keys()
    assert alone.facts == {}


def test_what_is_published_is_what_the_estimator_shows():
    """From the same counts both show the same words in the same order, and quality is that of the ten shown first."""
    rng = np.random.default_rng(11)
    topics = rng.dirichlet(np.full(90, 0.2), 3)
    X = np.array([rng.multinomial(50, theta @ topics) for theta in rng.dirichlet(np.full(3, 0.2), 250)])
    names = [f"word{k:02d}" for k in range(90)]
    options = LearnerOptions(n_topics=3, min_df=2, max_df=0.5)
    source = Counts(names, count(as_documents(csr_array(X)), 90, options.weighting))
    fit = learn(source, options)
    sample = as_documents(csr_array(X[:, np.searchsorted(names, fit.words)]))
    published = make_payload(fit, source, GUARDED, Ingredients(NOISE, read=None, sample=lambda: sample)).payload
    estimator = AnchorTopics(3, min_df=2, max_df=0.5).fit(X)
    assert published.top_words == tuple(row.words for row in sorted(estimator.topic_info(names, top=20)))
    first = [words[:10] for words in published.top_words]
    assert published.quality["diversity"] == len({word for words in first for word in words}) / 30
    place = {word: k for k, word in enumerate(fit.words)}
    at = np.array([place[word] for words in first for word in words])
    assert published.quality["npmi"] == npmi(at.reshape(3, 10), sample)


def test_heads_alone_are_noised_together(made):
    """Each head has sqrt(2) times the noise it would need alone, and both together spend epsilon."""
    plan = payload(made, withheld=True)
    assert plan.payload.A is plan.payload.R is plan.payload.shares is None
    assert plan.payload.quality == {}
    assert plan.payload.top_words == ()
    assert plan.shown["sigma"] == max(about["sigma"] for about in plan.facts["heads"].values())
    spent = Composition.of([(plan.shown["scale"], plan.shown["slack"])]).epsilon(GUARDED.delta)
    assert spent == pytest.approx(GUARDED.epsilon, rel=1e-6)
    fit = made[0]
    model = TopicMatrix(fit.A, fit.words, fit.topic_names)
    labelled = documents(made)
    for task, head in plan.payload.heads.items():
        exact = fit_head(model, labelled[task], TASKS[task]).w
        noise = head.B - fit.A[:, [fit.anchors.index(topic) for topic in head.topics]] @ exact
        assert noise.std() == pytest.approx(plan.facts["heads"][task]["sigma"], rel=0.5)


def test_each_head_has_noise_of_its_own(made):
    """Two tasks that differ in their names alone publish other numbers: noise that both share would cancel out."""
    fit, source, read = made
    stored = read()
    labels = tuple(dict.fromkeys(("one", "two"), of_document["place"]) for of_document in stored.labels)
    tasks = TaskOptions(dict.fromkeys(("one", "two"), TASKS["place"]), withheld=True)
    twice = Ingredients(NOISE, lambda *_, **__: dataclasses.replace(stored, labels=labels), tasks)
    heads = make_payload(fit, source, GUARDED, twice).payload.heads
    assert not np.array_equal(heads["one"].B, heads["two"].B)


def test_noise_of_heads_is_keyed_by_labels_too(made):
    """Counts do not say which document has which label; the digest does, in every part."""
    tasks, labelled = TaskOptions(TASKS), documents(made)
    digest = labelled_digest("counts", tasks, labelled)
    assert digest == labelled_digest("counts", tasks, documents(made))
    place = labelled["place"]
    swapped = dataclasses.replace(place, labels=(place.labels[1], place.labels[0], *place.labels[2:]))
    turned = dataclasses.replace(place, counts=place.counts[np.array([1, 0, *range(2, 120)])])
    others = [
        (tasks, labelled | {"place": swapped}),
        (tasks, labelled | {"place": turned}),
        (TaskOptions(TASKS | {"place": HeadTask(ridge=1e-7)}), labelled),
        (TaskOptions({"place": TASKS["place"]}), labelled),
    ]
    digests = {digest, labelled_digest("other counts", tasks, labelled)}
    digests.update(labelled_digest("counts", *other) for other in others)
    assert len(digests) == 6
    fit, source, read = made
    turned = dataclasses.replace(read(), labels=read().labels[::-1])
    other = payload((fit, source, lambda *_, **__: turned), withheld=True)
    assert other.digest != payload(made, withheld=True).digest
