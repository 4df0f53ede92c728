"""Accidents to a Redis Cluster: each does the harm that it says, and the cluster serves again afterwards."""

import pytest

from campaign.proxy import Proxy
from campaign.sharded import ShardedRedis
from streamtopic.state import Connection
from streamtopic.state.redis_keys import ModelKeys

pytestmark = pytest.mark.slow

KEYS = [ModelKeys("m").named("base"), ModelKeys("m").partition(0).meta]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """A cluster whose clients pass a proxy."""
    with Proxy() as proxy:
        made = ShardedRedis(tmp_path_factory.mktemp("shards") / "redis", proxy, "m", 1)
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture
def connection(shards):
    """A client of the service's own, through the proxy."""
    with Connection(shards.url) as connection:
        for key in KEYS:
            connection.call("SET", key, "known")
        yield connection


def _ports(shards):
    return {client.connection_pool.connection_kwargs["port"] for client in shards.masters}


@pytest.mark.parametrize("accident", ["fail_over", "kill"])
def test_a_replica_takes_over_and_nothing_is_lost(shards, connection, accident):
    """Another server has the master's place; whoever asks by the old address finds what was written."""
    before = _ports(shards)
    # A replica that has everything: only then is nothing lost with a master that is killed.
    assert shards.masters
    for client in shards.masters:
        client.wait(1, 5_000)
    getattr(shards, accident)(1, *([0.1] if accident == "kill" else []))
    assert _ports(shards) != before
    assert len(shards.masters) == 3
    assert connection.call("GET", KEYS[1]) == b"known"


def test_slots_move_with_their_keys(shards, connection):
    """Another master has the key afterwards, and answers for it."""
    where = {client.connection_pool.connection_kwargs["port"]: client for client in shards.masters}
    slot = next(iter(where.values())).cluster("keyslot", KEYS[1])
    old = next(port for port, client in where.items() if client.execute_command("CLUSTER GETKEYSINSLOT", slot, 1))
    shards.move(1, 0.0)
    assert not where[old].execute_command("CLUSTER GETKEYSINSLOT", slot, 1)
    assert connection.call("GET", KEYS[1]) == b"known"


def test_a_cluster_is_set_back_as_a_whole(shards, connection, tmp_path):
    """All of its nodes start again from the same moment."""
    shards.copy(tmp_path / "copy")
    for key in KEYS:
        connection.call("SET", key, "later")
    shards.restore(tmp_path / "copy")
    assert [shards.value(key) for key in KEYS] == [b"known", b"known"]
    assert connection.call("GET", KEYS[0]) == b"known"
