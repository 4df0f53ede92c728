"""The folder of a kept instance, the lock on it, its keys, and the topics of a model in the log.

DIR/streamtopic.toml     settings
DIR/log/                 event log
DIR/redis/               Redis data
DIR/keys/                signing.key, signing.pub, noise.key, receipt.key; suppression.key where ids can be suppressed
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
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.service.partition_counts import check_counts, wanted_partitions
from streamtopic.signed import PublicKey, SigningKey, check_origin, load_secret, new_secret, new_signing_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from streamtopic.settings import Settings
    from streamtopic.streams import EventLog, TopicNames

__all__ = [
    "InstanceLock",
    "Layout",
    "NoiseKey",
    "Provisioned",
    "differing",
    "missing_key",
    "noise_key",
    "provision",
    "public_key",
    "receipt_secret",
    "signing_key",
    "suppression_file",
]

logger = logging.getLogger(__name__)
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
    def signing_key(self) -> Path:
        """File of the private key, unless settings name another."""
        return self.root / "keys" / "signing.key"

    @property
    def public_key(self) -> Path:
        """File of the public key, for subscribers."""
        return self.root / "keys" / "signing.pub"

    @property
    def root_public_key(self) -> Path:
        """File of the root key's public half, where the instance's keys are in a key list."""
        return self.root / "keys" / "root.pub"

    @property
    def noise_key(self) -> Path:
        """File of the secret that noise is drawn from, unless settings name another."""
        return self.root / "keys" / "noise.key"

    @property
    def receipt_key(self) -> Path:
        """File of the secret by which receipts digest document ids."""
        return self.root / "keys" / "receipt.key"

    @property
    def suppression_key(self) -> Path:
        """File of the secret under which ids and subjects are suppressed. Without it nothing is suppressed."""
        return self.root / "keys" / "suppression.key"

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


def signing_key(settings: Settings, layout: Layout | None) -> SigningKey:
    """Load the signing key. An instance's own is made on first use.

    Raises SettingsError if no key is set, and for a key of another model's ledger.
    """
    path = settings.signing_key
    if path is None:
        if layout is None:
            raise missing_key("signing_key")
        path = layout.signing_key
        if not path.exists():
            # A second key in the place of a lost one would look like a forger to every subscriber.
            _refuse_second(layout, path)
            new_signing_key(path, layout.public_key, f"streamtopic/{settings.model}")
    key = SigningKey.load(path)
    check_origin(key, settings.model)
    return key


def public_key(settings: Settings, layout: Layout | None = None) -> PublicKey | None:
    """Load the public key that settings name, else the instance's root key; return None if there is neither."""
    if settings.public_key is not None:
        return PublicKey.load(settings.public_key)
    if layout is not None and layout.root_public_key.exists():
        return PublicKey.load(layout.root_public_key)
    return None


def noise_key(settings: Settings, layout: Layout | None) -> NoiseKey:
    """Load the secret that noise is drawn from. An instance's own is made on first use."""
    return NoiseKey(_secret("noise_key", settings.noise_key, layout))


def receipt_secret(settings: Settings, layout: Layout | None) -> bytes:
    """Load the secret by which receipts digest document ids. An instance's own is made on first use."""
    return _secret("receipt_key", settings.receipt_key, layout)


def suppression_file(settings: Settings, layout: Layout | None) -> Path | None:
    """Return the file of the key of suppressions, whether it exists or not; None if there are no suppressions."""
    if settings.suppression_key is not None:
        return settings.suppression_key
    # Off by default, so this key is not made by itself.
    return layout.suppression_key if layout is not None and layout.suppression_key.exists() else None


def _secret(name: str, named: Path | None, layout: Layout | None) -> bytes:
    """Load a secret from the named file, else the instance's own. Raises SettingsError if there is neither."""
    if named is not None:
        return load_secret(named)
    if layout is None:
        raise missing_key(name)
    own: Path = getattr(layout, name)
    if own.exists():
        return load_secret(own)
    _refuse_second(layout, own)
    return new_secret(own)


def missing_key(name: str) -> SettingsError:
    """Return the error that neither a setting nor an instance's folder gives a key."""
    return SettingsError(f"setting `{name}` is not set: `streamtopic keys new` makes the keys; name the file")


def _refuse_second(layout: Layout, path: Path) -> None:
    """Raise SettingsError where a key of the instance vanished: subscribers would refuse signatures of a new one."""
    # Before this mark the instance was never complete, so the lost key cannot have signed anything.
    if layout.initialised.exists():
        raise SettingsError(f"{path} is missing from an instance that had it: restore it from your backup")


@dataclass(frozen=True, slots=True)
class Provisioned:
    """A topic after `provision`.

    partitions: how many it has.
    action: `made`, `changed`, or `found` as it should be.
    changed: name of a setting to its value before (None: the broker's default) and now.
    """

    topic: str
    partitions: int
    action: Literal["made", "changed", "found"]
    changed: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)


def provision(
    log: EventLog,
    names: TopicNames,
    partitions: int,
    settings: Mapping[str, Mapping[str, str]],
) -> list[Provisioned]:
    """Make each topic in `settings`, or set it right. It is safe to repeat, also while services run.

    partitions: number of partitions of the documents topic.
    settings: topic to its settings, in Kafka's names.

    Raises StateMismatch if a topic has another number of partitions.
    """
    # All topics are looked at before the first is changed: a refusal leaves everything as it was.
    have = check_counts(log, names, partitions, settings)
    done = []
    for topic, count in have.items():
        wanted = wanted_partitions(names, topic, partitions)
        done.append(_provision_one(log, topic, wanted, count, settings[topic]))
    return done


def differing(log: EventLog, topic: str, wanted: Mapping[str, str]) -> dict[str, tuple[str | None, str]]:
    """Return the settings of a topic that differ: name to (present value, wanted value)."""
    have = log.settings(topic)
    other = {name: value for name, value in wanted.items() if have.get(name) != value}
    return {name: (have.get(name), value) for name, value in other.items()}


def _provision_one(log: EventLog, topic: str, partitions: int, have: int, wanted: Mapping[str, str]) -> Provisioned:
    """Make a topic, or set it right. have: its present number of partitions, 0 if it does not exist."""
    if not have:
        log.create(topic, partitions, wanted)
        return Provisioned(topic, partitions, "made")
    changed = differing(log, topic, wanted)
    if not changed:
        return Provisioned(topic, partitions, "found")
    values = {name: value for name, (_, value) in changed.items()}
    log.configure(topic, values)
    return Provisioned(topic, partitions, "changed", changed)
