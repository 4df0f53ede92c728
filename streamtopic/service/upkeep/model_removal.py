"""Delete a whole model: a last signed statement first, then topics, Redis and at last the keys."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.security.private_files import new_file
from streamtopic.service.instance import Layout, suppression_file
from streamtopic.service.processes import running
from streamtopic.service.publish.published import Published
from streamtopic.signed import (
    ModelDeletion,
    ReceiptReader,
    SigningKey,
    deletion_line,
    deletion_message,
    open_deletion_line,
    seal_deletion,
)
from streamtopic.state.deletion_requests import DeletionRequests, RequestState
from streamtopic.state.deletions import Forgets
from streamtopic.state.dumped_keys import hold_lease
from streamtopic.state.redis_keys import ModelKeys
from streamtopic.state.removal import counted_documents, recorded, remove_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamtopic.service.app import Service
    from streamtopic.settings import Settings

__all__ = ["RemovedModel", "facts_of", "only_keys_left", "remove", "remove_files"]

HOLDER = "streamtopic delete-model"


@dataclass(frozen=True, slots=True)
class RemovedModel:
    """A model that is gone from log and Redis.

    statement: the last statement.
    topics: names of the topics that were removed.
    redis_keys: number of keys that were removed from Redis.
    """

    statement: ModelDeletion
    topics: tuple[str, ...]
    redis_keys: int


def facts_of(service: Service, *, keep_receipts: bool) -> ModelDeletion:
    """Return the statement of a model as it is now. Raises UsageError where there is nothing to delete."""
    settings, log, names = service.settings, service.log, service.names
    known = recorded(service.connection, settings.model)
    if known is None and not log.partitions(names.documents):
        raise UsageError(f"there is no model {settings.model}: neither Redis nor the log has anything of it")
    published = Published(log, settings.model, service.keys)
    if log.partitions(names.releases):
        published.refresh()
    newest = published.versions[-1] if published.versions else None
    reader = ReceiptReader(log, settings.model, service.keys)
    reader.catch_up()
    head = reader.chain.head
    documents = waiting = 0
    for partition in range(known.partitions if known else 0):
        keys = ModelKeys(settings.model).partition(partition)
        documents += counted_documents(service.connection, settings.model, partition)
        waiting += _unanswered(Forgets(service.connection, keys))
    waiting += _not_sent(DeletionRequests(service.connection, settings.model))
    return ModelDeletion(
        model=settings.model,
        made=int(service.clock() * 1000),
        documents=documents,
        version=newest.envelope.version if newest else 0,
        digest=newest.sealed if newest else "",
        receipts=head.sequence,
        head=head.digest,
        waiting=waiting,
        receipts_kept=keep_receipts,
    )


def _unanswered(forgets: Forgets) -> int:
    """Return how many deletions of a partition have asked for a receipt and have none yet."""
    waiting = at = 0
    while page := forgets.read(at):
        waiting += sum(forget.wants_receipt for forget in page)
        at = page[-1].offset + 1
    return waiting


def _not_sent(requests: DeletionRequests) -> int:
    """Return how many deletions people have asked for in requests that wait or are paused: they are not in the log."""
    # Those of a request that was sent are in the log, and were counted there.
    return sum(request.known for request in requests.open() if request.state is not RequestState.SENT)


def remove(
    service: Service, path: Path, deletion: ModelDeletion, update: Callable[[int, int | None], None]
) -> RemovedModel:
    """Write the statement, then remove topics and Redis's keys. It may be killed anywhere and repeated.

    path: file of the statement. One that is there already, of an attempt before, stays as it is and counts.
    deletion: the `facts_of` the model.
    update: told how many keys of Redis are gone.

    Raises UsageError where a process works on the model, or the file holds something else.
    """
    found = running(service, own=HOLDER)
    if found:
        raise UsageError(f"{'; '.join(found)}: stop every process of the service first")
    connection, model, log = service.connection, service.settings.model, service.log
    # Without an end, and gone with the model: no scheduler leads after a kill either.
    hold_lease(connection, model, HOLDER)
    statement, data = _stated(path, deletion, service.signing_key)
    names = service.names
    topics = [names.documents, names.releases, names.rejected]
    if statement.receipts_kept:
        message = deletion_message(statement, data)
        # A repetition writes the same bytes again: readers pass over both.
        if log.partitions(names.receipts):
            log.append_many(names.receipts, [message])
    else:
        topics.append(names.receipts)
    for topic in topics:
        log.remove(topic)
    return RemovedModel(statement, tuple(topics), remove_model(connection, model, update))


def _stated(path: Path, deletion: ModelDeletion, key: SigningKey) -> tuple[ModelDeletion, bytes]:
    """Return the statement in the file with its signed bytes; a file that is not there is written."""
    if not path.exists():
        line = deletion_line(deletion, seal_deletion(deletion, key))
        # It is for everybody to read. All that it is about is gone after this, so it must be on the disk before.
        with new_file(path, mode=0o644) as file:
            file.write(f"{line}\n".encode("ascii"))
    statement = _read(path, key, deletion.model)
    if statement.receipts_kept != deletion.receipts_kept:
        kept = "kept" if statement.receipts_kept else "removed"
        raise UsageError(f"{path} says that receipts are {kept}: repeat the command as it was")
    # Equal statements have equal bytes.
    return statement, seal_deletion(statement, key)


def _read(path: Path, key: SigningKey, model: str) -> ModelDeletion:
    try:
        statement = open_deletion_line(path.read_text(encoding="utf-8"), key.public)
    except (InvalidRelease, UnicodeDecodeError) as error:
        raise UsageError(f"{path} exists and is not the statement of this model ({error}): name a new file") from None
    if statement.model != model:
        raise UsageError(f"{path} is the statement of model {statement.model}: name a new file")
    return statement


def only_keys_left(settings: Settings, path: Path) -> bool:
    """Return whether an attempt before has come so far that only files are left to remove.

    The keys go in an order that keeps the signing key to the end: a secret that is missing beside a statement that
    this key has signed says that everything before the keys is gone.
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
    layout = None if settings.dir is None else Layout(settings.dir)
    # Its append-only file still has the documents that were unlinked.
    if layout is not None and settings.redis_url is None and layout.redis.exists():
        shutil.rmtree(layout.redis)
        removed.append(layout.redis)
    for path in () if keep_keys else _secret_files(settings):
        if path.exists():
            path.unlink()
            removed.append(path)
    return removed


def _secret_files(settings: Settings) -> list[Path]:
    """Return the files of the secret keys, the signing key last."""
    layout = None if settings.dir is None else Layout(settings.dir)
    named = [settings.receipt_key, settings.noise_key, settings.signing_key]
    own = [None] * 3 if layout is None else [layout.receipt_key, layout.noise_key, layout.signing_key]
    *secrets, signing = (path or other for path, other in zip(named, own, strict=True))
    suppression = suppression_file(settings, layout)
    if suppression is not None:
        secrets.append(suppression)
    # Keys that `streamtopic keys rotate` has put aside.
    replaced = [] if layout is None else sorted(layout.signing_key.parent.glob("signing-*.pem"))
    return [path for path in (*secrets, *replaced, signing) if path is not None]
