"""The scheduler's model is carried over with all that is known of a change."""

import numpy as np
import pytest

from streamtopic.documents.corpus import Document
from streamtopic.service.app import Service
from streamtopic.service.schedule import modeller as modelling
from streamtopic.settings import Settings

WORDS = [["rose", "tulip", "soil", "seed", "bloom"], ["oven", "flour", "butter", "knead", "salt"]]


@pytest.fixture
def instance(tmp_path):
    """A service of 60 documents in two topics that serves deletions at once."""
    rng = np.random.default_rng(0)
    texts = [
        " ".join(rng.choice(WORDS[0], n)) + " " + " ".join(rng.choice(WORDS[1], 20 - n))
        for n in rng.choice([1, 10, 19], 60).tolist()
    ]
    plain = {"max_forget_lag": 0.0, "capacity": {"rule": "fixed", "documents": 1000}, "max_df": 1.0}
    with Service(Settings(dir=tmp_path, topics=2, **plain)) as instance:
        instance.add([Document(f"d{k}", text, {}) for k, text in enumerate(texts)])
        instance.settle()
        yield instance


@pytest.fixture
def told(monkeypatch):
    """What updates were told of passages."""
    told, real = [], modelling.update

    def spy(fit, now, delta, passages=None):
        told.append(passages)
        return real(fit, now, delta, passages)

    monkeypatch.setattr(modelling, "update", spy)
    return told


def test_an_update_is_told_of_the_passages_that_went(instance, told):
    """After two deletions: two passages of 20 tokens with negative weights, in which a word counts at most twice."""
    instance.delete(["d3", "d8"])
    instance.settle()
    (passages,) = told
    assert (passages.passages, (passages.weights < 0).all()) == (2, True)
    assert np.add.reduceat(passages.counts, passages.indptr[:-1]).tolist() == [11, 11]
    assert passages.counts.max() == 2
    assert instance.model_before_noise().documents == 58


def test_a_model_is_learned_cold_where_the_changes_since_are_gone(instance, told):
    """Nobody knows then what came and went; the documents that are left tell all the same."""
    instance.delete(["d3", "d8"])
    for ingest in instance.ingests:
        list(ingest.drain())
        # The second generation of changes that begins removes the one with the deletions.
        ingest.state.sum_changes()
        ingest.state.sum_changes()
    instance.settle()
    assert told == []
    assert instance.model_before_noise().documents == 58
