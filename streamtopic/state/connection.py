"""The one place where Redis is spoken to: names of keys, commands, guarded writes and their outcomes, values as bytes.

    PartitionKeys, ModelKeys    names of everything that a model keeps
    Connection                  commands, and changes that are written as a whole
    Codec                       values of a class as bytes

Guarded writes are the Lua scripts in `lua/`, of which `Connection.change` runs one for nearly all. A script checks
everything before its first write, and recognises its own repetition. A change names what it is based on. Offsets,
versions and tokens may count up to the same numbers again after Redis was set back to an older snapshot; the id of the
last change cannot.
"""

import contextlib
import re
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import chain
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import msgpack
import redis
from pydantic import TypeAdapter
from redis.cluster import RedisCluster

from streamtopic.errors import SettingsError, StateCorrupt, UsageError
from streamtopic.security.concealing import clear_address, shown_address
from streamtopic.state.redis_servers import Client, clients_at, close, combined, mapped

__all__ = [
    "ACQUIRE_LEASE",
    "BUCKETS",
    "CHANGE",
    "READ_BUCKETS",
    "READ_DOCUMENTS",
    "AlreadyApplied",
    "Applied",
    "Check",
    "Codec",
    "Command",
    "Connection",
    "ModelKeys",
    "Outcome",
    "PartitionKeys",
    "Stale",
]

T = TypeVar("T")
# Milliseconds for a large class, and a process has several codecs of one.
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)

_TIMEOUT = 30.0
_errors = redis.exceptions
_FORM = (
    "give redis://USER:PASSWORD@HOST:PORT/NUMBER, rediss://..., unix:///PATH, redis+cluster://HOST:PORT,HOST:PORT or "
    "redis+sentinel://HOST:PORT,HOST:PORT/SERVICE, with /, ?, #, @ and % in a password written as %2F, %3F, %23, %40 "
    "and %25"
)

BUCKETS = 128
"""Hashes over which a partition's documents are spread, so that no key grows huge."""

_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """Keys of one partition. All have one hash tag, so that one script may write them in a Redis Cluster."""

    tag: str

    @property
    def number(self) -> int:
        """Number of the partition."""
        return int(self.tag.rpartition(":")[2].removesuffix("}"))

    @property
    def meta(self) -> str:
        """Hash: positions, versions and counters."""
        return f"{self.tag}:meta"

    @property
    def changes(self) -> tuple[str, str]:
        """Hashes: version to the change that made it; those of even and of odd generations (meta.py)."""
        return f"{self.tag}:changes:0", f"{self.tag}:changes:1"

    @property
    def statistics(self) -> str:
        """String: all words with their statistics as of a moment; what came later is in the changes."""
        return f"{self.tag}:statistics"

    @property
    def forgets(self) -> str:
        """Sorted set: offsets of deletions, until their receipts are published. It outlives a rebuild."""
        return f"{self.tag}:forgets"

    @property
    def forget_facts(self) -> str:
        """Hash: offset of a deletion to its facts. It outlives a rebuild."""
        return f"{self.tag}:forgets:facts"

    @property
    def subject_secret(self) -> str:
        """Hash: the secret that digests subjects, and `through` of the position. It outlives a rebuild."""
        return f"{self.tag}:people"

    def subjects(self, bucket: int) -> str:
        """Sorted set, all of one score: digest of a subject and key of a document's record as one string."""
        return f"{self.tag}:subjects:{bucket}"

    def bucket(self, document: bytes) -> int:
        """Return the number of the hash that holds this document."""
        return self.buckets([document])[0]

    def buckets(self, documents: Iterable[bytes]) -> bytes:
        """Return the number of the hash that holds each of these documents: a byte each."""
        # CRC-32, not `hash`: the answer must be the same in every process and every version of Python.
        return bytes(code % BUCKETS for code in map(zlib.crc32, documents))

    def by_bucket(self, documents: Iterable[bytes]) -> dict[int, list[bytes]]:
        """Return the number of each hash with the documents that it holds, each once."""
        once, buckets = list(dict.fromkeys(documents)), defaultdict[int, list[bytes]](list)
        for bucket, document in zip(self.buckets(once), once, strict=True):
            buckets[bucket].append(document)
        return buckets

    def documents(self, bucket: int) -> str:
        """Hash: document id to its record."""
        return f"{self.tag}:docs:{bucket}"


