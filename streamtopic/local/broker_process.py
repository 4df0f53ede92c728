"""One Kafka broker as a process: its properties, its prepared data folder, and whether it answers."""

import contextlib
import os
import secrets
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

from streamtopic.errors import ComponentUnreachable
from streamtopic.local.broker_files import broker_jars, cache_folder, find_java

__all__ = [
    "COMMON_PROPERTIES",
    "brokers_seen",
    "failure_reason",
    "free_broker_port",
    "java_command",
    "new_cluster_id",
    "prepare_storage",
    "write_properties",
]

# Below the ports of outgoing connections: one of those could take the port of a stopped broker.
_PORTS = range(20_000, 32_000)
# A metadata request, version 0, for all topics. Only a broker that has joined its cluster answers it.
_METADATA = struct.pack(">ihhihi", 14, 3, 0, 1, -1, 0)

COMMON_PROPERTIES: Mapping[str, object] = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 50,
    "group.min.session.timeout.ms": 1000,
    # A few threads suffice for one client. The buffer is taken from the heap at the start, by default 128 MB.
    "num.network.threads": 2,
    "num.io.threads": 4,
    "log.cleaner.dedupe.buffer.size": 16 << 20,
    # Compaction and retention act within seconds where a topic's settings allow it.
    "log.cleaner.backoff.ms": 1000,
    "log.retention.check.interval.ms": 1000,
    "log.initial.task.delay.ms": 1000,
    # A broker that was killed can join again only after its session has ended, by default after 9 s.
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 500,
}
"""Properties of every local broker: small, and quick to compact and to fail over."""


def java_command(environ: Mapping[str, str] = os.environ, heap_mb: int = 256) -> list[str]:
    """Return the command that runs a class of Kafka. Raises ComponentUnreachable where Java or the jars are missing.

    environ: with PATH, where Java is, and XDG_CACHE_HOME, where the jars are.
    """
    java = str(find_java(environ))
    jars = broker_jars(cache_folder(environ))
    options = (
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-Dorg.slf4j.simpleLogger.showDateTime=true",
    )
    return [java, *options, "-cp", f"{jars}/*"]


def new_cluster_id() -> str:
    """Return a random id for a cluster."""
    # Not the random text alone: a name that begins with a dash would be taken for an option.
    return "st" + secrets.token_urlsafe(16)[:20]


def write_properties(folder: Path, properties: Mapping[str, object]) -> None:
    """Write the broker's `server.properties`."""
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    (folder / "server.properties").write_text(text, "utf-8")


def prepare_storage(folder: Path, command: list[str], cluster: str) -> None:
    """Prepare the data folder once. Kafka does not start in one that was not prepared.

    folder: with `server.properties`.
    command: that of `java_command`.
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


def brokers_seen(port: int, tls: ssl.SSLContext | None = None) -> int:
    """Return how many brokers of its cluster the broker at a port knows; 0 where it does not answer.

    tls: for a port that speaks TLS.
    """
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        if tls is not None:
            connection = stack.enter_context(tls.wrap_socket(connection, server_hostname="127.0.0.1"))
        connection.sendall(_METADATA)
        answer = b""
        while len(answer) < 12 and (piece := connection.recv(12 - len(answer))):
            answer += piece
        if len(answer) == 12:
            _size, _correlation_id, brokers = struct.unpack(">iii", answer)
            return int(brokers)
    return 0


def free_broker_port() -> int:
    """Return a port that nobody uses."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def failure_reason(log: Path, begin: int) -> str:
    """Return the last exception that the broker wrote to its log since the byte `begin`, else its last line."""
    # The last one is the innermost cause.
    with log.open("rb") as output:
        output.seek(begin)
        lines = output.read().decode("utf-8", "replace").strip().splitlines()
    named = [line.strip() for line in lines if "Exception" in line and not line.lstrip().startswith("at ")]
    return (named or lines or ["it wrote no log"])[-1]
