"""What a deletion leaves behind: bytes are searched for, not believed to be gone."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from watched_service import Clock

from appending import append, everything
from embedded_service import embedded, two_topics
from kafka_topics import HASTY, until_compacted
from servers.redis_cluster import LocalRedisCluster
from streamtopic.cli import main
from streamtopic.documents.corpus import Document
from streamtopic.documents.events import HEARTBEAT_KEY, encode_add, encode_delete
from streamtopic.errors import StateMismatch
from streamtopic.service.publish import erasure
from streamtopic.service.publish.erasure import superseded_from
from streamtopic.signed import Erased, LedgerProof
from streamtopic.state.deletions import Marks, Outstanding, Residue, ResidueState, Stage
from streamtopic.streams import FileLog, open_log
from waiting import until

RARE = "xylograph"
_numbers = itertools.count()


@pytest.fixture
def clock():
    """A clock ahead of the real one."""
    return Clock()


def opened(folder, clock, max_age=0.0):
    """An embedded instance with an append-only file, which clears up at once, or in the time that is allowed."""
    plain = {"topics": 2, "min_df": 1, "residue_max_age": max_age, "backups_kept": 0.0}
    return embedded(folder, clock=clock, **plain)


@pytest.fixture
def service(tmp_path, clock):
    """An instance with a version of 60 documents."""
    with opened(tmp_path, clock) as service:
        service.add(two_topics(0, 60))
        service.settle()
        yield service


def deleted(service, *documents):
    """Delete documents; return the offset of the last record."""
    service.delete(documents)
    return service.log.end(service.names.documents, 0) - 1


def places(folder, word=RARE):
    """Files of an instance, by name, that hold a word."""
    return sorted(
        {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and word.encode() in p.read_bytes()}
    )


def residue(service):
    """What is known of the traces of deletions."""
    return ResidueState(service.connection, service.settings.model).read()


def settle_until(service, done):
    """Settle until something holds."""

    def settled():
        service.settle()
        return done()

    until(settled, lambda: residue(service), 0.1)


def test_nothing_is_left_of_a_rare_word_once_the_ledger_says_so(tmp_path, clock, monkeypatch):
    """Its bytes are in the log, in releases, in Redis's file before; at the end of the ledger they are nowhere."""
    with opened(tmp_path, clock) as service:
        service.connection.call("CONFIG", "SET", "rdbcompression", "no")
        service.add([*two_topics(0, 60), *(Document(f"r{n}", f"{RARE} apple banana iron", {}) for n in range(2))])
        service.settle()
        before = places(tmp_path)
        assert any("log" in place for place in before), before
        for topic in (service.names.documents, service.names.releases):
            assert any(RARE.encode() in (record.value or b"") for record in service.log.read(topic, 0, 0)), topic
        assert any("redis" in place for place in before), before
        offset = deleted(service, "r0", "r1")
        # Until the bytes have been seen, no stage ends however long that takes.
        with monkeypatch.context() as patch:
            patch.setattr(erasure.ResidueKeeper, "_base", lambda *_: {})
            service.settle()
            assert any("redis" in place for place in places(tmp_path))
            assert residue(service).of(0).of(Stage.STATE).offset <= offset
        settle_until(service, lambda: residue(service).of(0).done > offset)
        assert places(tmp_path) == []
        assert service.state.base().blob == b""
        reached = residue(service).reached(0, offset)
        assert list(reached) == list(Stage)
        assert all(reached.values())


def test_bytes_of_a_withdrawn_version_hold_the_mark_of_the_log(service, clock, monkeypatch):
    """It was made before the deletion, and whoever reads the topic still gets it, although it is withdrawn."""
    compact = service.log.compact

    def spared(*topics, **more):
        return compact(*{*topics} - {service.names.releases}, **more)

    offset = deleted(service, "d0")
    with monkeypatch.context() as patch:
        patch.setattr(service.log, "compact", spared)
        service.settle()
        clock.ahead += 3_600
        service.settle()
        service.leader.residue.step(whole=True, again=True)
        assert residue(service).of(0).of(Stage.LOG).offset <= offset
    clock.ahead += 3_600
    settle_until(service, lambda: residue(service).of(0).of(Stage.LOG).offset > offset)