@dataclass(frozen=True, slots=True)
class ModelKeys:
    """Keys of one model. Those without a partition share one slot.

    Raises UsageError for a model name that is not 1 to 100 letters, digits, dashes or underscores.
    """

    model: str

    def __post_init__(self) -> None:
        if not _MODEL.fullmatch(self.model):
            raise UsageError(f"model name {self.model!r}: use 1 to 100 letters, digits, dashes and underscores")

    def partition(self, partition: int) -> PartitionKeys:
        """Return the keys of one partition."""
        return PartitionKeys(f"{{st:{self.model}:{partition}}}")

    def named(self, name: str) -> str:
        """Return the global key `name`, such as settings, base, releases, outbox, lease, fence or ledger:head."""
        return f"{{st:{self.model}}}:{name}"


Command = Sequence[str | bytes | int]

Check = tuple[Command, str | bytes, str]
"""A command that reads, its answer as text if the change may be made, and the reason to give if it is another one. Of
an answer of several parts the last one counts; "" is no answer."""

_FOLDER = files("streamtopic.state") / "lua"


def _text(name: str) -> str:
    """Return a file of `lua/`."""
    return (_FOLDER / f"{name}.lua").read_text(encoding="utf-8")


CHANGE = _text("change")
READ_BUCKETS = _text("read_buckets")

READ_DOCUMENTS = _text("read_documents")
ACQUIRE_LEASE = _text("acquire_lease")


@dataclass(frozen=True, slots=True)
class Applied:
    """The change was written now."""


@dataclass(frozen=True, slots=True)
class AlreadyApplied:
    """The change had been written before, so nothing was written now. This is a success."""


@dataclass(frozen=True, slots=True)
class Stale:
    """The change was based on a state that has changed since, so nothing was written: read again, then decide again."""

    reason: str


Outcome = Applied | AlreadyApplied | Stale


