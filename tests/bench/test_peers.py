"""Peers: the material they share, the scorer that judges them, and that each one works."""

import gzip
import json
from itertools import combinations

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamtopic.bench.peers.material import load_material
from streamtopic.bench.peers.models import MODELS, Change
from streamtopic.bench.peers.score import Lists, accuracy

WORDS = (("goal", "match", "team", "coach"), ("vote", "party", "law", "court"))
NEEDS = {"gensim-lda": "gensim", "gensim-lda-tuned": "gensim", "tomotopy-lda": "tomotopy"}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Return a file of 120 documents on two topics, with a class each and a word that is in most of them."""
    rng = np.random.default_rng(1)
    path = tmp_path_factory.mktemp("peers") / "documents.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for k in range(120):
            words = [*rng.choice(WORDS[k % 2], 12), "today", *(["the"] if k % 10 else [])]
            file.write(json.dumps({"id": str(k), "text": " ".join(words), "label": "ab"[k % 2]}) + "\n")
    return str(path)


def test_the_scorer_is_the_definition(documents):
    """NPMI of pairs of top words by documents, distinct words among them, and classes told apart."""
    material = load_material(documents)
    vocabulary = material.everything
    names = [material.words[k] for k in vocabulary]
    topics = np.full((2, len(names)), 1e-2)  # enough that "the" and "today" are in the pool that display chooses from
    for k, group in enumerate(WORDS):
        topics[k, [names.index(word) for word in group]] = 1
    topics /= topics.sum(axis=1, keepdims=True)
    found = Lists.of(topics, vocabulary, material.evidence(vocabulary), top=4).score(material)
    held = [set(np.flatnonzero(material.counts.toarray()[:, material.words.index(w)])) for g in WORDS for w in g]
    values = []
    for group in (held[:4], held[4:]):
        for one, other in combinations(group, 2):
            joint = len(one & other) / 120
            values.append(np.log(joint * 120 * 120 / len(one) / len(other)) / -np.log(joint))
    assert found.plain_npmi == pytest.approx(np.mean(values))
    # Four of the first eight: "the" and "today" go with every word, and are in both lists.
    assert found.likely_diversity == 0.5
    assert accuracy(topics, vocabulary, material) == 1


@pytest.mark.parametrize("name", MODELS)
def test_every_model_finds_two_topics(name):
    """Each library learns, infers and says whether it can add and forget; ours can do both."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"peers: needs {NEEDS[name]}", exc_type=ImportError)
    # Each of 120 words is in a fifteenth of the documents, so that ours keeps all.
    rates = np.where(np.arange(120)[:, None] % 2 == np.arange(120) % 2, 0.14, 0.002)
    X = csr_array(np.random.default_rng(1).poisson(rates).astype(float))
    model = MODELS[name](2)
    model.fit(X)
    topics = model.topics()
    assert topics.shape == (2, 120)
    assert np.allclose(topics.sum(axis=1), 1)
    theta = model.infer(X[:10])
    assert theta.shape == (10, 2)
    assert (theta >= 0).all()
    changes = {model.add(X[:1]), model.forget(X[:1])}
    assert (Change.REFIT in changes) != name.startswith("streamtopic")
