"""What a cluster, sentinels or a replica answer in place of doing it is followed or explained."""

import socketserver
import threading
from contextlib import suppress

import pytest
import redis

from servers.redis_accidents import SlotMove, wait_until
from servers.redis_cluster import LocalRedisCluster, RedisNode
from streamtopic.errors import ComponentUnreachable, SettingsError, StateError
from streamtopic.state import Connection
from streamtopic.state.redis_servers import clients_at, combined

COPY = "redis.call('SET', KEYS[2], redis.call('GET', KEYS[1]) or 'nothing') return redis.call('GET', KEYS[2])"


@pytest.fixture(scope="module")
def cluster():
    """Three masters with a replica each, none of which takes over unless it is told to."""
    with LocalRedisCluster(node_timeout=60.0) as cluster:
        yield cluster


@pytest.fixture
def one(cluster):
    """A connection to that cluster."""
    with Connection(cluster.url) as connection:
        yield connection


def test_a_cluster_is_one_store(one, cluster, model):
    """Commands, batches, scripts and names reach the master that has each key."""
    keys = [f"{{{model}:{k}}}:a" for k in range(30)]
    assert one.batch([("SET", key, key) for key in keys]) == [True] * 30
    assert one.batch([("GET", key) for key in keys]) == [key.encode() for key in keys]
    assert sorted(one.names(f"{{{model}:*")) == sorted(key.encode() for key in keys)
    assert one.script(COPY, [keys[1], f"{keys[1]}:b"], []) == keys[1].encode()
    assert len(one.servers()) == len(cluster.masters()) == 3
    assert len(one.everywhere("DBSIZE")) == 3


def test_ask_is_followed_while_a_slot_moves(one, cluster, model):
    """Keys that have gone ahead are read and written where they are, those that stayed where they were."""
    gone, stays = f"{{{model}}}:gone", f"{{{model}}}:stays"
    one.batch([("SET", gone, 1), ("SET", stays, 2)])
    move = SlotMove(cluster, gone).begin().carry(gone)
    try:
        assert one.batch([("GET", gone), ("GET", stays), ("GET", gone)]) == [b"1", b"2", b"1"]
        assert one.call("INCR", gone) == 2
        assert one.call("SET", f"{gone}:new", "n") is True, "a key that nobody has is made at the target"
        assert one.batch([("INCR", gone), ("GET", gone)]) == [3, b"3"]
        assert one.script("return redis.call('INCR', KEYS[1])", [gone], []) == 4
        assert one.script("return redis.call('INCR', KEYS[1])", [stays], []) == 3
    finally:
        move.carry().end()
    assert one.batch([("GET", gone), ("GET", stays), ("GET", f"{gone}:new")]) == [b"4", b"3", b"n"]


def test_a_script_on_both_sides_of_a_moving_slot_runs_once_afterwards(one, cluster, model):
    """It is refused as long as the slot moves, with an error that says so and that nothing was written."""
    gone, stays = f"{{{model}}}:gone", f"{{{model}}}:stays"
    one.batch([("SET", gone, 1), ("SET", stays, 2)])
    move = SlotMove(cluster, gone).begin().carry(gone)
    add = "return redis.call('INCRBY', KEYS[1], redis.call('GET', KEYS[2]))"
    try:
        with pytest.raises(ComponentUnreachable, match=r"moving this slot .* nothing was written"):
            one.script(add, [gone, stays], [])
    finally:
        move.carry().end()
    assert one.script(add, [gone, stays], []) == 3
    assert one.call("GET", gone) == b"3"


def test_a_cluster_that_is_down_is_served_again_once_it_is_up(model):
    """CLUSTERDOWN, and a slot that nobody has: the error names nodes and replicas, and the same connection goes on."""
    with LocalRedisCluster(replicas=0) as cluster, Connection(cluster.url) as one:
        one.call("SET", model, 1)
        owner = cluster.master_of(model)
        slot = redis.crc.key_slot(model.encode())
        for node in cluster.nodes:
            node.client.execute_command("CLUSTER DELSLOTS", slot)
        wait_until(lambda: owner.client.execute_command("CLUSTER INFO")["cluster_state"] == "fail")
        for command in (lambda: one.call("GET", model), lambda: one.batch([("GET", model), ("GET", "b")])):
            with pytest.raises(ComponentUnreachable, match="check its nodes"):
                command()
        with Connection(cluster.url) as new, pytest.raises(ComponentUnreachable, match="check its nodes"):
            new.call("GET", model)
        owner.client.execute_command("CLUSTER ADDSLOTS", slot)

        def served():
            with suppress(ComponentUnreachable):
                return one.call("EXISTS", model) in {0, 1}

        wait_until(served)


def test_a_server_that_loads_its_data_says_so(tmp_path):
    """A server that reads its file answers LOADING, and the same connection goes on once it has read it."""
    # It looks up from loading every 2 MB.
    node = RedisNode(tmp_path / "node", {"save": "", "rdbcompression": "no", "key-load-delay": "2000"})
    node.start()
    try:
        with Connection(f"redis://{node.place}") as connection, Connection(f"redis://{node.place}") as other:
            connection.batch([("SET", f"k{k}", "x" * 20_000) for k in range(1500)])
            loads = threading.Thread(target=lambda: other.call("DEBUG", "RELOAD"))
            loads.start()
            wait_until(lambda: node.client.info("persistence")["loading"] == 1)
            with pytest.raises(ComponentUnreachable, match="loading its data"):
                connection.call("GET", "k1")
            loads.join()
            assert connection.call("GET", "k1") == b"x" * 20_000
    finally:
        node.kill()
        node.client.close()


