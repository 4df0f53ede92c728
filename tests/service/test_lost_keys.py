"""Redis loses one key of a state: it is noticed before it does harm, or all is as in a twin without the loss."""

import re
import shutil
from pathlib import Path

import pytest

from embedded_service import embedded, silent, two_topics
from shared_noise import with_noise
from streamtopic.documents.events import subject_digest
from streamtopic.errors import StateCorrupt, StateError
from streamtopic.local import LocalRedis
from streamtopic.service.inspection.doctor import examine_state
from streamtopic.service.publish import ledger_writer
from streamtopic.signed import Alive, new_secret
from streamtopic.state import Connection
from streamtopic.state import __file__ as state_room
from streamtopic.state.connection import ModelKeys, PartitionKeys

MODEL = "one"
OWN = ModelKeys(MODEL).partition(0)

# The document whose hash is lost; it is deleted afterwards.
DELETED = b"d6"


def _subjects(connection):
    secret = connection.call("HGET", OWN.subject_secret, "secret")
    return OWN.subjects(OWN.bucket(subject_digest("alice", secret)))


NOTICED = {
    "meta": lambda _: OWN.meta,
    "statistics": lambda _: OWN.statistics,
    "forgets": lambda _: OWN.forgets,
    "forget_facts": lambda _: OWN.forget_facts,
    "subject_secret": lambda _: OWN.subject_secret,
    "subjects": _subjects,
    "documents": lambda _: OWN.documents(OWN.bucket(DELETED)),
}
"""Key of a partition, by kind: its loss ends in an error with the remedy."""

REPAIRED = {
    "base": "the base model is learned anew",
    "base:": "certified mode keeps nothing there",
    "check": "shown only",
    "counts": "counted from the documents",
    "decision": "shown only",
    "fence": "a token is a time",
    "lease": "taken again",
    "ledger:": "the index of the ledger: see the test of its parts",
    "links": "keys of the months are drawn anew; receipts from before lose their tie to request ids",
    "outbox": "empty here; a staged version that was not published is made again by the next one",
    "releases": "written again from the versions in the ledger",
    "request": "ask again",
    "residue": "marks are made again",
    "suppressed": "written again from the requests topic",
    "settings": "written again from the settings of the process",
    "withdrawn": "the ledger has them",
    "deletions:": "requests for deletions: kept in Redis alone, docs/decisions/0019",
}
"""Key of a model, by name, with the reason why versions and receipts are those of a twin."""


class World:
    """A model with content of every kind, and copies of it as it was at one moment."""

    def __init__(self, folder, url):
        self.folder, self.url, self.copies = folder, url, 0
        with_noise(folder / "first")
        new_secret(folder / "first" / "keys" / "suppression.key")
        with self.opened(folder / "first") as service:
            service.add([*two_topics(0, 40), *two_topics(40, 6, "alice")])
            service.suppress(["d0"], [])
            service.settle()
            for ingest in service.ingests:
                ingest.state.sum_changes()
            # Counted, and waiting for a receipt.
            service.delete(["d1", "d2"])
            service.count()
        with Connection(url) as connection:
            names = sorted(connection.names("*"))
            self.keys = [(name, connection.call("DUMP", name), connection.call("PTTL", name)) for name in names]

    def opened(self, folder):
        """Open the instance in a folder."""
        return embedded(folder, redis_url=self.url, model=MODEL, topics=2, min_df=1)

    def again(self):
        """Return a folder with the instance as it was, and put Redis back as well."""
        self.copies += 1
        copy = self.folder / f"copy{self.copies}"
        shutil.copytree(self.folder / "first", copy)
        with Connection(self.url) as connection:
            connection.call("FLUSHALL")
            for name, value, ttl in self.keys:
                connection.call("RESTORE", name, max(ttl, 0), value)
        return copy


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """One state for all tests, which each of them gets as it was."""
    with LocalRedis() as server:
        yield World(tmp_path_factory.mktemp("world"), server.url)


def go_on(service):
    """Let all happen that a lost key may spoil: a delete, a person's request, a suppressed document, a version."""
    service.add(two_topics(0, 1))
    service.delete([DELETED.decode()])
    service.door.receive((), subjects=["alice"])
    service.settle()
    # Tombstones of the person come back as records.
    service.state.request("retrain")
    service.settle()


def outcome(service):
    """Counts, and receipts by what they say; the order and the number of versions may differ after a repair."""
    counts = service.reader.counts()
    receipts = sorted((receipt.offset, receipt.found) for receipt in service.receipts())
    newest = service.versions()[-1]
    return counts.documents, counts.words, counts.frequency.tolist(), receipts, newest["documents"]


