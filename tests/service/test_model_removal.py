"""The end of a model: the last entry of its ledger, then nothing of it is left, and other models stay."""

import subprocess
from types import SimpleNamespace

import pytest

from crashes import copied
from embedded_service import SMALL, Service, silent, two_topics
from servers.redis_cluster import LocalRedisCluster
from streamtopic.errors import InvalidRelease, StateMismatch, UnknownKey, UsageError
from streamtopic.local import LocalRedis
from streamtopic.service.upkeep import model_removal as module
from streamtopic.service.upkeep.model_removal import HOLDER, end_in, only_keys_left, remove_files
from streamtopic.settings import load
from streamtopic.signed import End, KeyRing, LedgerReader, Receipt
from streamtopic.state import Connection
from streamtopic.state.model_state import leader
from streamtopic.streams import FileLog, TopicNames


def settings_of(folder, url, model="news"):
    """Return settings of a model in a folder of its own, with its state at an address."""
    path = folder / model
    path.mkdir(exist_ok=True)
    return load(SMALL | {"partitions": 2, "dir": path, "redis_url": url, "model": model})


def made(settings):
    """Make a model of two versions, two receipts and one deletion without."""
    with Service(settings) as service:
        service.add(two_topics(0, 40))
        service.settle()
        service.delete(["d1", "d2"])
        service.state.request("unlearn")
        service.settle()
        service.delete(["d3"])
        service.settle()


@pytest.fixture(scope="module")
def server():
    """Return a Redis for all models of this file."""
    with LocalRedis() as server:
        yield server


@pytest.fixture
def world(tmp_path, server):
    """Two models whose names begin alike, in one Redis, and a file for the proof."""
    with Connection(server.url) as connection:
        connection.call("FLUSHALL")
        made(settings_of(tmp_path, server.url))
        made(settings_of(tmp_path, server.url, "news-2"))
        yield SimpleNamespace(
            settings=settings_of(tmp_path, server.url),
            other=settings_of(tmp_path, server.url, "news-2"),
            connection=connection,
            file=tmp_path / "news.tlog-proof",
            keys=KeyRing.load(tmp_path / "news" / "keys" / "signing.pub", "news"),
        )


def delete(world, *, keep_ledger=True):
    """Delete the model as the command does."""
    if not only_keys_left(world.settings, world.file):
        with Service(world.settings) as service:
            done = service.remove(world.file, service.end(keep_ledger=keep_ledger), silent)
    else:
        done = None
    remove_files(world.settings, keep_keys=False)
    return done


def contents(connection, model):
    """Return all keys of a model with their content."""
    return copied(connection, f"{{st:{model}[:}}]*")


def gone(world, *, kept=True):
    """Assert that only the evidence is left."""
    assert contents(world.connection, "news") == {}
    folder, names = world.settings.dir, TopicNames("news")
    log = FileLog(folder / "log")
    assert [log.partitions(topic) for topic in (names.documents, names.releases, names.rejected)] == [0, 0, 0]
    assert log.partitions(names.ledger) == int(kept)
    assert {path.name for path in (folder / "keys").iterdir()} == {"signing.pub", "complete"}
    grep = subprocess.run(["grep", "-rl", "banana", str(folder)], capture_output=True, check=False)  # noqa: S607  a plain tool
    assert grep.stdout == b""


def test_nothing_is_left_but_the_evidence(world):
    """The ledger stays with its end, of which the file is the proof; both verify without the service."""
    other = contents(world.connection, "news-2")
    with Service(world.settings) as service:
        newest = service.release(None)
        receipts = service.receipts()
    done = delete(world)
    gone(world)
    proof, end = end_in(world.file, world.keys)
    assert end == done.end
    assert (end.documents, end.version, end.waiting, end.ledger_kept) == (37, newest.version, 1, True)
    reader = LedgerReader(FileLog(world.settings.dir / "log"), "news", world.keys)
    entries = [logged.entry for logged in reader.catch_up()]
    assert [entry for entry in entries if isinstance(entry, Receipt)] == receipts
    assert entries[proof.index :] == [reader.ledger.end] == [end]
    assert contents(world.connection, "news-2") == other
    with Service(world.other) as service:
        assert service.status()["documents"] == 37


def test_the_ledger_goes_where_that_is_asked_for(world):
    """The proof then says so, and it is the only evidence."""
    delete(world, keep_ledger=False)
    gone(world, kept=False)
    assert not end_in(world.file, world.keys)[1].ledger_kept