class _Counting(socketserver.BaseRequestHandler):
    """A node that says it has all slots, and closes the connection on INCR."""

    def handle(self):
        file = self.request.makefile("rb")
        port = self.server.server_address[1]
        while line := file.readline():
            parts = []
            for _ in range(int(line[1:])):
                size = int(file.readline()[1:])
                parts.append(file.read(size + 2)[:-2])
            name = parts[0].upper()
            if name == b"INCR":
                self.server.seen.append(parts)
                return
            if name == b"CLUSTER":
                self.request.sendall(b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % port)
            elif name == b"COMMAND":
                self.request.sendall(b"*1\r\n*6\r\n$4\r\nincr\r\n:2\r\n*0\r\n:1\r\n:1\r\n:1\r\n")
            else:
                self.request.sendall(b"+OK\r\n")


@pytest.mark.parametrize("form", ["redis://{}", "redis+cluster://{}"])
def test_a_command_whose_outcome_is_unknown_is_sent_twice_at_most(form):
    """For one server as for a cluster; but there commands of a batch are sent again one by one."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Counting) as server:
        server.daemon_threads, server.seen = True, []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{server.server_address[1]}"
        with Connection(form.format(place)) as connection:
            for send, most in (
                (lambda: connection.call("INCR", "n"), 2),
                (lambda: connection.batch([("INCR", "n"), ("INCR", "n")]), 7 if "cluster" in form else 2),
            ):
                server.seen.clear()
                with pytest.raises(ComponentUnreachable):
                    send()
                assert server.seen == [[b"INCR", b"n"]] * most
        server.shutdown()


def test_addresses_say_who_and_where(monkeypatch):
    """Login, hosts, ports, number and TLS reach redis-py, whatever its cluster client drops; sentinels have a login."""
    monkeypatch.setattr("redis.cluster.NodesManager.initialize", lambda _: None)
    monkeypatch.setattr("redis.cluster.CommandsParser", str)
    query = "ssl_cert_reqs=none&ssl_ciphers=HIGH"
    cluster = clients_at(f"rediss+cluster://u:p%2F@a:1,[::1]:2,c?{query}", 7.0)()
    nodes = cluster.nodes_manager
    assert sorted(nodes.startup_nodes) == ["::1:2", "a:1", "c:6379"]
    node = nodes.create_redis_node("a", 1, **nodes.connection_kwargs)
    named = node.connection_pool.connection_kwargs
    assert (named["username"], named["password"], named["socket_timeout"]) == ("u", "p/", 7.0)
    assert (named["ssl_ciphers"], named["ssl_cert_reqs"]) == ("HIGH", "none")
    assert issubclass(node.connection_pool.connection_class, redis.SSLConnection)
    client = clients_at("redis+sentinel://u:p@a:1,b/news/2?sentinel_password=q", 7.0)()
    named = client.connection_pool.connection_kwargs
    assert (named["username"], named["password"], named["db"]) == ("u", "p", 2)
    sentinels = client.connection_pool.sentinel_manager.sentinels
    asked = [sentinel.connection_pool.connection_kwargs for sentinel in sentinels]
    assert [(s["host"], s["port"], s["password"]) for s in asked] == [("a", 1, "q"), ("b", 26379, "q")]
    assert Connection("redis+cluster://u:secret@a:1,b:2").address == "redis+cluster://u:***@a:1,b:2"


def test_keys_of_two_slots_are_refused(one, model):
    """A script over two slots is a mistake of this program: it fails, whatever lies where."""
    with pytest.raises(StateError, match="slot"):
        one.script(COPY, [f"{model}a", f"{model}b"], [])


def test_masters_count_together():
    """Memory adds up, one master that writes a file makes a file, and one in trouble is the cluster's trouble."""
    well = {"run_id": "a", "aof_enabled": 1, "used_memory": 5, "aof_last_bgrewrite_status": "ok"}
    ill = {"run_id": "b", "aof_enabled": 0, "used_memory": 7, "aof_last_bgrewrite_status": "err"}
    both = combined([well, ill])
    assert (both["used_memory"], both["aof_enabled"], both["run_id"]) == (12, 1, "a b")
    assert both["aof_last_bgrewrite_status"] != "ok"
    assert combined([well, well])["aof_last_bgrewrite_status"] == "ok"


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://h:1,h:2/3",
        "redis+sentinel://h:1,h:2",
        "redis+sentinel://h:1/a/b",
        "redis+other://h:1",
        "redis://h:1,h:2",
        "redis+cluster://h:1,,h:2",
        "redis+cluster://h:1?no_such_option=1",
        "redis+cluster://user:pa/ss@h:1",
    ],
)
def test_addresses_that_cannot_be_are_refused_at_once(url):
    """A settings error before anything is sent, without the password."""
    with pytest.raises(SettingsError) as caught:
        Connection(url)
    assert "pa/ss" not in str(caught.value)
