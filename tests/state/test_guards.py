"""Writes are all or nothing: repeated ones are known, stale ones write nothing, readers take newer counts."""

from dataclasses import replace
from itertools import chain

import pytest
from state_reference import Run, as_words

from added_documents import added_documents
from streamtopic.errors import StateCorrupt, StateMismatch, TakenOver
from streamtopic.state import (
    AlreadyApplied,
    Applied,
    DocumentChanges,
    ModelSettings,
    ModelState,
    PartitionWriter,
    Reader,
    Stale,
)
from streamtopic.state.connection import CHANGE, ModelKeys
from streamtopic.state.deletions import Forget, ForgetKind

TAKEN_OVER = Stale("another writer took the partition over, or the state is gone")
OTHER_HISTORY = Stale("the state has another history")


def planned(run):
    """Return a flush of one new document, not committed."""
    added = added_documents(run.state, (b"new", run.offset, ((2, {"n": 2}),)))
    return run.state.plan(DocumentChanges(run.offset + 1, added))


def twin(run):
    """Return a writer with the same token, as after Redis was set back: nothing but its commits tells it apart."""
    return PartitionWriter(run.connection, run.state.keys, run.state.fence)


def refused(run, write, expected):
    """A write is Stale for this reason, and no key has changed."""
    before = run.dump()
    assert write() == expected
    assert run.dump() == before


def lose(kind):
    """Return a function that makes Redis lose a key of a run. kind: name of a property of PartitionKeys."""
    return lambda run: run.connection.call("DEL", getattr(run.state.keys, kind))


def planned_by(state, offset):
    """Return another flush of one new document, not committed."""
    return state.plan(DocumentChanges(offset + 1, added_documents(state, (b"other", offset, ((2, {"o": 2}),)))))


def commit_beside(run):
    """Let a writer with the same token commit."""
    other = twin(run)
    assert other.commit(planned_by(other, run.offset)) == Applied()


def go_on_otherwise(run):
    """Set Redis back to what was saved last, and commit as often as since then, but another document."""
    run.set_back()
    commit_beside(run)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (lose("meta"), TAKEN_OVER.reason),
        (Run.open, TAKEN_OVER.reason),
        (commit_beside, OTHER_HISTORY.reason),
        (lose("forgets"), "keys of the partition are lost"),
    ],
)
def test_a_write_on_another_state_writes_nothing(run, event, reason):
    """What came between plan and commit is named, and no key changes; nor do statistics of a moment that is gone."""
    flush, writer = planned(run), run.state
    event(run)
    refused(run, lambda: writer.commit(flush), Stale(reason))
    if "lost" not in reason:
        refused(run, writer.sum_changes, Stale(reason))


@pytest.mark.parametrize("event", [Run.reopen, lose("meta")])
def test_what_a_claim_refuses_stays_as_it_is(run, event):
    """Neither other settings nor a lost position take the partition from its writer."""
    event(run)
    before = run.dump()
    with pytest.raises((StateMismatch, StateCorrupt), match="rebuild"):
        PartitionWriter.open(run.connection, run.model, 0, ModelSettings(1, 1))
    assert run.dump() == before


