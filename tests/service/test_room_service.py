"""A whole service at the limit of its words: its model, its verification, its rebuild, and what it says."""

import numpy as np

from streamtopic.corpus import Document
from streamtopic.service.doctor import Level
from streamtopic.service.doctor.room import examine_room
from streamtopic.service.rebuild import rebuild
from streamtopic.service.recount import compare
from streamtopic.service.rejections import rejections
from streamtopic.service.runner import Service
from streamtopic.settings import Settings


def test_a_service_at_its_limit_is_verified_and_says_so(tmp_path):
    """`verify` passes over what was refused for want of room only; status shows the words, doctor what to do."""
    texts = [Document(str(k), f"apple{k // 3:03d} pear{k // 3:03d} plum", {}) for k in range(1_800)]
    with Service(Settings(dir=tmp_path, max_partition_words=1_000, topics=2)) as service:
        service.add(texts)
        service.settle()
        status = service.status()
        assert (status["words"], status["word_limit"]) == ({0: 999}, 1_000)
        assert status["outcomes"]["rejected_words"] == len(texts) - status["documents"] > 0
        counts = service.verify(lambda *_: None).checks[0]
        assert counts.passed, counts.detail
        levels = {finding.name: finding for finding in examine_room(service)}
        assert levels["words of partition 0"].level is Level.FAIL
        assert "max_partition_words" in levels["words of partition 0"].remedy
        service.delete([document.id for document in texts[:300]])
        service.settle()
        assert service.verify(lambda *_: None).checks[0].passed


def test_the_doctor_says_what_redis_will_hold(tmp_path):
    """Bytes a document by kind, what a GiB holds, and where the words will be full if they go on growing as they do."""
    texts = [
        Document(str(k), " ".join(f"w{w:04d}" for w in {*range(k % 7), k // 2, 900 + k}), {}) for k in range(1_200)
    ]
    with Service(Settings(dir=tmp_path, max_partition_words=20_000, topics=2)) as service:
        service.add(texts)
        service.settle()
        words, redis = examine_room(service)
    assert (words.level, redis.level) == (Level.OK, Level.OK)
    held = len({word for text in texts for word in text.text.split()})
    assert f"{held:,} of at most 20,000; they grow like" in words.detail
    assert "bytes a document so far" in redis.detail
    assert "a GiB more is for about" in redis.detail


def chatty(number=160):
    """Texts that lean to one of two topics, each with seven words that nobody else has."""
    rng = np.random.default_rng(3)
    topics = [
        ["rose", "tulip", "soil", "seed", "bloom", "spade"],
        ["oven", "flour", "butter", "roast", "spoon", "salt"],
    ]
    for k in range(number):
        words = [*rng.choice(topics[k % 2], 25), *rng.choice(topics[1 - k % 2], 3), *(f"id{k}x{n}" for n in range(7))]
        yield Document(f"doc-{k:03d}", " ".join(map(str, words)), {})


def test_the_model_at_the_limit_is_that_of_the_documents_it_accepted(tmp_path):
    """A service that refused some and forgot some learns what one learns that saw the others only."""
    documents = list(chatty())
    plain = {"topics": 2, "max_df": 1.0, "max_forget_lag": 0.0, "capacity": "fixed", "capacity_fixed": 100}
    with Service(Settings(dir=tmp_path / "full", max_partition_words=1_000, **plain)) as service:
        service.add(documents)
        service.settle()
        refused = {rejection.document.decode() for rejection in rejections(service.log, service.names)}
        service.delete([document.id for document in documents[:5]])
        service.settle()
        fit = service.model_before_noise()
    with Service(Settings(dir=tmp_path / "twin", **plain)) as twin:
        twin.add([document for document in documents[5:] if document.id not in refused])
        twin.settle()
        difference = compare(fit, twin.model_before_noise())
    assert 0 < len(refused) < 40
    assert difference.words_equal
    assert difference.max_abs_difference < 1e-12


def test_a_rebuild_decides_alike_and_gives_ids_anew(tmp_path):
    """A log that still holds everything leads to the same refusals and counts, and words that are gone cost no id."""
    documents = list(chatty())
    with Service(Settings(dir=tmp_path, max_partition_words=1_000, topics=2)) as service:
        service.add(documents)
        service.settle()
        service.delete([document.id for document in documents[:50]])
        service.settle()
        before = service.reader.snapshot()
        digest = before.restrict(np.arange(len(before.words))).digest(before.words)
        refused = len(list(rejections(service.log, service.names)))
        given = service.ingests[0].state.meta.next_word
    with Service(Settings(dir=tmp_path, max_partition_words=1_000, topics=2)) as service:
        rebuild(service, lambda *_: None)
        after = service.reader.snapshot()
        assert after.restrict(np.arange(len(after.words))).digest(after.words) == digest
        (meta,) = service.reader.positions().values()
        assert meta.totals["rejected_words"] == refused > 0
        assert len(list(rejections(service.log, service.names))) == refused
        assert meta.next_word < given
        assert service.verify(lambda *_: None).checks[0].passed