def test_the_end_is_signed_once_for_many_deletions(service, tmp_path, capsys):
    """One entry of the ledger covers all deletions that came to their end, and it can be proved."""
    offset = deleted(service, "d0", "d1", "d2", "unknown")
    settle_until(service, lambda: residue(service).completed.get(0, 0) > offset)
    receipts = service.reader_of_receipts()
    found = list(receipts)
    assert len(found) == 4
    erased = receipts.erased(found[0])
    assert all(receipts.erased(receipt) == erased for receipt in found)
    assert set(erased.reached[0]) == set(Stage)
    assert erased.attested == ("backups",)
    service.settle()
    assert service.entries(Erased) == [erased]
    proved = LedgerProof.parse(receipts.proof(erased)).verify(service.keys)
    assert proved.entry == erased
    # A command has the folder to itself.
    service.__exit__()
    capsys.readouterr()
    assert main(["receipt", found[0].id, "--dir", str(tmp_path), "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["receipts"]
    assert (shown["erased"], all(shown["residue"].values())) == (proved.index, True)
    assert main(["receipt", found[0].id, "--dir", str(tmp_path)]) == 0
    assert "residue state" in capsys.readouterr().out


def holding(cluster):
    """Ports of the masters with a file that holds the rare word."""
    found = (node for node in cluster.masters() for path in node.folder.iterdir() if RARE.encode() in path.read_bytes())
    return {node.port for node in found}


@pytest.mark.slow
def test_nothing_is_left_in_the_file_of_any_master(tmp_path):
    """A rare word of documents in four partitions is in the files of masters, and in none once the ledger says so."""
    with LocalRedisCluster(replicas=0, options={"rdbcompression": "no"}) as cluster:
        plain = {"partitions": 4, "topics": 2, "min_df": 1, "residue_max_age": 0.0, "backups_kept": 0.0}
        with embedded(tmp_path, redis_url=cluster.url, **plain) as service:
            service.add(two_topics(0, 60))
            service.add([Document(f"r{n}", f"{RARE} apple banana iron", {}) for n in range(8)])
            service.settle()
            assert len(holding(cluster)) > 1, "one master holds it: nothing is shown"
            service.delete([f"r{n}" for n in range(8)])
            service.settle()
            ends = {p: meta.removed for p, meta in service.reader.positions().items() if meta.removals}
            settle_until(service, lambda: all(residue(service).of(p).done >= end for p, end in ends.items()))
            assert holding(cluster) == set()


@pytest.mark.parametrize("where", ["_look_through", "_free_in_state", "_rewrite", "write"])
def test_a_keeper_that_is_killed_goes_on_from_its_marks(service, clock, monkeypatch, where):
    """Ended anywhere, it dates no stage earlier than it was reached, and comes to the same end."""
    offset = deleted(service, "d0")
    began, before = int(clock() * 1000), residue(service)
    keeper = service.leader.residue if where != "write" else service.leader.residue._store
    whole, calls = getattr(type(keeper), where), []

    def killed(self, *arguments, **named):
        calls.append(where)
        if len(calls) % 2:
            raise KeyboardInterrupt
        return whole(self, *arguments, **named)

    monkeypatch.setattr(type(keeper), where, killed)

    def done():
        nonlocal before
        try:
            service.settle()
        except KeyboardInterrupt:
            service.forget_parts()
        now = residue(service)
        assert all(now.of(0).of(stage).offset >= before.of(0).of(stage).offset for stage in Stage)
        before = now
        return now.completed.get(0, 0) > offset

    until(done, lambda: residue(service))
    receipts = service.reader_of_receipts()
    reached = receipts.erased(next(iter(receipts))).reached[0]
    assert min(reached.values()) >= began
    assert reached["file"] >= reached["state"]


def test_changes_that_hold_a_document_hold_the_mark_of_the_state(tmp_path, clock):
    """They name its words for as long as their age is allowed, whatever was published and replaced since."""
    with opened(tmp_path, clock, 86_400.0) as service:
        service.add(two_topics(0, 60))
        service.settle()
        offset = deleted(service, "d0")
        service.settle()
        clock.ahead += 7_200
        service.settle()
        assert service.reader.positions()[0].holds_removed
        assert residue(service).of(0).of(Stage.STATE).offset <= offset
        clock.ahead += 86_400
        settle_until(service, lambda: residue(service).of(0).of(Stage.STATE).offset > offset)


def test_a_pass_that_loses_its_records_begins_again(service, monkeypatch):
    """Retention may erase records that a pass has before it: the service goes on, and so do the marks."""
    offset = deleted(service, "d0")
    whole, broken = erasure.superseded_from, []

    def erased(*place):
        if len(broken) < 2:
            broken.append(place)
            raise StateMismatch("the record is erased")
        return whole(*place)

    monkeypatch.setattr(erasure, "superseded_from", erased)
    settle_until(service, lambda: residue(service).of(0).of(Stage.LOG).offset > offset)
    assert len(broken) == 2


def test_deletions_that_never_stop_hold_no_stage_up(service, monkeypatch):
    """Changes come again and again meanwhile, each with a document that left: earlier ones end as well.

    A rewrite of Redis's file covers what was out of the state when it was asked for, and nothing that came later.
    """
    offset = deleted(service, "d0")
    numbers, marks, step = itertools.count(1), [], type(service.leader.residue).step

    def noted(self, **how):
        moved = step(self, **how)
        now = residue(service).of(0)
        marks.append((now.of(Stage.STATE).offset, now.of(Stage.FILE).offset))
        return moved

    monkeypatch.setattr(type(service.leader.residue), "step", noted)

    def done():
        more = f"more-{next(numbers)}"
        service.add([Document(more, "apple banana cherry iron", {})])
        service.settle()
        service.delete([more])
        service.settle()
        return residue(service).completed.get(0, 0) > offset

    until(done, lambda: residue(service), 0.0)
    assert residue(service).of(0).counted.offset > offset + 2
    assert all(file <= state for (state, _), (_, file) in itertools.pairwise(marks))


def test_kafkas_own_compaction_is_observed(kafka_server):
    """The mark stays before a deletion whose document the broker still holds, and passes it once it does not."""
    log, _ = open_log(kafka_server.servers)
    with log:
        log.create("residue.documents", 1, HASTY | {"cleanup.policy": "delete"})
        log.append_many("residue.documents", [encode_add(f"d{n}", counts={"x": 2, RARE: 1}) for n in range(20)])
        deleted = log.append_many("residue.documents", [encode_delete(f"d{n}", "r") for n in range(10)])
        assert seen(superseded_from(log, "residue.documents", 0)) == deleted[0][1]
        log.configure("residue.documents", {"cleanup.policy": "compact"})

        def passed():
            mark = seen(superseded_from(log, "residue.documents", 0))
            assert mark >= deleted[0][1]
            return mark > deleted[-1][1]

        until_compacted(log, "residue.documents", passed)
        held = [record for record in everything(log, "residue.documents") if record.value is not None]
        assert not {b"d%d" % n for n in range(10)} & {record.key for record in held}


def seen(look):
    """What a look returns at its end."""
    while True:
        try:
            next(look)
        except StopIteration as done:
            return done.value


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", HEARTBEAT_KEY]), st.booleans()), max_size=30), st.data())
def test_the_look_is_right_about_every_deletion(tmp_path, records, data):
    """A deletion before the mark has left nothing of its key below it, whatever was compacted and whatever followed."""
    log, topic = FileLog(tmp_path), f"residue-{next(_numbers)}"
    log.create(topic, 1)
    stop = data.draw(st.integers(0, len(records)))
    for number, (key, valued) in enumerate(records):
        if number == stop:
            log.compact(topic)
        append(log, topic, key, b"text" if valued else None, partition=0)
    mark, held = seen(superseded_from(log, topic, 0)), everything(log, topic)
    for offset, (key, valued) in enumerate(records):
        left = [r for r in held if r.key == key and r.offset < offset and r.value is not None]
        if not valued and key != HEARTBEAT_KEY and offset < mark:
            assert not left
    log.compact(topic)
    assert seen(superseded_from(log, topic, 0)) == len(records)


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), max_size=300), st.integers(0, 1000))
def test_marks_are_few_and_never_too_early(steps, offset):
    """However often a mark moves, a deletion is never dated before it was there, and some date is kept for it."""
    marks, first = Marks(), None
    for before, time_ms in sorted((min(pair), max(pair)) for pair in steps):
        moves = before > marks.offset
        last = marks.steps[-1][1] if marks.steps else 0
        marks = marks.moved(before, time_ms)
        if moves and first is None and before > offset:
            first = max(time_ms, last)
    assert len(marks.steps) <= 64
    found = marks.reached(offset)
    assert (found is None) == (first is None)
    assert found is None or found >= first
    assert found is None or marks.by(found) > offset


