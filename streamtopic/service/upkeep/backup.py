"""Backup and restore of a model: keys and Redis in one file, and back to a state that goes on from the log."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamtopic.errors import StateError, StateMismatch, UsageError
from streamtopic.formats import BACKUP, STATE, refusal
from streamtopic.security.private_files import new_file, write_whole
from streamtopic.service.assembly import Parts
from streamtopic.service.instance import Layout, noise_key, public_key, receipt_secret, signing_key, suppression_file
from streamtopic.service.upkeep.backup_archive import ArchiveWriter, read_archive
from streamtopic.service.upkeep.rebuild_state import count_to_the_end
from streamtopic.signed import KeyRing, LedgerReader, load_secret
from streamtopic.state import CutGone
from streamtopic.state.dumped_keys import (
    base_head,
    clear,
    dump_model,
    dump_partition,
    hold_lease,
    put_key,
    release_lease,
)
from streamtopic.state.removal import leader, note_removed, recorded
from streamtopic.state.residue_ledger import ResidueState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import IO

    from streamtopic.service.app import Service
    from streamtopic.settings import Settings

__all__ = ["Contents", "Restored", "backup", "contents", "restore", "restore_keys", "write_backup"]

HOLDER = "streamtopic restore"
_ATTEMPTS = 5
# Names in the archive.
_KEYS = "keys/"
_REDIS = "redis/"
_ABOUT = "backup.json"
# The file that the setting `public_key` names.
_PUBLIC = "public_key"
# What `streamtopic keys rotate` replaces.
_ROTATED = frozenset({"signing.key", "signing.pub"})


@dataclass(frozen=True, slots=True)
class Contents:
    """What a backup holds.

    model: name of the model.
    made: time of the backup, seconds since 1970.
    fixed: the settings that are fixed when a model is created: cap, partitions, partitioner and limits.
    positions: next offset of each partition.
    documents: number of live documents.
    keys: name of a key file to its content.
    """

    model: str
    made: int
    fixed: tuple[Any, ...]
    positions: tuple[int, ...]
    documents: int
    keys: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Restored:
    """The state that a restore made.

    documents: number of live documents, after the log was read to its end.
    records: number of records that were read from the log.
    made: time of the backup, seconds since 1970.
    """

    documents: int
    records: int
    made: int


def backup(parts: Parts, path: Path) -> Contents:
    """Write keys and state of a model into a new file that only its owner can read, beside everything that runs.

    Raises UsageError if the file exists, StateMissing or StateError if there is no whole state.
    """
    try:
        with new_file(path) as file:
            return write_backup(parts, file)
    except FileExistsError:
        raise UsageError(f"{path} exists: name a new file, a backup is never overwritten") from None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None


def write_backup(parts: Parts, file: IO[bytes]) -> Contents:
    """Write keys and state of a model into an open file, which can seek, until nothing was replaced during it."""
    for _ in range(_ATTEMPTS):
        file.seek(0)
        file.truncate()
        # A new base model came between; the next attempt sees all of it.
        with suppress(CutGone):
            return _write(parts, file)
    raise StateError(f"the state changed during each of {_ATTEMPTS} attempts: run the backup when less happens")


def _write(parts: Parts, file: IO[bytes]) -> Contents:
    """Write one attempt. Raises CutGone if it cannot be used."""
    settings, connection = parts.settings, parts.connection
    made = int(parts.clock())
    archive = ArchiveWriter(file)
    files = {name: path.read_bytes() for name, path in _present_keys(settings, parts.layout).items()}
    for name, content in files.items():
        archive.add(_KEYS + name, content)
    # Before the partitions: versions must name offsets that the partitions have passed.
    base = base_head(connection, settings.model)
    for name, value in dump_model(connection, settings.model):
        archive.add(_REDIS + name, value)
    positions, documents = [], 0
    for partition in range(settings.partitions):
        meta, keys = dump_partition(connection, settings.model, partition)
        for name, value in keys:
            archive.add(_REDIS + name, value)
        positions.append(meta.next_offset)
        documents += meta.documents
    # Epochs up to that of a base may be folded into one: counts from after a new base do not fit the one before.
    if base_head(connection, settings.model) != base:
        raise CutGone("a new base model came while the partitions were read")
    about = {"format": BACKUP.number, "model": settings.model, "made": made, "schema": STATE.number}
    about |= {"fixed": _fixed(parts), "positions": positions, "documents": documents}
    archive.add(_ABOUT, json.dumps(about).encode())
    archive.finish()
    return Contents(settings.model, made, _fixed(parts), tuple(positions), documents, files)


def _fixed(parts: Parts) -> tuple[Any, ...]:
    fixed = parts.state.settings
    return fixed.cap, fixed.partitions, fixed.partitioner, fixed.limits


def contents(file: IO[bytes]) -> Contents:
    """Read a backup to its end and return what it holds; nothing is written.

    Raises StateCorrupt for a file that is not whole, StateMismatch for another format.
    """
    about: dict[str, Any] = {"format": None}
    keys = {}
    for name, content in read_archive(file):
        if name.startswith(_KEYS):
            keys[name.removeprefix(_KEYS)] = content
        elif name == _ABOUT:
            about = json.loads(content)
    if about["format"] != BACKUP.number:
        raise StateMismatch(refusal(BACKUP, about["format"]))
    if about["schema"] != STATE.number:
        raise StateMismatch(refusal(STATE, about["schema"], name="the state in the backup"))
    fixed, positions = tuple(about["fixed"]), tuple(about["positions"])
    return Contents(about["model"], about["made"], fixed, positions, about["documents"], keys)


def restore_keys(settings: Settings, found: Contents) -> list[Path]:
    """Write the key files that are missing, return them. Raises UsageError where one is there with another content.

    Call it before the instance is opened, which would make new keys.
    """
    if found.model != settings.model:
        raise UsageError(f"the backup is of model {found.model}, the settings name {settings.model}: set model")
    layout = None if settings.dir is None else Layout(settings.dir)
    missing = []
    other = []
    for name, path in _key_files(settings, layout).items():
        if name not in found.keys:
            continue
        if not path.exists():
            missing.append((path, found.keys[name]))
        # Another public key than then is not a mistake: a root key has taken the place of the signing key.
        elif name != _PUBLIC and path.read_bytes() != found.keys[name]:
            other.append((name, path))
    # Nor is another signing key, where it was rotated after the backup.
    if other and all(name in _ROTATED for name, _ in other) and _listed(settings, layout):
        other = []
    for _, path in other:
        raise UsageError(f"{path} is not the key in the backup: move it away, or name the right file")
    for path, data in missing:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, data)
    return [path for path, _ in missing]


def _listed(settings: Settings, layout: Layout | None) -> bool:
    """Return whether the newest key list of the root key names the signing key that is there."""
    root = public_key(settings, layout)
    if root is None:
        return False
    parts = Parts(settings)
    with ExitStack() as stack:
        # Not entered: that would make the topics and the keys of a folder.
        stack.push(parts)
        keys = KeyRing(root, settings.model)
        LedgerReader(parts.log, settings.model, keys, tail=True).catch_up()
        return keys.keys is not None and parts.signing_key.public in keys.keys.trusted


def _key_files(settings: Settings, layout: Layout | None) -> dict[str, Path]:
    """Return the place of each key file."""
    named = {
        "signing.key": settings.signing_key,
        "noise.key": settings.noise_key,
        "receipt.key": settings.receipt_key,
        "suppression.key": settings.suppression_key,
        _PUBLIC: settings.public_key,
    }
    found = {name: path for name, path in named.items() if path is not None}
    if layout is not None:
        own = [layout.signing_key, layout.noise_key, layout.receipt_key, layout.public_key, layout.root_public_key]
        own.append(layout.suppression_key)
        found = {path.name: path for path in own} | found
    return found


def _present_keys(settings: Settings, layout: Layout | None) -> dict[str, Path]:
    """Return the key files that exist. Raises SettingsError where a secret is not set, cannot be read or is damaged."""
    for load in (signing_key, noise_key, receipt_secret):
        load(settings, layout)
    suppression = suppression_file(settings, layout)
    if suppression is not None:
        load_secret(suppression)
    files = _key_files(settings, layout)
    return {name: path for name, path in files.items() if path.exists()}


def restore(service: Service, file: IO[bytes], found: Contents, update: Callable[[int, int | None], None]) -> Restored:
    """Put a model's state into a Redis without one, then count the log from there to its end.

    No other process may work on the model. No scheduler leads until the log is counted, so no version is made of
    documents that were deleted after the backup. If it is killed anywhere, run it again: nobody leads before.

    found: the `contents` of the file.
    update: told how many records are counted, of how many.

    Raises UsageError or StateMismatch if state, settings or log do not fit; nothing is changed then.
    """
    _check(service, found)
    connection, model = service.connection, service.settings.model
    partitions = range(len(found.positions))
    hold_lease(connection, model, HOLDER)
    clear(connection, model, len(partitions))
    for name, value in read_archive(file):
        if name.startswith(_REDIS):
            put_key(connection, model, name.removeprefix(_REDIS), value)
    for partition in partitions:
        # The state may bring traces back of documents whose traces were gone.
        note_removed(connection, model, partition)
    ResidueState(connection, model).reset()
    # Opening removes documents whose deletes have left the log since the backup.
    ingests = [service.open_ingest(partition) for partition in partitions]
    records = count_to_the_end(ingests, update)
    release_lease(connection, model)
    return Restored(sum(ingest.state.meta.documents for ingest in ingests), records, found.made)


def _check(service: Service, found: Contents) -> None:
    """Raise where the backup does not fit Redis, the settings or the log."""
    settings, log = service.settings, service.log
    # A restore that was killed holds the lease: its rests are no state that anybody has worked on.
    known = recorded(service.connection, settings.model)
    if known is not None and leader(service.connection, settings.model) != HOLDER:
        raise UsageError(
            f"Redis already holds a state of {settings.model}: restore into an empty one, or run `streamtopic rebuild`"
        )
    fixed = service.fixed
    if found.fixed != (fixed.cap, fixed.partitions, fixed.partitioner, fixed.limits):
        raise StateMismatch(
            f"the backup was made with cap, partitions, partitioner and limits {found.fixed}: restore it with the same "
            "settings and program, or run `streamtopic rebuild`"
        )
    topic = service.names.documents
    if log.partitions(topic) != fixed.partitions:
        raise StateMismatch(f"topic {topic} has not {fixed.partitions} partitions: restore Kafka's topics first")
    for partition, offset in enumerate(found.positions):
        begin, end = log.begin(topic, partition), log.end(topic, partition)
        if not begin <= offset <= end:
            raise StateMismatch(
                f"partition {partition} of {topic} holds records {begin} to {end}, the backup goes on at {offset}: "
                "restore the topic first, or count its records anew with `streamtopic rebuild`"
            )