def test_a_repeated_sum_is_already_applied(connection, run, monkeypatch):
    """A second sum for one answer would end a generation that readers had no time to take up."""
    script, reader = connection.script, Reader(connection, run.model, 1)
    run.sum()
    old, before = reader.counts(), run.live.recount()
    run.add(5, ((2, {"y": 2}),))
    run.flush()
    answers = []

    def twice(text, *arguments):
        if text == CHANGE:
            answers.append(script(text, *arguments))
        return script(text, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(connection, "script", twice)
        assert run.state.sum_changes() == AlreadyApplied()
    assert [answer[0] for answer in answers] == [b"applied"]
    assert run.state.meta.generation == 2
    assert reader.counts().since(old).documents == run.live.recount()[0] - before[0]


def test_a_zombie_learns_that_it_must_stop(run):
    """A writer that another one replaced is told so, whatever it wants to do."""
    zombie = run.state
    run.open()
    for act in (
        zombie.reload,
        lambda: zombie.documents([b"d0"]),
        lambda: zombie.apply(DocumentChanges(run.offset + 1)),
    ):
        with pytest.raises(TakenOver):
            act()
    zombie.meta = replace(run.state.meta, unsummed=1 << 40)
    with pytest.raises(TakenOver):
        zombie.keep_summed(3600.0)


def test_a_plan_for_another_history_is_stale(connection, run):
    """Redis came back older and moved on to the same offset, version and token: the plan was made for what is gone."""
    run.save()
    assert run.state.commit(planned(run)) == Applied()
    flush = planned_by(run.state, run.offset + 1)
    go_on_otherwise(run)
    other = twin(run)
    same = [(one.meta.next_offset, one.meta.version, one.fence) for one in (run.state, other)]
    assert same[0] == same[1]
    refused(run, lambda: run.state.commit(flush), OTHER_HISTORY)
    refused(run, run.state.sum_changes, OTHER_HISTORY)


@pytest.mark.parametrize("number", [5, 99])
def test_another_format_is_refused(connection, run, model, number):
    """A state of another format is not read as if it were of this one; the error names both numbers and the remedy."""
    settings = ModelSettings(1, 256)
    ModelState.open(connection, model, settings)
    connection.call("HSET", run.state.keys.meta, "schema", number)
    connection.call("HSET", ModelKeys(model).named("settings"), "schema", number)
    for read in (
        run.open,
        Reader(connection, model, 1).counts,
        Reader(connection, model, 1).positions,
        lambda: ModelState.open(connection, model, settings),
        lambda: ModelState.find(connection, model),
    ):
        with pytest.raises(StateMismatch, match=rf"format {number}, .*reads format 15: run `streamtopic rebuild`"):
            read()


def test_a_deletion_that_waits_keeps_its_facts(run):
    """A log that is counted again may know less of it; and what is dropped is gone, whatever came in between."""
    forgets = run.state.forgets
    first = [Forget(offset, b"d", ForgetKind.DELETED, "r", b"salt", 0, 1, 2) for offset in (3, 50, 7)]
    again = [Forget(offset, b"d", ForgetKind.NOT_FOUND, "r", b"salt", -1, 1, 3) for offset in (2, 3, 7)]
    for some in (first, again):
        run.connection.change(forgets.added(some))
    assert list(forgets.each()) == [again[0], first[0], first[2], first[1]]
    before = forgets.mark()
    forgets.drop(again)
    assert [one.offset for one in forgets.each(4)] == [50] == [forgets.oldest().offset]
    assert (len(forgets), forgets.mark() == before) == (1, False)
    forgets.require()
    run.connection.call("HDEL", run.state.keys.forget_facts, 50)
    with pytest.raises(StateCorrupt, match="has lost deletions"):
        forgets.require()
    forgets.mend()
    forgets.require()
    assert len(forgets) == 0


def test_a_lexicon_that_is_full_of_gone_words_is_replaced(connection, model, monkeypatch):
    """Words that came and went are not remembered for ever, and counting goes on as before."""
    monkeypatch.setattr("streamtopic.state.partition_writer._SPARE_WORDS", 10)
    run = Run(connection, model)
    for k in range(20):
        run.add(0, ((9, {"all": 3, f"u{k}": 3, f"v{k}": 3}),))
        run.sum()
        run.state.tidy()
    assert len(run.state.lexicon) <= 2 * 7 + 12
    # Those of the last document, and the two that its change took away.
    assert run.state.meta.words == 3 + 2
    assert as_words(Reader(connection, model, 1).counts()) == run.live.recount()


def test_a_long_command_is_written_whole(connection, model):
    """Lua unpacks some thousand values at a time: none is lost, doubled, or parted from its field."""
    pairs = {b"f%d" % number: b"%d" % number for number in range(5_001)}
    assert connection.change([("HSET", model, *chain.from_iterable(pairs.items()))]) == Applied()
    assert connection.call("HGETALL", model) == pairs
