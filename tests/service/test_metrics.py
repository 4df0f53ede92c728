"""Metrics: one catalogue, every family of which moves in a real run, and no label of which says who or what."""

import contextlib
import threading
import time

import pytest
from test_worker import Share
from watched_service import MARK, RARE, Clock, Watched, documents, family_of, opened

from crashes import copied, put_back
from streamtopic.documents.corpus import Document
from streamtopic.documents.events import encode_add, encode_delete, encode_heartbeat
from streamtopic.local import LocalRedis
from streamtopic.monitoring.metrics import CATALOGUE, PREFIX
from streamtopic.service.ingest.worker import IngestWorker
from streamtopic.service.leading import publish
from streamtopic.service.processes import looked_at, run_part
from streamtopic.settings import Settings
from streamtopic.signed import COSIGNATURE, PublicKey
from streamtopic.streams import FileLog, Message
from waiting import until

DAY = 86_400.0


def _bad(number):
    """A refused record, all parts of which carry the mark."""
    value = f'{{"op": "{MARK}op", "text": "{RARE}", "labels": {{"{MARK}": "{RARE}"}}}}'
    return Message(f"{MARK}-bad-{number}".encode(), value.encode(), ((MARK, RARE.encode()),))


def _settle(service, worker):
    """Do what a process does, until nothing more is due."""
    while worker.step(0.0).records:
        pass
    publish(service.publisher)
    while service.scheduler.step().version is not None:
        publish(service.publisher)
    service.leader.clear_residue(whole=True)
    publish(service.publisher)
    service.look()


def _worked(folder, watch):
    """Count, refuse, learn, forget, publish and clear up."""
    clock = Clock()
    with opened(folder, watch, clock, partitions=2) as service:
        worker = _worker(service, Share(0, 1))
        watch.note()
        # Documents of one word allow no model.
        service.add([Document(f"{MARK}-same-{n}", "apple apple apple", {}) for n in range(30)])
        service.look()
        _settle(service, worker)
        service.add([*documents(), Document(f"{MARK}-rare", f"{RARE} apple banana", {MARK: RARE})])
        service.send([_bad(number) for number in range(3)])
        _settle(service, worker)
        service.delete([f"{MARK}-{n}" for n in range(4)])
        clock.ahead += 90.0
        worker.step(0.0)
        service.look()
        # Before the change is summed up: what is carried over in memory is checked.
        assert service.scheduler.step().version == 2
        for _ in range(4):
            _settle(service, worker)
            clock.ahead += DAY


def _missed_a_delete(folder, watch):
    """Count documents, lose a delete to compaction while away, and take the partition over again."""
    clock = Clock()
    for visit in range(2):
        with opened(folder, watch, clock, delete_retention=DAY) as service:
            service.opened.log = FileLog(folder / "log", clock=clock)
            topic = service.names.documents
            if not visit:
                service.send([encode_add(f"{MARK}-{n}", text="apple banana") for n in range(9)])
            service.count()
            watch.note()
            if not visit:
                service.send([encode_delete(f"{MARK}-3", "r"), *[encode_heartbeat(0) for _ in range(9)]])
                service.log.compact(topic, tombstones_ms=0)
                clock.ahead += 40 * DAY


def _worker(service, share):
    given = {"linger": 0.0, "clock": service.clock, "watch": service.watch}
    return IngestWorker(service.log, service.names.documents, share, service.open_ingest, **given)


def _lost_to_another(folder, watch):
    """Have a partition taken over by another writer while it is thought to be one's own."""
    with opened(folder, watch, Clock()) as service:
        worker = _worker(service, Share(0))
        worker.step(0.0)
        service.look()
        other = service.open_ingest(0)
        service.send([encode_add("x", text="apple banana")])
        assert other.step().records == 1
        service.send([encode_add("y", text="apple banana")])
        worker.step(0.0)
        watch.note()


def _was_set_back(folder, watch):
    """Count on after Redis was put back to an older state, as a restored snapshot does."""
    with opened(folder, watch, Clock()) as service:
        worker, redis = _worker(service, Share(0)), service.connection
        service.send([encode_add(f"{MARK}-{n}", text="apple banana") for n in range(5)])
        worker.step(0.0)
        before = copied(redis, "{st:default:0}:*")
        service.send([encode_add(f"{MARK}-{n}", text="apple cherry") for n in range(5, 9)])
        worker.step(0.0)
        watch.note()
        put_back(redis, before, "{st:default:0}:*")
        service.send([encode_add(f"{MARK}-{n}", text="apple cherry") for n in range(9, 12)])
        worker.step(0.0)
        assert worker.ingests[0].state.meta.next_offset == 12
        watch.note()


def _went_without_redis(folder, watch):
    """Work, and look, while Redis is away."""
    with LocalRedis() as server:
        server_url = server.url
        with opened(folder, watch, Clock(), redis_url=server_url) as service:
            service.look()
            with looked_at(service, service.watch, every=0.02):
                server.stop()
                until(lambda: (f"{PREFIX}interruptions_total", ("look_failed",)) in watch.samples())
    stop = threading.Event()
    settings = Settings(dir=folder / "away", redis_url="redis://127.0.0.1:1")
    run_part("ingest", settings, stop, lambda _event: stop.set(), watch=watch)
    watch.note()


