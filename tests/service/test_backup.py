"""Backup and restore: a state that was saved under load goes on exactly, and nothing damaged or foreign gets in."""

import io
import random
import shutil
import tarfile
import threading
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest

from servers.redis_cluster import LocalRedisCluster
from streamtopic.documents.corpus import Document
from streamtopic.errors import StateCorrupt, StateMismatch, StreamtopicError, UsageError
from streamtopic.local import LocalRedis
from streamtopic.service.app import Service, silent
from streamtopic.service.upkeep import backup as module
from streamtopic.service.upkeep.backup import HOLDER, backup, contents, restore, restore_keys
from streamtopic.service.upkeep.backup_archive import ArchiveWriter, read_archive
from streamtopic.service.verify import passed
from streamtopic.settings import load
from streamtopic.state import Connection
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.removal import leader

WORDS = [["apple", "banana", "cherry", "damson"], ["iron", "copper", "silver", "gold"]]


def documents(first, count):
    """Return documents of two subjects."""
    texts = [" ".join(WORDS[n % 2][(n // 2 + k) % 4] for k in range(3)) for n in range(first, first + count)]
    return [Document(f"d{first + n}", text, {}) for n, text in enumerate(texts)]


def settings_of(folder, url):
    """Return settings of an instance of two partitions in a folder, with its state at an address."""
    given = {"dir": folder, "redis_url": url, "model": "saved", "topics": 2, "min_df": 1, "max_df": 1.0}
    return load(given | {"partitions": 2, "max_forget_lag": 86400, "capacity_share": 0.5})


@pytest.fixture
def empty():
    """Return the address of a Redis without keys."""
    with LocalRedis() as server:
        yield server.url


@pytest.fixture
def folder(tmp_path):
    """Return an instance's folder, with a Redis of its own for the time before the loss."""
    with LocalRedis() as server:
        yield SimpleNamespace(path=tmp_path / "instance", url=server.url, file=tmp_path / "saved.backup")


@pytest.fixture(scope="module")
def before_the_loss(tmp_path_factory):
    """Make an instance with a version and waiting deletions, its backup, and later changes."""
    root = tmp_path_factory.mktemp("saved")
    path, file = root / "instance", root / "saved.backup"
    path.mkdir()
    with LocalRedis() as server:
        with Service(settings_of(path, server.url)) as service:
            service.add(documents(0, 40))
            service.settle()
            service.delete(["d1", "d2"])
            service.settle()
            backup(service, file)
            service.add(documents(40, 10))
            service.delete(["d3", "d41", "d0"])
            service.settle(requested="unlearn")
            newest = service.state.releases(1)[0][0]
            receipts = [receipt.id for receipt in service.receipts()]
            facts = {"digest": digest(service), "newest": newest, "receipts": receipts}
        yield SimpleNamespace(path=path, file=file, url=server.url, **facts)


@pytest.fixture
def saved(before_the_loss, tmp_path):
    """Return the same with a copy of the folder, for one test."""
    path = shutil.copytree(before_the_loss.path, tmp_path / "instance")
    return SimpleNamespace(**vars(before_the_loss) | {"path": path})


def digest(service):
    """Return the digest of all counts in Redis."""
    counts = service.reader.counts()
    return counts.restrict(np.arange(len(counts.words))).digest(counts.words)


def read(path):
    """Return the contents of a file."""
    with path.open("rb") as file:
        return contents(file)


def put_back(service, path):
    """Restore a file into the Redis of a service."""
    with path.open("rb") as file:
        return restore(service, file, contents(file), silent)


def names_in(url):
    """Return all keys of a Redis."""
    with Connection(url) as connection:
        return set(connection.names("*"))


def test_what_came_after_the_backup_is_counted_from_the_log(saved, empty):
    """Counts are those of the service that never lost anything; versions and receipts go on from theirs."""
    with Service(settings_of(saved.path, empty)) as service:
        found = put_back(service, saved.file)
        assert (digest(service), found.documents) == (saved.digest, 45)
        assert found.records == 13
        assert leader(service.connection, "saved") is None
        service.delete(["d5"])
        service.settle(requested="unlearn")
        assert service.state.releases(1)[0][0] > saved.newest
        named = [receipt.id for receipt in service.receipts()]
        assert named[: len(saved.receipts)] == saved.receipts
        assert len(set(named)) == len(named) == 6
        findings = service.verify()
        assert passed(findings), findings


def test_a_backup_taken_under_load_goes_on_exactly(folder, empty):
    """Whichever moment between two commits it saw, the restored service ends with the same counts."""
    folder.path.mkdir()
    made, failed, enough = [], [], threading.Event()
    counted = threading.Semaphore(0)
    with Service(settings_of(folder.path, folder.url)) as service:
        service.add(documents(0, 40))
        service.settle()
        with Connection(folder.url) as connection:
            parts = SimpleNamespace(settings=service.settings, connection=connection, clock=service.clock)
            parts.layout, parts.state = service.layout, service.state

            def save():
                try:
                    for number in range(4):
                        # Each after one more batch at least; the next batches are counted while it is taken.
                        counted.acquire()
                        file = folder.file.with_suffix(f".{number}")
                        made.append((file, backup(parts, file)))
                except StreamtopicError as error:
                    failed.append(error)
                finally:
                    enough.set()

            thread = threading.Thread(target=save)
            thread.start()
            batch = 0
            while not enough.is_set():
                batch += 1
                service.add(documents(40 * batch, 40))
                service.delete([f"d{40 * batch - 3}", f"d{40 * batch + 1}"])
                for ingest in service.ingests:
                    for _ in ingest.drain():
                        pass
                    counted.release()
                    ingest.sum_if_due()
            thread.join()
        service.settle()
        assert not failed
        wanted, ends = digest(service), [service.log.end(service.names.documents, p) for p in (0, 1)]
    positions = {found.positions for _, found in made}
    assert len(positions) > 1
    assert min(map(sum, positions)) < sum(ends)
    for file, found in made:
        with Connection(empty) as connection:
            connection.call("FLUSHALL")
        with Service(settings_of(folder.path, empty)) as service:
            again = put_back(service, file)
            assert again.records == sum(ends) - sum(found.positions)
            assert digest(service) == wanted
            assert passed(service.verify())


def test_the_public_key_that_settings_name_comes_back(folder, tmp_path):
    """On an empty machine every command finds its keys. A root key that has taken its place since then stays."""
    folder.path.mkdir()
    public = tmp_path / "given" / "public.pub"
    settings = settings_of(folder.path, folder.url).model_copy(update={"public_key": public})
    with Service(settings_of(folder.path, folder.url)) as service:
        service.add(documents(0, 10))
        service.settle()
    public.parent.mkdir()
    public.write_bytes((folder.path / "keys" / "signing.pub").read_bytes())
    with Service(settings) as service:
        backup(service, folder.file)
    found = read(folder.file)
    content = public.read_bytes()
    public.unlink()
    assert restore_keys(settings, found) == [public]
    assert public.read_bytes() == content
    public.write_text("a root key")
    assert restore_keys(settings, found) == []
    assert public.read_text() == "a root key"


def _members(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [(member.name, archive.extractfile(member).read()) for member in archive][:-1]


def _again(members):
    """Return an archive, with digests that fit."""
    file = io.BytesIO()
    archive = ArchiveWriter(file)
    for name, content in members:
        archive.add(name, content)
    archive.finish()
    return file.getvalue()


def _cut(data):
    return data[: data.rindex(b"SHA256SUMS")]


def _cut_in_a_member(data):
    return data[:2000]


def _changed(data):
    return data.replace(b'"documents": 10', b'"documents": 11', 1)


def _longer(data):
    file = io.BytesIO(data)
    with tarfile.open(fileobj=file, mode="a") as archive:
        archive.addfile(tarfile.TarInfo("keys/more"))
    return file.getvalue()


def _newer(data):
    return _again((name, content.replace(b'"format": 1', b'"format": 2')) for name, content in _members(data))


def _without_a_description(data):
    return _again((name, content) for name, content in _members(data) if name != "backup.json")


def _foreign(data):
    return b"PK" + data


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_cut, "changed or cut"),
        (_cut_in_a_member, "changed or cut"),
        (_changed, "changed or cut"),
        (_longer, "changed or cut"),
        (_newer, "format 2"),
        (_without_a_description, "format None"),
        (_foreign, "not a backup"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(folder, tmp_path, spoil, says):
    """The file is read to its end before anything is written, and any change is found; only its owner can read it."""
    folder.path.mkdir()
    with Service(settings_of(folder.path, folder.url)) as service:
        service.add(documents(0, 10))
        service.settle()
        backup(service, folder.file)
    bad = tmp_path / "bad"
    bad.write_bytes(spoil(folder.file.read_bytes()))
    with pytest.raises((StateCorrupt, StateMismatch), match=says):
        read(bad)
    assert read(folder.file).documents == 10
    assert folder.file.stat().st_mode & 0o077 == 0


def test_any_changed_byte_is_found_or_changes_nothing(saved):
    """A flipped bit is refused, if it is not in the zeros that fill a tar's blocks."""
    data = saved.file.read_bytes()
    wanted = list(read_archive(io.BytesIO(data)))
    refused = 0
    for place in random.Random(7).sample(range(len(data)), 300):
        bad = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        try:
            assert list(read_archive(io.BytesIO(bad))) == wanted
        except StateCorrupt:
            refused += 1
    assert refused > 30


PLACES = ["hold_lease", "clear", "put_key", "note_removed", "count_to_the_end", "release_lease"]


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_it_can_be_killed_anywhere_and_repeated(saved, empty, monkeypatch, where, when):
    """Until the second run is through no scheduler leads, so nothing is published without the later deletions."""
    act = getattr(module, where)

    def killed(*arguments, **more):
        if when == "after":
            act(*arguments, **more)
        raise KeyboardInterrupt

    with Service(settings_of(saved.path, empty)) as service:
        with monkeypatch.context() as patch:
            patch.setattr(module, where, killed)
            with pytest.raises(KeyboardInterrupt):
                put_back(service, saved.file)
        if (where, when) not in {("hold_lease", "before"), ("release_lease", "after")}:
            assert leader(service.connection, "saved") == HOLDER
            assert service.connection.call("TTL", ModelKeys("saved").named("lease")) == -1
            assert service.state.acquire("a scheduler", 60_000) is None
        if (where, when) == ("release_lease", "after"):
            assert digest(service) == saved.digest
            return
    with Service(settings_of(saved.path, empty)) as service:
        put_back(service, saved.file)
        assert digest(service) == saved.digest


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_a_kill_between_two_keys_of_a_partition_is_repaired(saved, empty, monkeypatch, share):
    """The rest of a state is never led, also if an ingest has opened it, and a second run makes the whole one."""
    put = module.put_key
    with saved.file.open("rb") as file:
        keys = sum(name.startswith("redis/") for name, _ in read_archive(file))
    left = int(share * keys)

    def killed(*arguments):
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        put(*arguments)

    with Service(settings_of(saved.path, empty)) as service:
        with monkeypatch.context() as patch:
            patch.setattr(module, "put_key", killed)
            with pytest.raises(KeyboardInterrupt):
                put_back(service, saved.file)
        assert service.state.acquire("a scheduler", 60_000) is None
    with Service(settings_of(saved.path, empty)) as service, suppress(StreamtopicError):
        for ingest in service.ingests:
            for _ in ingest.drain():
                pass
    with Service(settings_of(saved.path, empty)) as service:
        put_back(service, saved.file)
        assert digest(service) == saved.digest
        assert passed(service.verify())


def test_one_server_and_a_cluster_take_each_others_backups(saved, tmp_path, empty):
    """Names have the same hash tags everywhere, and nothing is asked of two slots at once."""
    again = tmp_path / "again.backup"
    with LocalRedisCluster(replicas=0) as cluster, Service(settings_of(saved.path, cluster.url)) as service:
        put_back(service, saved.file)
        assert digest(service) == saved.digest
        backup(service, again)
    with Service(settings_of(saved.path, empty)) as service:
        put_back(service, again)
        assert digest(service) == saved.digest


def test_two_backups_at_once_do_not_spoil_each_other(folder, monkeypatch):
    """The one that ends first has the name and is whole. The other says that the file exists, and leaves nothing."""
    folder.path.mkdir()
    ended = []

    def meanwhile(parts, file):
        file.write(b"begun")
        if not ended:
            ended.append(True)
            backup(parts, folder.file)
        return write(parts, file)

    write = module._write
    with Service(settings_of(folder.path, folder.url)) as service:
        service.add(documents(0, 10))
        service.settle()
        monkeypatch.setattr(module, "_write", lambda *given: write(*given) if ended else meanwhile(*given))
        with pytest.raises(UsageError, match="exists"):
            backup(service, folder.file)
    assert read(folder.file).documents == 10
    assert not list(folder.file.parent.glob("*.part"))


def test_a_state_is_never_overwritten(saved):
    """The Redis that the backup came from keeps all that came since."""
    with Service(settings_of(saved.path, saved.url)) as service:
        with pytest.raises(UsageError, match="already holds"):
            put_back(service, saved.file)
        assert digest(service) == saved.digest
        with pytest.raises(UsageError, match="never overwritten"):
            backup(service, saved.file)


def test_a_log_without_the_next_record_is_refused(saved, tmp_path, empty):
    """Deletions after the backup could not be counted; the line says what to do, and Redis stays empty."""
    other = tmp_path / "other"
    other.mkdir()
    with Service(settings_of(other, empty)) as service, pytest.raises(StateMismatch, match="rebuild"):
        put_back(service, saved.file)
    assert names_in(empty) == set()


def test_other_fixed_settings_are_refused(saved, empty):
    """Under another hash documents would be looked for where they are not."""
    settings = settings_of(saved.path, empty).model_copy(update={"partitioner": "crc32"})
    with Service(settings) as service, pytest.raises(StateMismatch, match="murmur2"):
        put_back(service, saved.file)
    assert names_in(empty) == set()


def test_keys_come_back_and_never_replace_others(saved, tmp_path, empty):
    """A lost key file has its bytes again; one with other content stays, and nothing is written."""
    found = read(saved.file)
    keys = saved.path / "keys"
    before = {path.name: path.read_bytes() for path in keys.iterdir()}
    (keys / "noise.key").unlink()
    (keys / "signing.key").unlink()
    settings = settings_of(saved.path, empty)
    (keys / "receipt.key").write_text("00" * 32)
    with pytest.raises(UsageError, match=r"receipt\.key is not the key"):
        restore_keys(settings, found)
    assert not (keys / "noise.key").exists()
    (keys / "receipt.key").unlink()
    assert {path.name for path in restore_keys(settings, found)} == {"noise.key", "signing.key", "receipt.key"}
    assert {path.name: path.read_bytes() for path in keys.iterdir()} == before
    assert (keys / "signing.key").stat().st_mode & 0o077 == 0
    with pytest.raises(UsageError, match="of model saved"):
        restore_keys(settings.model_copy(update={"model": "another"}), found)
