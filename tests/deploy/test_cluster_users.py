"""Redis users on a Redis Cluster: each role finds its keys, also while slots move, with the rights of deploy/."""

import pytest
from redis.crc import key_slot

from servers.redis_cluster import LocalRedisCluster
from streamtopic.errors import SettingsError
from streamtopic.state import Connection

pytestmark = pytest.mark.slow

PARTITION, MODEL = "{st:default:0}", "{st:default}"
READS = {
    "operator": (f"{PARTITION}:meta", f"{MODEL}:settings"),
    "ingest": (f"{PARTITION}:meta", f"{MODEL}:settings"),
    "schedule": (f"{PARTITION}:meta", f"{MODEL}:ledger:head"),
    "serve": (f"{PARTITION}:meta", f"{MODEL}:settings"),
}


@pytest.fixture(scope="module")
def cluster(secrets):
    """Three masters that know the users of deploy/."""
    secured = next(secrets.glob("*.url")).read_text().startswith("rediss:")
    with LocalRedisCluster(replicas=0, secured=secured) as cluster:
        for line in (secrets / "redis-users.acl").read_text().splitlines():
            _, name, *rules = line.split()
            for node in cluster.nodes:
                if name != "default":
                    node.client.execute_command("ACL", "SETUSER", name, *rules)
        yield cluster


@pytest.mark.parametrize("role", READS)
def test_each_role_finds_its_keys(cluster, users, role):
    """MOVED and ASK are followed by every user, from whichever node it knows; what is forbidden stays forbidden."""
    login = users[role].partition("://")[2].partition("@")[0]
    form, query = "redis+cluster", ""
    if cluster.authority is not None:
        form, query = "rediss+cluster", f"?ssl_ca_certs={cluster.authority.file}"
    for node in cluster.nodes:
        with Connection(f"{form}://{login}@{node.place}{query}") as connection:
            assert connection.batch([("HGETALL", key) for key in READS[role]]) == [{}, {}]
            with pytest.raises(SettingsError, match=r"lacks the right CONFIG GET: .* ACL"):
                connection.call("CONFIG", "GET", "maxmemory")
    key = READS[role][0]
    source = cluster.master_of(key)
    target = next(node for node in cluster.nodes if node is not source)
    slot = key_slot(key.encode())
    target.client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", cluster.name_of(source))
    source.client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", cluster.name_of(target))
    try:
        with Connection(f"{form}://{login}@{cluster.nodes[0].place}{query}") as connection:
            # The key is nowhere, so whoever has the slot names the other node.
            assert connection.call("HGETALL", key) == {}
            assert connection.batch([("HGETALL", key)]) == [{}]
    finally:
        source.client.execute_command("CLUSTER SETSLOT", slot, "STABLE")
        target.client.execute_command("CLUSTER SETSLOT", slot, "STABLE")
