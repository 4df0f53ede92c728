"""Words of a whole service: what status and doctor say of them."""

from streamtopic.documents.corpus import Document
from streamtopic.service.app import Service
from streamtopic.service.inspection import examination
from streamtopic.service.inspection.examination import Level, examine_words
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
            finding.name: finding for finding in examine_words(service.connection, service.settings, service.fixed)
        }
    assert levels["words of partition 0"].level is Level.WARN
    assert "out of the texts" in levels["words of partition 0"].remedy
