"""Delete a whole model: the end of its ledger first, then topics, Redis and at last the keys."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopic.errors import InvalidRelease, StateError, UsageError
from streamtopic.security.private_files import new_file
from streamtopic.service.instance import REDIS, signing_key
from streamtopic.signed import End, KeyRing, LedgerProof, SigningKey
from streamtopic.state.connection import ModelKeys
from streamtopic.state.deletion_requests import DeletionRequests, RequestState
from streamtopic.state.deletions import Forgets
from streamtopic.state.meta import stored_settings
from streamtopic.state.model_state import counted_documents, hold_lease, leader, remove_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamtopic.service.opened import Opened
    from streamtopic.service.publish.ledger_writer import LedgerWriter
    from streamtopic.settings import Settings

__all__ = ["RemovedModel", "end_in", "end_of", "only_keys_left", "remove", "remove_files"]

HOLDER = "streamtopic delete-model"


@dataclass(frozen=True, slots=True)
class RemovedModel:
    """A model that is gone from log and Redis.

    end: the last entry of its ledger.
    topics: names of the topics that were removed.
    redis_keys: number of keys that were removed from Redis.
    """

    end: End
    topics: tuple[str, ...]
    redis_keys: int


def end_of(service: Opened, *, keep_ledger: bool) -> End:
    """Return the last entry for a model as it is now. Raises UsageError if there is nothing to delete."""
    model, connection, ledger = service.settings.model, service.connection, service.ledger
    number, settings = stored_settings(connection, model)
    if number is None and not service.log.partitions(service.names.documents):
        raise UsageError(f"there is no model {model}: neither Redis nor the log has anything of it")
    ledger.catch_up()
    documents = waiting = 0
    for partition in range(settings.partitions if settings else 0):
        keys = ModelKeys(model).partition(partition)
        documents += counted_documents(connection, model, partition)
        # Deletions that have asked for a receipt and have none yet.
        waiting += sum(forget.wants_receipt for forget in Forgets(connection, keys).each())
    # Those that people have asked for in requests that wait or are paused; all others are in the log, and counted.
    sent = {RequestState.SENT, RequestState.COUNTED}
    requests = DeletionRequests(connection, model).open()
    waiting += sum(request.known for request in requests if request.state not in sent)
    return End(int(service.clock() * 1000), documents, ledger.ledger.newest, waiting, ledger_kept=keep_ledger)


def remove(service: Opened, path: Path, end: End, update: Callable[[int, int | None], None]) -> RemovedModel:
    """End the ledger, then remove topics and Redis's keys. It may be killed anywhere and repeated.

    path: file of the proof that the ledger has ended. One that is there already, of an attempt before, stays as it is.
    end: as of `end_of`. The entry of an attempt before stays, and counts.
    update: told how many keys of Redis are gone.

    Raises UsageError if another process works on the model, or if the file holds something else.
    """
    model, names = service.settings.model, service.names
    connection, ledger = service.connection, service.ledger
    key = signing_key(service.settings)
    # The lock on a folder says it for certain, and a lease may be left over there from the last command.
    service.refuse_others()
    if service.settings.dir is None and (found := _running(service)):
        raise UsageError(f"{'; '.join(found)}: stop every process of the service first")
    # Without an end, and gone with the model: no scheduler leads after a kill either.
    hold_lease(connection, model, HOLDER)
    if not path.exists():
        # It is for everybody to read. All that it is about is gone after this, so it must be on the disk before.
        with new_file(path, mode=0o644) as file:
            file.write(_ended(ledger, names.ledger, end).text.encode())
    written = _read(path, key, model)
    if ledger.ledger.size and ledger.ledger.end != written:
        raise UsageError(f"{path} is the end of an earlier model of this name: name a new file")
    if written.ledger_kept != end.ledger_kept:
        kept = "kept" if written.ledger_kept else "removed"
        raise UsageError(f"the ledger's end says that it is {kept}: repeat the command as it was")
    topics = [names.documents, names.requests, names.releases, names.rejected]
    if not written.ledger_kept:
        topics.append(names.ledger)
        # A repetition must not take the topic for one that has lost its records.
        ledger.index.clear()
    for topic in topics:
        service.log.remove(topic)
    return RemovedModel(written, tuple(topics), remove_model(connection, model, update))


def _running(service: Opened) -> list[str]:
    """Return a sentence for each process of a service that works on the model; [] if none does.

    A scheduler is seen by its lease, ingest processes by their consumer group.
    """
    found = []
    # That of a removal that was killed does not count.
    holder = leader(service.connection, service.settings.model)
    if holder not in {None, HOLDER}:
        found.append(f"a scheduler leads ({holder})")
    members = service.log.members(service.settings.consumer_group)
    if members:
        hosts = ", ".join(sorted(set(members)))
        found.append(f"{len(members)} ingest process(es) count ({hosts})")
    return found


def _ended(ledger: LedgerWriter, topic: str, end: End) -> LedgerProof:
    """Return the proof of the ledger's end, which is written unless an attempt before has written it."""
    if ledger.ledger.end is None and not ledger.append([end]):
        raise StateError(f"another process has written to {topic}: stop every process of the service, then repeat")
    # Nothing is written to a ledger after its end.
    return ledger.proof(ledger.ledger.size - 1)


def end_in(path: Path, keys: KeyRing) -> tuple[LedgerProof, End]:
    """Return the proof in a file, and the end of a ledger that it proves. Raises InvalidRelease for any other file."""
    proof = LedgerProof.parse(path.read_text(encoding="utf-8", errors="replace"))
    entry = proof.verify(keys).entry
    if not isinstance(entry, End):
        raise InvalidRelease("it proves another entry of a ledger, and not its end")
    return proof, entry


def _read(path: Path, key: SigningKey, model: str) -> End:
    try:
        return end_in(path, KeyRing(key.public, model))[1]
    except InvalidRelease as error:
        raise UsageError(f"{path} exists and is not the end of this model ({error}): name a new file") from None


def only_keys_left(settings: Settings, path: Path) -> bool:
    """Return whether an attempt before has come so far that only files are left to remove.

    The signing key goes last. So if a secret is missing, and this key has signed the proof, everything before the keys
    is gone.
    """
    files = _secret_files(settings)
    if not files or not path.exists():
        return False
    *secrets, signing = files
    if not signing.exists() or all(secret.exists() for secret in secrets):
        return False
    _read(path, SigningKey.load(signing), settings.model)
    return True


def remove_files(settings: Settings, *, keep_keys: bool) -> list[Path]:
    """Remove Redis's own data of an instance in a folder, then the secret keys; return the paths that were removed.

    Redis must have stopped. It may be repeated.
    """
    removed = []
    # Its append-only file still has the documents that were unlinked.
    if settings.dir is not None and settings.redis_url is None and (settings.dir / REDIS).exists():
        shutil.rmtree(settings.dir / REDIS)
        removed.append(settings.dir / REDIS)
    for path in () if keep_keys else _secret_files(settings):
        if path.exists():
            path.unlink()
            removed.append(path)
    return removed


def _secret_files(settings: Settings) -> list[Path]:
    """Return the files of the secret keys, the signing key last."""
    folder = settings.key_folder
    if folder is None:
        return []
    # The last are keys that `streamtopic keys rotate` has put aside.
    others = [*folder.glob("suppression.key"), *sorted(folder.glob("signing-*.key"))]
    return [folder / "receipt.key", folder / "noise.key", *others, folder / "signing.key"]