def _asked_a_witness(folder, watch):
    """Publish with a witness who does not answer."""
    policy = folder / "policy"
    policy.write_text(f"witness w {PublicKey('w', bytes(32), COSIGNATURE)} http://127.0.0.1:1\nquorum w\n")
    settings = Settings(dir=folder / "witnessed", witnesses=policy)
    stop = threading.Event()
    thread = threading.Thread(
        target=run_part, args=("run", settings, stop, lambda _event: None), kwargs={"watch": watch}
    )
    thread.start()
    until(lambda: (f"{PREFIX}ledger_witnesses", ()) in watch.samples(), "a page")
    stop.set()
    thread.join()
    watch.note()


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Return watches that have seen real work, and real faults, of services."""
    scenes = (_worked, _missed_a_delete, _lost_to_another, _was_set_back, _went_without_redis, _asked_a_witness)
    watches = []
    with _no_grace():
        for scene in scenes:
            watches.append(Watched())
            scene(tmp_path_factory.mktemp(scene.__name__.strip("_")), watches[-1])
    return watches


@contextlib.contextmanager
def _no_grace():
    """Let a stopped part end without the end of the process, which is that of the tests."""
    from streamtopic.service import processes

    leave, processes.leave_in_time = processes.leave_in_time, lambda _stop: None
    try:
        yield
    finally:
        processes.leave_in_time = leave


@pytest.mark.parametrize("family", CATALOGUE, ids=lambda family: family.name)
def test_every_family_moves(seen, family):
    """No metric is only declared: each has changed in a run of the real service."""
    assert any(family.name in watch.changed for watch in seen)


def test_nothing_is_shown_that_the_catalogue_does_not_name(seen):
    """Dashboards and alerts may rely on the catalogue: it lists every series, with the labels that it says."""
    families = {family.name: family for family in CATALOGUE}
    assert len(families) <= 30, "a catalogue that nobody can read is no help"
    for line in b"".join(watch.text() for watch in seen).decode().splitlines():
        if not line.startswith("#"):
            name = line.partition("{")[0].split(" ")[0]
            shown = {part.partition("=")[0] for part in line.partition("{")[2].partition("}")[0].split(",") if part}
            assert shown - {"le"} == set(families[family_of(name)].labels), line


def test_no_label_holds_an_id_or_a_word(seen):
    """Marked ids, words, labels, operations and headers went through the service; none is in what it shows."""
    shown = b"".join(watch.text() for watch in seen)
    assert b"records_total" in shown
    for told in (MARK, RARE, "apple"):
        assert told.encode() not in shown


def test_a_state_that_was_set_back_is_counted_once(seen):
    """Redis that lost its end is noticed by the flush that counts the same records again, and by no other."""
    series = f"{PREFIX}interruptions_total", ("set_back",)
    assert [watch.samples().get(series, 0) for watch in seen] == [0, 0, 0, 1, 0, 0]


def test_only_the_leader_says_what_blocks_a_version():
    """What a scheduler could not do says nothing about the one that leads by now."""
    watch = Watched("schedule")
    watch.leads, watch.blocked = True, "no_documents"
    series = f"{PREFIX}release_blocked", ("no_documents",)
    assert watch.samples()[series] == 1
    watch.leads = False
    assert series not in watch.samples()


def test_lag_is_what_is_not_counted_and_how_old_it_is(tmp_path):
    """Lag in records and seconds is that of the log, and 0 once everything is counted."""
    clock, watch = Clock(), Watched("ingest")
    with opened(tmp_path, watch, clock) as service:
        worker = _worker(service, Share(0))
        worker.step(0.0)
        # Logs count in milliseconds.
        began = time.time() - 0.001
        service.send([encode_add(f"d{n}", text="apple banana") for n in range(7)])
        clock.ahead += 100.0
        service.look()
        shown = watch.samples()
        assert shown[f"{PREFIX}lag_records", ("0", "readable")] == 7
        assert 100.0 <= shown[f"{PREFIX}lag_seconds", ("0",)] <= 100.0 + time.time() - began
        worker.step(0.0)
        service.look()
        shown = watch.samples()
        assert (shown[f"{PREFIX}lag_records", ("0", "readable")], shown[f"{PREFIX}lag_seconds", ("0",)]) == (0, 0)
        assert shown[f"{PREFIX}records_total", ("added",)] == 7


def test_forgetting_is_timed_from_the_broker_s_clock(tmp_path):
    """A deletion that waited 90 s for its version is in the histogram with at least that, and no longer pending."""
    clock, watch = Clock(), Watched()
    with opened(tmp_path, watch, clock) as service:
        service.add(documents())
        service.settle()
        # Logs count in milliseconds.
        began = time.time() - 0.001
        service.delete([f"{MARK}-1"])
        service.count()
        service.look()
        sent = watch.samples()[f"{PREFIX}forget_oldest_timestamp_seconds", ("counted",)]
        assert began <= sent <= clock()
        clock.ahead += 90.0
        service.settle()
        service.look()
        shown = watch.samples()
        assert shown[f"{PREFIX}forget_stage_seconds_count", ("receipted",)] == 1
        assert 90.0 <= shown[f"{PREFIX}forget_stage_seconds_sum", ("receipted",)] <= 90.0 + time.time() - began
        assert (f"{PREFIX}forget_oldest_timestamp_seconds", ("counted",)) not in shown
        assert shown[f"{PREFIX}budget_used_ratio", ("capacity",)] == 1 / 50