def test_a_ledger_ends_once(world):
    """A new model of this name publishes nothing in it: its receipts would seem to be there already."""
    with Service(world.settings) as service:
        service.remove(world.file, service.end(keep_ledger=True), silent)
    with pytest.raises(StateMismatch, match="has ended"):
        made(world.settings)
    delete(world)
    gone(world)


PLACES = ["hold_lease", "_ended", "remove_model"]


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_it_can_be_killed_anywhere_and_repeated(world, monkeypatch, where, when):
    """No scheduler leads in between, and the ledger ends once."""
    act = getattr(module, where)

    def killed(*arguments, **more):
        if when == "after":
            act(*arguments, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, where, killed)
        with pytest.raises(KeyboardInterrupt):
            delete(world)
    if where != "hold_lease" and (where, when) != ("remove_model", "after"):
        assert leader(world.connection, "news") == HOLDER
    written = world.file.read_bytes() if world.file.exists() else None
    delete(world)
    gone(world)
    assert written in {None, world.file.read_bytes()}
    reader = LedgerReader(FileLog(world.settings.dir / "log"), "news", world.keys)
    assert [isinstance(logged.entry, End) for logged in reader.catch_up()].count(True) == 1


def test_a_repetition_says_the_same_of_the_ledger(world, monkeypatch):
    """The proof is out: it must not say that the ledger is kept if the repetition removes it."""
    with monkeypatch.context() as patch:
        patch.setattr(module, "remove_model", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            delete(world)
    with pytest.raises(UsageError, match="repeat the command as it was"):
        delete(world, keep_ledger=False)


def test_a_running_service_and_a_foreign_file_are_refused(world, tmp_path):
    """Nothing is removed while somebody works on the model, or under the proof of another one."""
    before = contents(world.connection, "news")
    with Service(world.settings) as service:
        facts = service.end(keep_ledger=True)
        world.file.write_text("{}")
        with pytest.raises(UsageError, match="name a new file"):
            service.remove(world.file, facts, silent)
        service.opened.leads = False
        with pytest.raises(UsageError, match="another process runs the instance"):
            service.remove(tmp_path / "another", facts, silent)
    lease = b"{st:news}:lease"
    after = contents(world.connection, "news")
    assert after.keys() - {lease, b"{st:news}:fence"} == before.keys() - {lease, b"{st:news}:fence"}
    with pytest.raises(UsageError, match="there is no model nothing"):
        _no_model(tmp_path, world)


def _no_model(tmp_path, world):
    from streamtopic.streams import TopicNames, open_log

    log, _ = open_log(tmp_path / "empty")
    settings = world.settings.model_copy(update={"model": "nothing"})
    nothing = SimpleNamespace(
        settings=settings, names=TopicNames("nothing"), connection=world.connection, log=log, ledger=None
    )
    module.end_of(nothing, keep_ledger=True)


def test_only_the_end_of_this_ledger_is_taken_for_it(world):
    """A changed file, another key, and the proof of a receipt in its place do not verify."""
    with Service(world.settings) as service:
        receipt = service.ledger.find([service.receipts()[0].id])
        (logged,) = next(iter(receipt.values()))
        other = service.ledger.proof(logged.index).text
    delete(world)
    text = world.file.read_text()
    for wrong in ("nothing", text.replace("index ", "index 1"), text.replace("extra ", "extra A"), other):
        world.file.write_text(wrong)
        with pytest.raises(InvalidRelease):
            end_in(world.file, world.keys)
    world.file.write_text(text)
    with pytest.raises(UnknownKey):
        end_in(world.file, KeyRing.load(world.other.dir / "keys" / "signing.pub", "news-2"))


def test_a_model_on_a_cluster_goes_from_all_nodes(tmp_path):
    """Its partitions lie on several nodes, and no command asks for two of them at once."""
    with LocalRedisCluster(replicas=0) as cluster, Connection(cluster.url) as connection:
        settings = settings_of(tmp_path, cluster.url)
        made(settings)
        made(settings_of(tmp_path, cluster.url, "news-2"))
        other = contents(connection, "news-2")
        assert len(contents(connection, "news")) > 20
        file = tmp_path / "news.tlog-proof"
        with Service(settings) as service:
            done = service.remove(file, service.end(keep_ledger=True), silent)
        assert done.redis_keys > 20
        assert contents(connection, "news") == {}
        assert contents(connection, "news-2") == other
