"""Downstream tasks in the service: heads come with every version, and forget what the model forgets."""

import dataclasses
from functools import partial

import numpy as np
import pytest
from three_topics import leaning

from embedded_service import embedded
from streamtopic.documents.corpus import Document
from streamtopic.errors import InvalidRelease
from streamtopic.service.schedule.payload import Ingredients, task_options
from streamtopic.service.verify import passed, relearn
from streamtopic.state.document_counts import read_documents


def corpus(number=160, seed=0, label=lambda name, _: {"place": name}):
    """Texts that lean to one of three topics each, labelled by it."""
    return leaning(number, seed, label)


DOCUMENTS = corpus()
WITHHELD = {"publish": "tasks", "tolerance": 1e-9}


def service(folder, tasks=None, **more):
    """An embedded instance with one task, which serves deletions at once."""
    chosen = {"place": {"ridge": 1e-6}} if tasks is None else tasks
    return embedded(folder, tasks=chosen, **more)


def newest(instance):
    """Settle, and return the newest release with its record."""
    instance.settle()
    return instance.release(None), instance.state.releases(1)[0][1]


def accuracy(release, documents, task="place"):
    """Share of documents whose class is found."""
    found = release.classify([document.text for document in documents], task)
    return np.mean([got == document.labels[task] for got, document in zip(found, documents, strict=True)])


@pytest.mark.parametrize("how", [{}, WITHHELD], ids=["topics", "tasks"])
def test_heads_reach_subscribers_and_classify_unseen_documents(tmp_path, how):
    """A version brings a head with all classes, its subscribers classify with it, and the noise leaves it useful."""
    with service(tmp_path, **how) as instance:
        instance.add(DOCUMENTS)
        release, record = newest(instance)
        (received,) = iter(instance.subscriber().poll, None)
        assert received.heads == ("place",)
        assert received.classes("place") == ("garden", "harbour", "kitchen")
        assert np.array_equal(received.task_weights("place"), release.task_weights("place"))
        assert accuracy(received, corpus(60, seed=9)) > 0.9
        assert record["heads"]["place"]["documents"] == len(DOCUMENTS)
        assert record["unfitted"] == {}
        assert record["ratio"] == received.envelope.ratio < 0.5
        if how:
            assert received.payload.A is None
            with pytest.raises(InvalidRelease, match="withholds"):
                received.topics()
        read = partial(read_documents, instance.reader.counts())
        stored = Ingredients(noise=None, read=read, tasks=task_options(instance.settings)).labelled(release.words)
        x = stored["place"].frequencies(release.words)
        texts = [document.text for document in DOCUMENTS]
        assert release.scores(texts, "place") == pytest.approx(x @ release.task_weights("place"))
        assert passed(instance.verify())


TWO = {"place": {"ridge": 1e-6}, "parity": {"ridge": 1e-5, "topics": []}}


def labelled_twice(documents):
    """The documents with a second label, which says if their number is even; some have none."""

    def parity(document):
        return {} if document.id.endswith("7") else {"parity": "even" if int(document.id[-1]) % 2 == 0 else "odd"}

    return [Document(document.id, document.text, document.labels | parity(document)) for document in documents]


def test_a_class_that_is_forgotten_leaves_no_trace(tmp_path):
    """Once its last document is deleted a class is gone from the head; where one is left there is none, and why."""

    def label(name, k):
        return {"place": name, "rare": "yes" if k < 2 else "no"} | ({"odd": "once"} if k == 5 else {"odd": name})

    with service(tmp_path, {"place": {}, "rare": {}, "odd": {}}) as instance:
        instance.add(corpus(label=label))
        release, record = newest(instance)
        assert release.heads == ("odd", "place", "rare")
        assert "once" in release.classes("odd")
        instance.delete([DOCUMENTS[k].id for k in (0, 1, 5)])
        release, record = newest(instance)
        assert release.heads == ("odd", "place")
        assert release.classes("odd") == ("garden", "harbour", "kitchen")
        assert "only 'no' is left" in record["unfitted"]["rare"]
        assert passed(instance.verify())


@pytest.mark.parametrize("how", [{}, WITHHELD], ids=["topics", "tasks"])
def test_verification_notices_other_heads(tmp_path, how):
    """A head that is not that of the log's labels, other tasks or another way to publish fail, each with its remedy."""
    with service(tmp_path, TWO, **how) as instance:
        instance.add(labelled_twice(DOCUMENTS))
        newest(instance)
        assert passed(instance.verify())

    def failures(tasks=TWO, **more):
        with service(tmp_path, tasks, **{**how, **more}) as instance:
            return " ".join(check.detail for check in instance.verify() if check.passed is False)

    assert "'parity' has other topics, classes or documents than the log: verify with the tasks that" in failures(
        {"place": TWO["place"]}
    )
    assert "heads/" in failures({"place": {"ridge": 1e-4}, "parity": TWO["parity"]})
    assert "version 1, as published" in failures(publish="topics" if how else "tasks")


def test_verification_notices_other_labels(tmp_path, monkeypatch):
    """Labels are no counts, and still the documents in Redis are those of the log only if these agree as well."""
    with service(tmp_path) as instance:
        instance.add(DOCUMENTS[:60])
        instance.settle()
        real = relearn.read_documents

        def swapped(*given):
            stored = real(*given)
            return dataclasses.replace(stored, labels=stored.labels[::-1])

        monkeypatch.setattr(relearn, "read_documents", swapped)
        (finding,) = (one for one in instance.verify() if one.name == "counts")
        assert (finding.passed, finding.detail) == (False, "the documents in Redis differ from those in the log")