class Connection:
    """A Redis connection whose errors are StreamtopicErrors.

    url: redis://, rediss:// or unix://; redis+cluster:// with nodes of a cluster, redis+sentinel:// with sentinels and
    the name of the service (rediss+... for TLS).

    redis-py sends a command once more after a lost connection, also if its outcome is unknown. That is safe because
    every write of this package recognises that it was already applied. redis-py follows a cluster and sentinels to the
    server that has a key by now. If that lasts longer, its process repeats the whole step, as after any fault.

    Raises SettingsError for a malformed address; nothing is sent before the first command.
    """

    def __init__(self, url: str, *, timeout: float = _TIMEOUT) -> None:
        self.address = shown_address(url)
        if clear_address(url) is None:
            raise SettingsError(f"Redis address {self.address} is malformed: {_FORM}")
        try:
            self._make = clients_at(url, timeout)
        except (ValueError, TypeError):
            # What redis-py says of it may quote a part of the password.
            raise SettingsError(f"Redis address {self.address} cannot be used: {_FORM}") from None
        self._made: Client | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the sockets back."""
        if self._made is not None:
            close(self._made)

    @property
    def client(self) -> Client:
        """The client of redis-py. That of a cluster is made at the first command, and raises redis-py's errors."""
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    def ping(self) -> None:
        """Raise ComponentUnreachable unless every server that holds keys answers."""
        self.everywhere("PING")

    def information(self) -> dict[str, Any]:
        """Return the server's INFO; of several masters the `combined`."""
        return combined(list(self.servers().values()))

    def servers(self) -> dict[str, dict[str, Any]]:
        """Return INFO of each server that holds keys, by host and port, or the address if there is one."""
        return self.everywhere("INFO")

    def names(self, pattern: str) -> list[bytes]:
        """Return the keys that match a pattern. Redis removes those that have expired as it comes by."""
        found = self._run(lambda: [list(one.scan_iter(pattern, count=1000)) for one in self._masters().values()])
        return list(chain.from_iterable(found))

    def call(self, *command: str | bytes | int) -> Any:  # noqa: ANN401 - what Redis answers depends on the command
        """Send one command that may safely be sent twice; one without a key goes to some server."""
        return self._run(lambda: self.client.execute_command(*command), command)  # type: ignore[no-untyped-call]

    def everywhere(self, *command: str | bytes | int) -> dict[str, Any]:
        """Send one command without a key to every server that holds keys; return the answers as `servers` does."""
        return self._run(lambda: {place: one.execute_command(*command) for place, one in self._masters().items()})  # type: ignore[no-untyped-call]

    def batch(self, commands: Iterable[Command]) -> list[Any]:
        """Send commands together that may safely be sent twice; those of one key keep their order."""
        todo = list(commands)
        if not todo:
            return []
        answers = self._run(lambda: self._together(todo), todo[0])
        # Sent alone, a command is waited for, or its error is told.
        return [
            self.call(*command) if isinstance(answer, Exception) else answer
            for command, answer in zip(todo, answers, strict=True)
        ]

    def _together(self, commands: Sequence[Command]) -> list[Any]:
        """Return the answers to commands, errors among them."""
        pipeline = self.client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        # What redis-py raises by itself quotes the command, and with it what documents said.
        answers: list[Any] = pipeline.execute(raise_on_error=False)
        return answers

    def script(self, text: str, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:  # noqa: ANN401 - as call
        """Run a Lua script that recognises its own repetition. All keys must lie in one slot."""
        # By its text, which costs Redis a few microseconds: a server that was started again knows no digests.
        return self.call("EVAL", text, len(keys), *keys, *arguments)

    def change(
        self,
        steps: Iterable[Command],
        *,
        guards: Sequence[Check] = (),
        done: tuple[Command, str | bytes] | None = None,
    ) -> Outcome:
        """Write all of some commands, or none. All keys must lie in one slot.

        steps: commands, each with its key as the second part.
        guards: what must be so; the first that is not makes it Stale.
        done: a command that reads, and its answer if the change was made before; it is looked at first.
        """
        keys: dict[str, int] = {}

        def numbered(command: Command) -> list[str | bytes | int]:
            name, key, *rest = command
            # As text: a number of Lua has 53 bits.
            texts = [str(part) if type(part) is int else part for part in rest]
            return [name, keys.setdefault(str(key), len(keys) + 1), *texts]

        plan: dict[str, object] = {"guards": [[numbered(command), value, why] for command, value, why in guards]}
        if done is not None:
            plan["done"] = [numbered(done[0]), done[1]]
        plan["steps"] = [numbered(command) for command in steps]
        # Redis reads the kinds of msgpack from before it told bytes and text apart.
        packed = bytes(msgpack.packb(plan, use_bin_type=False))
        answer, *reason = self.script(CHANGE, list(keys), [packed])
        if answer == b"stale":
            return Stale(reason[0].decode())
        return Applied() if answer == b"applied" else AlreadyApplied()

    def _masters(self) -> dict[str, redis.Redis]:
        """Return a client for each server that holds keys."""
        client = self.client
        if not isinstance(client, RedisCluster):
            return {self.address: client}
        return {node.name: client.get_redis_connection(node) for node in client.get_primaries()}  # type: ignore[no-untyped-call]

    def _run(self, send: Callable[[], T], command: Command = ()) -> T:
        """Return what `send` returns, or raise this package's error. command: that is sent, for errors."""
        try:
            return send()
        except (_errors.RedisError, _errors.RedisClusterException) as error:
            fault = _cause(error)
        except (LookupError, AttributeError):
            # redis-py takes for granted that each slot has a master, and that an ASK names a node that has a slot.
            fault = _errors.SlotNotCoveredError("a slot has no node, or moves to one that had none")
        if isinstance(fault, _errors.SlotNotCoveredError) and isinstance(self._made, RedisCluster):
            # redis-py keeps such a map until a connection is lost: without this it would never learn of the node.
            with contextlib.suppress(_errors.RedisError, _errors.RedisClusterException):
                self._made.nodes_manager.initialize()
        raise mapped(fault, self.address, _act(command) if command else "") from fault


def _act(command: Command) -> str:
    """Return a command and its key, for errors; arguments may say what documents say."""
    key = 3 if command[0] == "EVAL" else 1
    texts = [part.decode("utf-8", "replace") if isinstance(part, bytes) else str(part) for part in command]
    return " ".join([texts[0], *texts[key : key + 1]])


def _cause(error: Exception) -> Exception:
    """Return what a server answered if redis-py only says that it could not read the map of a cluster."""
    cause = error.__cause__
    known = isinstance(error, _errors.RedisClusterException) and isinstance(cause, _errors.RedisError)
    return cause if known and isinstance(cause, Exception) else error


class Codec(Generic[T]):
    """Packs and unpacks values of one class.

    kind: a dataclass; its fields may be dataclasses, mappings, sequences and enums of texts as well.
    told: the error text for bytes that are no such value, with the remedy.
    """

    def __init__(self, kind: type[T], told: str) -> None:
        self._types = _adapter(kind)
        self._told = told

    def pack(self, value: T) -> bytes:
        """Return the bytes that Redis keeps."""
        return bytes(msgpack.packb(self._types.dump_python(value)))

    def unpack(self, data: bytes) -> T:
        """Undo `pack`. Raises StateCorrupt."""
        try:
            found = msgpack.unpackb(data, strict_map_key=False)
            unpacked: T = self._types.validate_python(found)
        except (ValueError, TypeError, msgpack.UnpackException):
            # What pydantic says of it may quote what documents said.
            raise StateCorrupt(self._told) from None
        return unpacked
