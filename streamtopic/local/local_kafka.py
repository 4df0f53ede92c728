"""A real Kafka broker on this machine, started and stopped by the program."""

import atexit
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from streamtopic.errors import ComponentUnreachable
from streamtopic.local.child import Child, private_folder
from streamtopic.local.kafka_broker import (
    COMMON_PROPERTIES,
    broker_jars,
    brokers_seen,
    cache_folder,
    failure_reason,
    free_broker_port,
    java_command,
    new_cluster_id,
    prepare_storage,
    write_properties,
)

__all__ = ["LocalKafka"]

_START_SECONDS = 120
_PORT_ATTEMPTS = 5
_HEAP_MB = 512


class LocalKafka:
    """A Kafka broker (KRaft, broker and controller in one process) on 127.0.0.1.

    directory: folder of its data, None for a temporary one.
    port: of the broker; None for a free one.
    properties: properties of the broker that replace those chosen here.

    The broker ends with `stop`, with the interpreter, and when the process is killed. Started again, it goes on where
    it stopped, at the same port, also after `kill`.

    Raises ComponentUnreachable if a broker cannot be found or started.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = None if directory is None else Path(directory).absolute()
        self._properties = dict(properties or {})
        self._fixed_port = port
        self._port: int | None = None
        self._temporary: Path | None = None
        self._broker: Child | None = None

    @property
    def servers(self) -> str:
        """Address for clients, 127.0.0.1:PORT; also after `kill`. Raises ComponentUnreachable before `start`."""
        if self._port is None:
            raise ComponentUnreachable("the local Kafka is not running: start it first")
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id of the broker, None if it does not run."""
        return self._broker.pid if self._broker else None

    @property
    def jars(self) -> Path:
        """The folder with Kafka's jars, those of the console tools included."""
        return broker_jars(cache_folder())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> Self:
        """Start the broker and wait until it answers (2 to 8 s). Starting twice is harmless."""
        if self._broker is None:
            self._start(self._folder())
        return self

    def stop(self) -> None:
        """Stop the broker. Its data stays, unless the folder is temporary. Stopping twice is harmless."""
        self._end(signal.SIGTERM)
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def kill(self) -> None:
        """End the broker as kill -9 does. Its folder stays: `start` brings it up again on the same port."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        atexit.unregister(self.stop)
        if self._broker is not None:
            self._broker.end(how)
            self._broker = None

    def _folder(self) -> Path:
        if self._directory is None:
            self._temporary = self._temporary or Path(tempfile.mkdtemp(prefix="streamtopic-kafka-"))
            return self._temporary
        private_folder(self._directory)
        return self._directory

    def _start(self, folder: Path) -> None:
        """Start the broker at the wanted port or, if nobody depends on one, at a free port."""
        command = java_command(_HEAP_MB)
        wanted = self._fixed_port or self._port
        for attempt in range(_PORT_ATTEMPTS):
            port = wanted if wanted is not None and attempt == 0 else free_broker_port()
            write_properties(folder, _properties(folder, port) | self._properties)
            prepare_storage(folder, command, new_cluster_id())
            try:
                self._launch(folder, [*command, "kafka.Kafka", str(folder / "server.properties")], port)
            except ComponentUnreachable as error:
                # Another program may have taken the port since it was found free. Clients know a port that was given.
                if self._fixed_port or self._port or "already in use" not in str(error):
                    raise
            else:
                return
        raise ComponentUnreachable(f"a local Kafka found no free port in {_PORT_ATTEMPTS} attempts: give it one")

    def _launch(self, folder: Path, command: list[str], port: int) -> None:
        log = folder / "kafka.log"
        # The log goes on from start to start, and only this start can have failed.
        begin = log.stat().st_size if log.exists() else 0
        self._broker = Child(command, log, None, self._temporary)
        atexit.register(self.stop)
        try:
            self._await_ready(port, log, begin)
        except BaseException:
            self._end(signal.SIGKILL)
            raise
        self._port = port
        private_folder(folder)

    def _await_ready(self, port: int, log: Path, begin: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not brokers_seen(port):
            if self._broker is None or not self._broker.running:
                raise ComponentUnreachable(f"Kafka did not start: {failure_reason(log, begin)} (see {log})")
            if time.monotonic() > deadline:
                raise ComponentUnreachable(f"Kafka does not answer after {_START_SECONDS} s: look at its log, {log}")
            time.sleep(0.05)


def _properties(folder: Path, port: int) -> dict[str, object]:
    """Return the properties of a broker that is its own controller."""
    controller = free_broker_port()
    return {
        **COMMON_PROPERTIES,
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