ENDS = st.fixed_dictionaries({0: st.integers(0, 9), 1: st.integers(0, 9)})


@given(st.lists(st.tuples(st.sampled_from([None, *Stage]), ENDS), max_size=25), ENDS)
def test_marks_say_of_each_deletion_which_stages_it_has_reached(steps, some):
    """They are few numbers in place of a book of deletions, whose answers they give."""
    residue, book = Residue(), {0: [], 1: []}
    for now, (stage, ends) in enumerate(steps, 1):
        if stage is not None:
            residue.move(stage, {p: min(end, len(book[p])) for p, end in ends.items()}, now)
            for partition, end in ends.items():
                for deletion in book[partition][:end]:
                    deletion.setdefault(stage, now)
            continue
        # Each record deletes a document.
        for partition in (p for p, end in ends.items() if end > 4):
            book[partition].append({"counted": now})
            traces = residue.of(partition)
            traces.left = traces.left.moved(len(book[partition]), len(book[partition]))
            traces.counted = traces.counted.moved(len(book[partition]), now)
            residue.traces[partition] = traces
    for partition, known in book.items():
        for offset, deletion in enumerate(known):
            assert residue.reached(partition, offset) == {stage: deletion.get(stage) for stage in Stage}
    for stage in Stage:
        left = [one for known in book.values() for one in known if stage not in one]
        before = [one for partition, known in book.items() for one in known[: some[partition]] if stage not in one]
        assert (residue.behind(stage), residue.behind(stage, some)) == (bool(left), bool(before))
        since = min((one["counted"] for one in left), default=None)
        assert residue.waiting()[stage] == Outstanding(len(left), since)
    for time in (None, 3, 9):
        passed = {}
        for partition in residue.traces:
            both = [max(one.get(Stage.STATE, 99), one.get(Stage.LOG, 99)) for one in book[partition]]
            passed[partition] = sum(at <= (time or 98) for at in both)
        assert residue.passed(Stage.STATE, Stage.LOG, by_ms=time) == passed
