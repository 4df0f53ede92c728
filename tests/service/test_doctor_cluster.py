"""The doctor on clusters: whatever could be lost for good on any master is named, with its remedy."""

import time

import pytest

from embedded_service import Service
from servers.redis_cluster import LocalRedisCluster
from streamtopic.local import LocalRedis
from streamtopic.service.inspection.doctor import examine_redis
from streamtopic.settings import Settings
from streamtopic.state import Connection

SAFE = {"min-replicas-to-write": "1", "min-replicas-max-lag": "10"}


@pytest.fixture(scope="module")
def cluster():
    """Two of three masters as they should be; the third can be spoiled."""
    with LocalRedisCluster(options=SAFE) as cluster:
        yield cluster


def look(url, folder):
    """Return name to diagnosis."""
    with Service(Settings(dir=folder, redis_url=url)) as parts:
        return {found.name: found for found in examine_redis(parts.connection, parts.clock)}


@pytest.mark.parametrize(
    ("name", "option", "value", "said"),
    [
        ("persistence", "appendonly", "no", "append-only file is off"),
        ("eviction", "maxmemory-policy", "allkeys-lru", "allkeys-lru"),
        ("replicas", "min-replicas-to-write", "0", "keys of months"),
    ],
)
def test_one_unsafe_master_is_named(cluster, tmp_path, name, option, value, said):
    """No append-only file, eviction, or a replica that may know less: fails, at that node and no other."""
    node = cluster.masters()[1]
    before = node.client.config_get(option)[option]
    node.client.config_set(option, value)
    try:
        failed = [one for one in look(cluster.url, tmp_path).values() if one.passed is False]
    finally:
        node.client.config_set(option, before)
    assert [one.name for one in failed] == [f"{name} {node.place}"]
    assert said in failed[0].detail
    assert failed[0].remedy


def test_a_server_that_soon_writes_nothing_is_found(tmp_path):
    """Memory that is nearly full, and a snapshot or a rewrite that failed, are named, with what it costs."""
    folder = tmp_path / "gone"
    folder.mkdir()
    with LocalRedis() as server, Connection(server.url) as connection:

        def ended(act):
            connection.call(act)
            while {connection.information()[f"{name}_in_progress"] for name in ("rdb_bgsave", "aof_rewrite")} != {0}:
                time.sleep(0.05)
            return look(server.url, tmp_path)["persistence"]

        connection.call("CONFIG", "SET", "maxmemory", str(int(1.1 * connection.information()["used_memory"])))
        assert look(server.url, tmp_path)["memory"].passed is None
        connection.call("CONFIG", "SET", "maxmemory", "0")
        assert look(server.url, tmp_path)["memory"].passed
        connection.call("CONFIG", "SET", "appendonly", "yes")
        assert ended("PING").passed
        connection.call("CONFIG", "SET", "dir", str(folder))
        folder.rmdir()
        rewritten = ended("BGREWRITEAOF")
        assert (rewritten.passed, "deleted documents stay" in rewritten.detail) == (None, True)
        saved = ended("BGSAVE")
        assert (saved.passed, "refuses writes" in saved.detail) == (False, True)