def said(service):
    """What the world was told: versions and receipts in the log."""
    ends = [service.log.end(topic, 0) for topic in (service.names.releases, service.names.ledger)]
    return ends, len(service.receipts())


@pytest.fixture(scope="module")
def twin(world):
    """The outcome without a loss."""
    with world.opened(world.again()) as service:
        go_on(service)
        return outcome(service)


def test_every_kind_of_key_has_a_row():
    """Whoever adds a kind of key says here what its loss does."""
    kinds = {name for name, member in vars(PartitionKeys).items() if callable(member) or isinstance(member, property)}
    kinds = {name for name in kinds if not name.startswith("_")} - {"of", "bucket", "buckets", "by_bucket", "number"}
    # Lost changes have tests of their own.
    assert kinds - {"changes"} == NOTICED.keys()
    rooms = [*Path(state_room).parent.glob("*.py"), Path(ledger_writer.__file__)]
    text = "".join(path.read_text() for path in rooms)
    named = set(re.findall(r'named\(f?"([a-z]+:?)', text)) | set(re.findall(r'_call\("[A-Z]+", "([a-z]+)"', text))
    named |= {name for names in re.findall(r'_named\(("[^)]*")\)', text) for name in re.findall(r'"([a-z]+)"', names)}
    own = {"open", "ended", "wanted:", "head", "tiles", "nodes", "names:"}
    assert named - own - REPAIRED.keys() == set()


@pytest.mark.parametrize("kind", NOTICED)
@pytest.mark.parametrize("running", [True, False], ids=["running", "started again"])
def test_a_lost_key_of_a_partition_is_noticed_with_the_remedy(world, twin, kind, running):
    """No version and no receipt comes of it, the error names the remedy, and the remedy repairs the counts."""
    folder = world.again()
    with world.opened(folder) as service:
        if running:
            _ = service.ingests
        lost = NOTICED[kind](service.connection)
        assert service.connection.call("DEL", lost) == 1
        before = said(service)
        with pytest.raises(StateError, match=r"partition 0.*`streamtopic rebuild`|no state under"):
            go_on(service)
        assert said(service) == before
    with world.opened(folder) as later:
        later.state.request("retrain")
        with pytest.raises(StateCorrupt, match=r"partition 0.*`streamtopic rebuild`"):
            later.settle()
    if running:
        return
    with world.opened(folder) as mended:
        mended.rebuild(silent)
        mended.settle()
        mended.state.request("retrain")
        mended.settle()
        found = outcome(mended)
        assert found[:3] == twin[:3]
        assert found[4] == twin[4]


def _failing(service):
    """Findings of the doctor about the state that fail."""
    return [found for found in examine_state(service.facts()) if found.passed is False]


def test_doctor_names_what_is_lost(world):
    """Also where no process has met it yet, and nothing where all is there."""
    with world.opened(world.again()) as service:
        assert not _failing(service)
        service.connection.call("DEL", OWN.documents(OWN.bucket(DELETED)))
        (found,) = _failing(service)
        assert "documents: " in found.detail
        assert "`streamtopic rebuild`" in found.remedy


@pytest.mark.parametrize("name", [name for name in REPAIRED if ":" not in name])
def test_a_lost_key_of_a_model_changes_no_count_and_no_receipt(world, twin, name):
    """Counts and receipts are those of a twin without the loss."""
    with world.opened(world.again()) as service:
        _ = service.ingests
        service.connection.call("DEL", ModelKeys(MODEL).named(name))
        spent = len(service.versions())
        go_on(service)
        assert outcome(service) == twin
        assert len(service.versions()) >= spent


@pytest.mark.parametrize("part", ["head", "tiles", "nodes", "names:*"])
def test_an_index_of_the_ledger_that_has_lost_a_part_is_made_anew(world, part):
    """Its head is missed at once, and a rebuild mends all of it: each receipt is found and proved again."""
    with world.opened(world.again()) as service:
        go_on(service)
        receipts = service.receipts()
        # The index keeps the hash of each 256 entries.
        assert service.ledger.append([Alive(number, 0, 0) for number in range(300)])
        lost = list(service.connection.names(f"*:ledger:{part}"))
        assert lost
        for name in lost:
            service.connection.call("DEL", name)
        if part != "head":
            service.rebuild(silent)
        found = service.ledger.find([receipt.id for receipt in receipts])
        for receipt in receipts:
            (logged,) = found[receipt.id]
            assert service.ledger.proof(logged.index).verify(service.keys).entry == receipt
