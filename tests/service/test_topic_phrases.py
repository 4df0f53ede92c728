"""Phrases of a service's topics: exact under deletion, and the same as those of a twin."""

from dataclasses import replace

import numpy as np
import pytest
from embedded_service import embedded
from three_topics import TOPICS, never_saw

from streamtopic.documents.corpus import Document
from streamtopic.documents.events import encode_add
from streamtopic.errors import UsageError
from streamtopic.service.app import silent
from streamtopic.service.inspection.topic_phrases import DocumentsTopic, count_phrases, read_phrases
from streamtopic.service.upkeep.rebuild_state import rebuild
from streamtopic.streams import KafkaLog
from streamtopic.topics.phrases import PhraseFinder

FINDER = PhraseFinder(list(TOPICS.values()))


def corpus(number=240, seed=0):
    """Texts of three topics; most of each topic hold a phrase of its own, such as "rose bloom"."""
    rng = np.random.default_rng(seed)
    documents = []
    for k in range(number):
        topic = list(TOPICS.values())[k % 3]
        words = [str(word) for word in rng.choice(topic, 20)]
        if k % 5:
            words[10:10] = [topic[0], topic[4]]
        documents.append(Document(f"doc-{k:03d}", " ".join(words), {}, None))
    return documents


DOCUMENTS = corpus()
GONE = {document.id for document in DOCUMENTS[3:90:4]}
REST = [document for document in DOCUMENTS if document.id not in GONE]


def expected(documents):
    """Documents that hold each pair, counted anew from texts."""
    found = {}
    for document in documents:
        for pair in FINDER.pairs(document.text.split()):
            found[pair] = found.get(pair, 0) + 1
    return found


def service(folder, **more):
    """An embedded instance that serves deletions at once."""
    return embedded(folder, **{"partitions": 2, **more})


def counted(instance):
    """The pairs of an instance's documents, which must all be read at one point."""
    topic = DocumentsTopic(instance.log, instance.names.documents, instance.dialect)
    found = count_phrases(instance.connection, instance.reader, topic, FINDER, silent)
    assert found.whole
    return dict(found.pairs)


def test_service_and_twin_show_the_same_phrases(tmp_path, key):
    """After a deletion, phrases and their numbers are those of a service that never saw the documents."""
    with service(tmp_path / "saw", noise_key=key) as saw:
        saw.add(DOCUMENTS)
        saw.settle()
        before = saw.phrases(None)
        assert counted(saw) == expected(DOCUMENTS)
        saw.delete(sorted(GONE))
        saw.settle()
        assert saw.versions()[-1]["kind"] == "unlearn"
    with service(tmp_path / "never", noise_key=key) as never:
        never_saw(never, REST)
        twin = never.phrases(None)
        assert counted(never) == expected(REST)
    with service(tmp_path / "saw", noise_key=key) as saw:
        assert counted(saw) == expected(REST)
        shown = saw.phrases(None)
        assert shown == twin
        assert shown.topics != before.topics
        phrases = [phrase for own in shown.topics for phrase in own]
        assert "anchor cargo" in map(str, phrases)
        assert all(phrase.documents == expected(REST)[phrase.words] >= 20 for phrase in phrases)
        rebuild(saw, silent)
        assert counted(saw) == expected(REST)
        assert saw.phrases(None) == twin


def test_the_newest_text_of_a_document_counts(tmp_path):
    """A replaced text, one sent again in another order of words, and one that became counts, leave no pair behind."""
    with service(tmp_path) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        other = [Document(one.id, "tide mast rope gull", {}, None) for one in DOCUMENTS[:4]]
        turned = [Document(one.id, " ".join(reversed(one.text.split())), {}, None) for one in DOCUMENTS[4:8]]
        instance.add([*other, *turned])
        instance.log.append_many(
            instance.names.documents, [encode_add(one.id, counts={"rose": 2, "bloom": 1}) for one in DOCUMENTS[8:12]]
        )
        instance.settle()
        assert counted(instance) == expected([*other, *turned, *DOCUMENTS[12:]])


def test_a_floor_hides_what_few_documents_hold(tmp_path):
    """No phrase of fewer than 20 documents is shown, and a phrase that falls below the floor vanishes."""
    with service(tmp_path) as instance:
        few = [Document(f"few-{k}", "tulip hedge " * 3 + f"spade soil {k}", {}, None) for k in range(20)]
        instance.add([*DOCUMENTS, *few])
        instance.settle()
        enough = {str(phrase): phrase.documents for own in instance.phrases(None, top=50).topics for phrase in own}
        instance.delete(["few-3"] + [one.id for one in DOCUMENTS if "tulip hedge" in one.text])
        instance.settle()
        left = {str(phrase) for own in instance.phrases(None, top=50).topics for phrase in own}
        assert enough["tulip hedge"] >= 20
        assert min(enough.values()) >= 20
        assert counted(instance)["tulip", "hedge"] == 19
        assert "tulip hedge" not in left


def test_a_version_without_words_names_the_remedy(tmp_path):
    """Where topics are withheld there is nothing to make phrases of."""
    with service(tmp_path) as instance:
        instance.add(DOCUMENTS)
        instance.settle()
        release = instance.release(None)
        silent_one = replace(release, payload=replace(release.payload, top_words=()))
        topic = DocumentsTopic(instance.log, instance.names.documents, instance.dialect)
        with pytest.raises(UsageError, match='publish = "topics"'):
            read_phrases(instance.connection, instance.reader, topic, silent_one, 5, silent)


@pytest.mark.slow
def test_phrases_are_read_from_kafka(kafka_server, tmp_path):
    """A broker's log gives the same numbers, and a deletion that is counted leaves none behind."""
    with service(tmp_path, kafka=kafka_server.servers, model="phrases") as instance:
        assert isinstance(instance.log, KafkaLog)
        instance.add(DOCUMENTS)
        instance.settle()
        assert counted(instance) == expected(DOCUMENTS)
        instance.delete(sorted(GONE))
        instance.settle()
        assert counted(instance) == expected(REST)
