"""The scheduler's model is carried over with all that is known of a change."""

import numpy as np
import pytest

from streamtopic.documents.corpus import Document
from streamtopic.service import processes
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


@pytest.fixture
def outpaced(monkeypatch):
    """Return a function: let the changes go that readers of now need, in the middle of the next learning."""

    def begin(instance):
        real = modelling.learn

        def learn(counts, options):
            monkeypatch.setattr(modelling, "learn", real)
            fit = real(counts, options)
            instance.add([Document("late", "rose oven tulip flour", {"kind": "late"})])
            for ingest in instance.ingests:
                list(ingest.drain())
                ingest.state.sum_changes()
                ingest.state.sum_changes()
            return fit

        monkeypatch.setattr(modelling, "learn", learn)

    return begin


def test_a_version_lacks_its_coherence_where_the_sample_cannot_be_read(instance, outpaced):
    """Deletions wait for versions, so one does not wait for a figure of its quality."""
    outpaced(instance)
    instance.settle(requested="retrain")
    first, second = (instance.release(version) for version in (1, 2))
    assert (first.envelope.m, second.envelope.m) == (60, 60)
    assert {*first.quality} - {*second.quality} == {"npmi"}


def test_a_version_whose_labels_cannot_be_read_is_made_at_the_next_step(tmp_path, outpaced):
    """Nothing is staged, the operator's request still waits, and the part tells why it tries again."""
    with Service(Settings(dir=tmp_path, topics=2, tasks={"kind": {}}, max_df=1.0, min_df=1)) as instance:
        labels = [{"kind": "garden"}, {"kind": "kitchen"}]
        instance.add([Document(f"d{k}", " ".join(WORDS[k % 2] * 4), labels[k % 2]) for k in range(60)])
        for ingest in instance.ingests:
            list(ingest.drain())
        instance.state.request("retrain")
        outpaced(instance)
        told = []
        said = processes._one_step(instance, "", told.append)
        assert "documents changed faster than a model could be made of them" in said
        assert [event["event"] for event in told] == ["decided"]
        assert instance.versions() == []
        assert instance.state.requested() is not None
        assert processes._one_step(instance, said, told.append).endswith("(version 1)")
        assert instance.versions()[0]["documents"] == 61
        assert instance.state.requested() is None
