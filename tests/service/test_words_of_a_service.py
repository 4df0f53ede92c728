"""Words and memory of a whole service: what status and doctor say of them."""

from streamtopic.documents.corpus import Document
from streamtopic.service.app import Service
from streamtopic.service.inspection import examination
from streamtopic.service.inspection.examination import Level, examine_room
from streamtopic.service.verify import passed
from streamtopic.settings import Settings


def test_many_words_are_shown_and_refuse_nothing(tmp_path, monkeypatch):
    """Status has words and word ids by partition; doctor warns, and every document is counted and verified."""
    monkeypatch.setattr(examination, "MANY_WORDS", 1_000)
    texts = [Document(str(k), f"apple{k // 3:03d} pear{k // 3:03d} plum", {}) for k in range(1_800)]
    with Service(Settings(dir=tmp_path, topics=2)) as service:
        service.add(texts)
        service.settle()
        status = service.status()
        assert (status["documents"], status["words"], status["word_ids"]) == (1_800, {0: 1_201}, {0: 1_201})
        assert passed(service.verify())
        levels = {
            finding.name: finding for finding in examine_room(service.connection, service.settings, service.fixed)
        }
    assert levels["words of partition 0"].level is Level.WARN
    assert "out of the texts" in levels["words of partition 0"].remedy


def test_the_doctor_says_what_redis_will_hold(tmp_path):
    """Words, bytes a document by kind, and what a GiB holds."""
    texts = [
        Document(str(k), " ".join(f"w{w:04d}" for w in {*range(k % 7), k // 2, 900 + k}), {}) for k in range(1_200)
    ]
    with Service(Settings(dir=tmp_path, topics=2)) as service:
        service.add(texts)
        service.settle()
        words, redis = examine_room(service.connection, service.settings, service.fixed)
        levels = []
        for limit in (1 << 30, 16 << 20):
            service.connection.call("CONFIG", "SET", "maxmemory", limit)
            levels.append(
                [finding.level for finding in examine_room(service.connection, service.settings, service.fixed)][-1]
            )
    assert (words.level, redis.level) == (Level.OK, Level.OK)
    # Twice the changes that one partition may hold leave nothing of 16 MiB.
    assert levels == [Level.OK, Level.WARN]
    held = len({word for text in texts for word in text.text.split()})
    assert words.detail == f"{held:,}"
    assert "bytes a document so far" in redis.detail
    for kind in ("its record", "words (", "changes and statistics", "co-occurrence counts"):
        assert kind in redis.detail
    assert "a GiB more is for about" in redis.detail
