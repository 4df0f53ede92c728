"""The folder of a kept instance, the lock on it, its keys, and the topics of a model in the log.

DIR/streamtopic.toml     settings
DIR/log/                 event log
DIR/redis/               Redis data
DIR/keys/                signing.key, signing.pub, noise.key, receipt.key; suppression.key if ids can be suppressed
DIR/instance.lock        held by the process that works on the instance
"""

from __future__ import annotations

import fcntl
import logging
import time
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Literal

from streamtopic.errors import ComponentUnreachable, SettingsError
from streamtopic.local import private_folder, tighten
from streamtopic.service.log_history import check_counts, wanted_partitions
from streamtopic.signed import PublicKey, SigningKey, check_origin, load_secret, new_secret, new_signing_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from streamtopic.settings import Settings
    from streamtopic.streams import EventLog, TopicNames

__all__ = [
    "InstanceLock",
    "Layout",
    "Provisioned",
    "differing",
    "key_file",
    "missing_key",
    "present_key",
    "provision",
    "public_key",
    "secret",
    "signing_key",
]

logger = logging.getLogger(__name__)
KeyName = Literal["signing.key", "signing.pub", "root.pub", "noise.key", "receipt.key", "suppression.key"]
# Seconds. Another command is done by then, unless it learns a very large model.
WAIT = 60.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths within an instance's folder."""

    root: Path

    @property
    def log(self) -> Path:
        """Folder of the event log."""
        return self.root / "log"

    @property
    def redis(self) -> Path:
        """Folder of Redis's data."""
        return self.root / "redis"

    @property
    def initialised(self) -> Path:
        """Empty file that exists once the instance has all its keys."""
        return self.root / "keys" / "complete"


class InstanceLock:
    """The lock on an instance: one process works on it. Others send events to a service, or wait for a command.

    root: the instance's folder.
    service: whether this process stays, so that others send events to it and do not wait.
    clock: seconds that only grow.
    """

    def __init__(self, root: Path, *, service: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._service = service
        self._clock = clock
        self._file: IO[str] | None = None

    def acquire(self) -> bool:
        """Lock the instance; return False if a service runs it.

        Raises ComponentUnreachable if another command takes longer than a minute.
        """
        # A copy or a restored archive may have opened files to others.
        opened = private_folder(self._root)
        if opened > 1:
            logger.warning(
                "%d files and folders in %s were open to other users of this machine: they are closed now",
                opened,
                self._root,
                extra={"event": "files_closed", "files": opened},
            )
        (self._root / "instance.lock").touch(mode=0o600)
        # To append: opening must not erase the word of the process that holds the lock.
        file = (self._root / "instance.lock").open("a+", encoding="ascii")
        deadline = self._clock() + WAIT
        while True:
            # The kernel frees the lock when its holder dies, so no file has to be cleaned up after a kill.
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                if file.read() == "service":
                    file.close()
                    return False
                if self._clock() > deadline:
                    file.close()
                    raise ComponentUnreachable(
                        f"another command has worked on {self._root} for {WAIT:.0f} s: try later"
                    ) from None
                time.sleep(0.05)
                continue
            file.truncate(0)
            file.write("service" if self._service else "command")
            file.flush()
            self._file = file
            return True

    def release(self) -> None:
        """Unlock the instance. The end of the process unlocks it too."""
        if self._file is not None:
            tighten(self._root)
            # A process that finds the lock taken reads the file: it must not find the word of an earlier holder.
            self._file.truncate(0)
            self._file.close()
            self._file = None


def key_file(settings: Settings, name: KeyName) -> Path | None:
    """Return the file of a key, whether it exists or not; None for a service without a folder of keys."""
    return None if settings.key_folder is None else settings.key_folder / name


def present_key(settings: Settings, *names: KeyName) -> Path | None:
    """Return the file of the first of these keys that is there, None if none is."""
    files = (key_file(settings, name) for name in names)
    return next((file for file in files if file is not None and file.exists()), None)


def signing_key(settings: Settings) -> SigningKey:
    """Load the signing key. An instance's own is made on first use.

    Raises SettingsError without a key, and for a key of another model's ledger.
    """
    origin = f"streamtopic/{settings.model}"
    path = _kept("signing.key", settings, lambda own: new_signing_key(own, own.with_name("signing.pub"), origin))
    key = SigningKey.load(path)
    check_origin(key, settings.model)
    return key


def public_key(settings: Settings) -> PublicKey | None:
    """Load the public key that verifies the ledger: the root key's, else the one that signs; None without either."""
    if (root := present_key(settings, "root.pub")) is not None:
        return PublicKey.load(root)
    if (signing := present_key(settings, "signing.key")) is not None:
        return SigningKey.load(signing).public
    public = present_key(settings, "signing.pub")
    return None if public is None else PublicKey.load(public)


def secret(settings: Settings, name: Literal["noise.key", "receipt.key"]) -> bytes:
    """Load a secret. An instance's own is made on first use. Raises SettingsError without one."""
    return load_secret(_kept(name, settings, new_secret))


def _kept(name: KeyName, settings: Settings, make: Callable[[Path], object]) -> Path:
    """Return the file of a secret key. An instance's own is made if it never had one."""
    path = key_file(settings, name)
    if path is None:
        raise missing_key(name)
    if settings.keys is not None or settings.dir is None or path.exists():
        return path
    # Before this mark the instance was never complete, so a lost key cannot have signed anything. After it, a second
    # key in its place would look like a forger to every subscriber.
    if Layout(settings.dir).initialised.exists():
        raise SettingsError(f"{path} is missing from an instance that had it: restore it from your backup")
    make(path)
    return path


def missing_key(name: KeyName) -> SettingsError:
    """Return the error that there is no folder of keys."""
    return SettingsError(
        f"there is no {name}: `streamtopic keys new` makes the keys; name their folder in the setting `keys`"
    )


Action = Literal["made", "changed", "found"]


@dataclass(frozen=True, slots=True)
class Provisioned:
    """A topic after `provision`.

    partitions: how many it has.
    action: `made`, `changed`, or `found` as it should be.
    changed: name of a setting to its value before (None: the broker's default) and now.
    """

    topic: str
    partitions: int
    action: Action
    changed: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)


def provision(
    log: EventLog,
    names: TopicNames,
    partitions: int,
    settings: Mapping[str, Mapping[str, str]],
    *,
    change: bool = True,
) -> list[Provisioned]:
    """Make each topic in `settings`, or set it right. It is safe to repeat, also while services run.

    partitions: number of partitions of the documents topic.
    settings: topic to its settings, in Kafka's names.
    change: whether topics that exist are set right.

    Raises StateMismatch if a topic has another number of partitions.
    """
    # All topics are looked at before the first is changed: a refusal leaves everything as it was.
    have = check_counts(log, names, partitions, settings)
    done = []
    for topic, count in have.items():
        wanted = wanted_partitions(names, topic, partitions)
        changed = differing(log, topic, settings[topic]) if count and change else {}
        if not count:
            log.create(topic, wanted, settings[topic])
        elif changed:
            log.configure(topic, {name: value for name, (_, value) in changed.items()})
        action: Action = ("changed" if changed else "found") if count else "made"
        done.append(Provisioned(topic, wanted, action, changed))
    return done


def differing(log: EventLog, topic: str, wanted: Mapping[str, str]) -> dict[str, tuple[str | None, str]]:
    """Return the settings of a topic that differ: name to (present value, wanted value)."""
    have = log.settings(topic)
    other = {name: value for name, value in wanted.items() if have.get(name) != value}
    return {name: (have.get(name), value) for name, value in other.items()}
