"""Rebuilding: whatever interrupts it, the counts are those of the log and no deletion loses what is known of it."""

import pytest

from embedded_service import SMALL, Service, silent, two_topics
from plain_counts import all_counts
from streamtopic.errors import StateMismatch, UsageError
from streamtopic.service.upkeep import rebuild_state as module
from streamtopic.service.upkeep.rebuild_state import present
from streamtopic.settings import load
from streamtopic.state import ForgetKind
from streamtopic.state.connection import ModelKeys
from streamtopic.state.model_state import leader


@pytest.fixture
def service(tmp_path, redis_server):
    """An instance with 40 documents, a version, and three deletions that wait for their receipt, in a compacted log."""
    number = abs(hash(tmp_path))
    given = {"dir": tmp_path, "redis_url": redis_server.url, "model": f"rebuild{number}"}
    with Service(load(SMALL | given)) as made:
        made.add(two_topics(0, 40))
        made.settle()
        made.delete(["d1", "d2", "unknown", "d3"])
        made.settle()
        made.log.compact(made.names.documents)
        yield made


def waiting(service):
    """What is known of each deletion that waits for its receipt."""
    return [(f.document, f.kind, f.document_offset) for f in service.reader.forgets(0).read()]


def test_counts_and_deletions_are_as_before(service):
    """Bit for bit; and a deletion still says that there was a document, which the log does not tell any more."""
    before, known = all_counts(service.reader.counts()), waiting(service)
    assert {kind for _, kind, *_ in known} == {ForgetKind.DELETED}
    found = service.rebuild(silent)
    assert found.documents == 37
    assert all_counts(service.reader.counts()) == before
    # Deletions that have their receipt are counted again, and the ledger knows them.
    assert service.publisher.step().receipts == 0
    assert waiting(service) == known
    assert leader(service.connection, service.settings.model) is None
    assert "counts of 37 documents in 1 partition(s)" in present(service.connection, service.settings.model)


def test_a_state_of_another_format_is_refused_and_rebuilt(service):
    """Nothing reads or continues it, the error names the remedy, and the remedy brings the same counts back."""
    before, known, keys = all_counts(service.reader.counts()), waiting(service), ModelKeys(service.settings.model)
    for key in (keys.named("settings"), keys.partition(0).meta):
        service.connection.call("HSET", key, "schema", 2)
    service.__exit__(None, None, None)
    with Service(service.settings) as later:
        for use in (lambda: later.state, lambda: later.reader, lambda: later.open_ingest(0), later.status):
            with pytest.raises(StateMismatch, match=r"format 2, .*`streamtopic rebuild`"):
                use()
        later.rebuild(silent)
        later.publisher.step()
        assert (all_counts(later.reader.counts()), waiting(later)) == (before, known)


@pytest.mark.parametrize("where", ["remove_partition", "remove_base", "record", "count_to_the_end", "note_removed"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_it_can_be_killed_anywhere_and_repeated(service, monkeypatch, where, when):
    """The second run ends as if there had been no first one; meanwhile each deletion waits with all of its facts."""
    before, known = all_counts(service.reader.counts()), waiting(service)
    act = getattr(module, where)

    def killed(*arguments, **more):
        if when == "after":
            done = act(*arguments, **more)
            # Records are counted as the flushes are asked for.
            _ = list(done) if where == "count_to_the_end" else done
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, where, killed)
        with pytest.raises(KeyboardInterrupt):
            service.rebuild(silent)
    assert set(known) <= set(waiting(service))
    service.rebuild(silent)
    service.publisher.step()
    assert (all_counts(service.reader.counts()), waiting(service)) == (before, known)


def test_what_was_begun_before_cannot_be_staged_any_more(service, monkeypatch):
    """A scheduler that learned from the old counts finds that it does not lead."""
    staged = service.state.acquire(service.holder, 60_000)
    found, act = [], module.count_to_the_end

    def count(ingests, update, **more):
        found.append(leader(service.connection, service.settings.model))
        return act(ingests, update, **more)

    monkeypatch.setattr(module, "count_to_the_end", count)
    service.rebuild(silent)
    assert found == [module.HOLDER]
    assert service.state.acquire(service.holder, 60_000).token > staged.token


def test_a_rebuild_without_a_state_refuses_other_partitions(service, monkeypatch):
    """The newest version says how many partitions it was made of: with more of them, documents would be elsewhere."""
    service.connection.call("DEL", ModelKeys(service.settings.model).named("settings"))
    monkeypatch.setattr(module, "_agreed", lambda *_: 2)
    with pytest.raises(UsageError, match=r"version 1 was made of 1 partitions.*another name"):
        service.rebuild(silent)
    monkeypatch.undo()
    service.rebuild(silent)
    assert waiting(service)
