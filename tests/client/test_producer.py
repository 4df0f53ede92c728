import pytest

from streamtopic.client import DocumentProducer
from streamtopic.documents.events import Delete, Document, decode_record
from streamtopic.errors import UsageError
from streamtopic.streams import partition_of

SALT = "0123456789abcdef"


def events(log):
    """All events, by partition and offset."""
    return [decode_record(record) for p in range(3) for record in log.read("news.documents", p, 0)]


def test_what_is_sent_is_what_the_service_reads(log, tmp_path):
    """Adds and deletes arrive as events in the partition of their key, through a folder as through a log."""
    log.create("news.documents", 3)
    with DocumentProducer(tmp_path / "log", model="news", new_id=lambda: "r-9", new_salt=lambda: SALT) as producer:
        place = producer.add("doc-1", text="one fish", labels={"task": "x"})
        assert producer.delete("doc-1") == "r-9"
        assert producer.delete("doc-1", request="mine") == "mine"
    assert place == (partition_of(b"doc-1", 3), 0)
    assert events(log) == [
        Document("doc-1", "one fish", {"task": "x"}),
        Delete("doc-1", "r-9", SALT.encode()),
        Delete("doc-1", "mine", SALT.encode()),
    ]


def test_what_cannot_be_used_says_so(tmp_path):
    """A missing topic and a bad model name are usage errors that name the remedy."""
    with pytest.raises(UsageError, match="streamtopic init"):
        DocumentProducer(tmp_path, model="news").add("d", text="t")
    with pytest.raises(UsageError, match="model name"):
        DocumentProducer(tmp_path, model="a/b")
