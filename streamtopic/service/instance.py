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
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Literal

from streamtopic.documents.suppression import SuppressionKey
from streamtopic.errors import ComponentUnreachable, SettingsError
from streamtopic.local import private_folder, tighten
from streamtopic.service.log_history import check_counts, wanted_partitions
from streamtopic.signed import (
    KeyRing,
    PublicKey,
    SigningKey,
    check_origin,
    load_secret,
    new_secret,
)
from streamtopic.streams import TopicNames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from streamtopic.settings import Settings
    from streamtopic.streams import EventLog

__all__ = [
    "LOG",
    "REDIS",
    "Provisioned",
    "differing",
    "held_signing_key",
    "key_file",
    "key_ring",
    "locked",
    "make_keys",
    "missing_key",
    "present_key",
    "provision",
    "public_key",
    "secret",
    "signing_key",
    "suppression_key",
    "topic_settings",
]

logger = logging.getLogger(__name__)
KeyName = Literal["signing.key", "signing.pub", "root.pub", "noise.key", "receipt.key", "suppression.key"]
LOG, REDIS = "log", "redis"
"""Folders of an instance's event log, and of Redis's data."""
# An empty file, which exists once the instance has all its keys.
_COMPLETE = "keys/complete"
# Seconds. Another command is done by then, unless it learns a very large model.
WAIT = 60.0


@contextmanager
def locked(root: Path, *, service: bool) -> Iterator[bool]:
    """Lock an instance as long as the block runs; yield whether this process works on it, and False if a service does.

    One process works on an instance. Others send events to a service, or wait for a command.

    root: the instance's folder.
    service: whether this process stays, so that others send events to it and do not wait.

    Raises ComponentUnreachable if another command takes longer than a minute.
    """
    # A copy or a restored archive may have opened files to others.
    opened = private_folder(root)
    if opened > 1:
        logger.warning(
            "%d files and folders in %s were open to other users of this machine: they are closed now",
            opened,
            root,
            extra={"event": "files_closed", "files": opened},
        )
    (root / "instance.lock").touch(mode=0o600)
    # To append: opening must not erase the word of the process that holds the lock. The end of the process unlocks too.
    with (root / "instance.lock").open("a+", encoding="ascii") as file:
        if not _lock(file, root):
            yield False
            return
        file.truncate(0)
        file.write("service" if service else "command")
        file.flush()
        try:
            yield True
        finally:
            tighten(root)
            # A process that finds the lock taken reads the file: it must not find the word of an earlier holder.
            file.truncate(0)


def _lock(file: IO[str], root: Path) -> bool:
    """Lock the file of an instance, once other commands have ended; return False if a service has it."""
    deadline = time.monotonic() + WAIT
    while True:
        # The kernel frees the lock when its holder dies, so no file has to be cleaned up after a kill.
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            if file.read() == "service":
                return False
            if time.monotonic() > deadline:
                raise ComponentUnreachable(
                    f"another command has worked on {root} for {WAIT:.0f} s: try later"
                ) from None
            time.sleep(0.05)
        else:
            return True


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
    path = _kept("signing.key", settings, lambda own: SigningKey.generate(origin).save(own))
    key = SigningKey.load(path)
    check_origin(key, settings.model)
    return key


def public_key(settings: Settings) -> PublicKey | None:
    """Load the public key that verifies the ledger: the root key's, else the one that signs; None without either."""
    file = present_key(settings, "root.pub", "signing.key", "signing.pub")
    if file is None:
        return None
    return SigningKey.load(file).public if file.name == "signing.key" else PublicKey.load(file)


def held_signing_key(settings: Settings) -> SigningKey | None:
    """Load the signing key, None for a process that does not have it. Raises as `signing_key`."""
    return None if present_key(settings, "signing.key") is None else signing_key(settings)


def key_ring(settings: Settings) -> KeyRing:
    """Return the keys of the ledger before any list of them is read. Raises SettingsError without a public key."""
    signing = held_signing_key(settings)
    own = () if signing is None else (signing.public,)
    return KeyRing(public_key(settings) or signing_key(settings).public, settings.model, own)


def secret(settings: Settings, name: Literal["noise.key", "receipt.key"]) -> bytes:
    """Load a secret. An instance's own is made on first use. Raises SettingsError without one."""
    return load_secret(_kept(name, settings, new_secret))


def suppression_key(settings: Settings) -> SuppressionKey | None:
    """Load the key of suppressions; None if nothing is suppressed, and if this process lacks the key."""
    file = present_key(settings, "suppression.key")
    return None if file is None else SuppressionKey(load_secret(file), settings.model)


def make_keys(settings: Settings) -> None:
    """Make the keys of an instance in a folder, if it never had them. Raises SettingsError if one is lost."""
    # All keys are made before this mark: after a crash in between, the next process makes the others.
    signing_key(settings)
    secret(settings, "noise.key")
    secret(settings, "receipt.key")
    if settings.keys is None and settings.dir is not None:
        (settings.dir / _COMPLETE).touch(mode=0o600)


def _kept(name: KeyName, settings: Settings, make: Callable[[Path], object]) -> Path:
    """Return the file of a secret key. An instance's own is made if it never had one."""
    path = key_file(settings, name)
    if path is None:
        raise missing_key(name)
    if settings.keys is not None or settings.dir is None or path.exists():
        return path
    # Before this mark the instance was never complete, so a lost key cannot have signed anything. After it, a second
    # key in its place would look like a forger to every subscriber.
    if (settings.dir / _COMPLETE).exists():
        raise SettingsError(f"{path} is missing from an instance that had it: restore it from your backup")
    make(path)
    return path


def missing_key(name: KeyName) -> SettingsError:
    """Return the error that there is no folder of keys."""
    return SettingsError(
        f"there is no {name}: `streamtopic keys new` makes the keys; name their folder in the setting `keys`"
    )


LEAST_COMPACTION_LAG_MS = 3_600_000
"""A broker that compacts the log more often than each hour would rewrite it all day."""


def topic_settings(settings: Settings) -> dict[str, dict[str, str]]:
    """Return Kafka's settings of each topic."""
    return TopicNames(settings.model).settings(
        max_compaction_lag_ms=max(int(settings.residue_max_age * 1000), LEAST_COMPACTION_LAG_MS),
        delete_retention_ms=int(settings.delete_retention * 1000),
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
    """Return the settings of a topic that differ: name to (present value, wanted value); {} in files, without any."""
    have = log.settings(topic)
    other = {name: value for name, value in wanted.items() if have and have.get(name) != value}
    return {name: (have.get(name), value) for name, value in other.items()}
