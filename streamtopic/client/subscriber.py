"""Receiving published versions, verified, in order, each once; and the receipt of a deletion, by its request."""

import hashlib
import json
import logging
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from streamtopic.errors import StaleRelease, StateMismatch, UsageError
from streamtopic.signed import (
    Completion,
    KeyRing,
    Opened,
    PublicKey,
    Receipt,
    ReceiptReader,
    Refused,
    Release,
    ReleaseReader,
    Removed,
    Salt,
    Statement,
    SubjectReceipt,
    digest_of,
    follow_keys,
    plain_request_digest,
    request_digest,
)
from streamtopic.streams import EventLog, KafkaOptions, TopicNames, open_log
from streamtopic.streams.event_log import Closing

__all__ = ["Freshness", "ModelSubscriber", "Receipts"]


# A log wakes a waiting subscriber. It also looks by itself after so long, since a statement may have become old.
_WAIT_SECONDS = 10.0
# A statement is late once it is twice as old as the service promises.
_PATIENCE = 2

_NO_STATEMENT = (
    "its service has not made a statement yet, and programs before 0.2 make none: run `streamtopic publish` of this "
    "version, or leave `max_age` out"
)

logger = logging.getLogger("streamtopic.client")


@dataclass(frozen=True, slots=True)
class Freshness:
    """How sure it is that a subscriber has the newest version, as of its last look at the log.

    statement: the newest that the service has signed, None where there is none; a service of before 0.2 makes none.
    age: seconds since the statement was made, None without one.
    stale: why the newest version may be missing, None without a sign of that.
    """

    statement: Statement | None
    age: float | None
    stale: str | None

    @property
    def known(self) -> bool:
        """Whether the service has said which version is the newest."""
        return self.statement is not None


class ModelSubscriber:
    """Iterates over a model's releases in the order of versions, each as soon as it is published.

    Forged, damaged and incomplete releases are logged and counted in `refused`, and never given out. A version that a
    later version or a statement of the service has withdrawn is left out; if it was given out before, it refuses to
    serve.

    log: Kafka's servers (`host:port[,host:port]`), KafkaOptions with credentials, an EventLog, or the folder of a log
        in files.
    model: name of the model.
    public_key: as `PublicKey.load` takes it; with a root key, the newest key list names the keys that sign, also while
        the subscriber runs.
    progress: a file that remembers the last version that was dealt with, and the newest statement, so that a restart
        goes on there. A release is dealt with once the next one is asked for, or at `close`.
    include_withdrawn: whether withdrawn versions are given out, and go on serving.
    match_topics: whether topics get the numbers of similar ones of the version given out before.
    max_age: seconds. Without a statement that is younger, and the version that it names, StaleRelease is raised by
        iterating, by polling, and by releases in use. None: `freshness` tells, and a warning is logged once.
    idle_seconds: iteration ends after so long without a release; None for never.
    poll_seconds: time between looks for a topic that does not exist yet.
    clock, sleep: monotonic seconds, for waiting.
    now: seconds since 1970.

    Iterating and polling raise ComponentUnreachable where the log does not answer; the next call goes on. They raise
    UsageError where the progress cannot be written. A log that was made anew or set back is read from its beginning,
    as after a restart. Use a subscriber in one thread at a time. A coroutine polls by `asyncio.to_thread`.
    """

    def __init__(
        self,
        log: str | Path | KafkaOptions | EventLog,
        *,
        model: str,
        public_key: KeyRing | PublicKey | str | bytes | Path,
        progress: str | Path | None = None,
        include_withdrawn: bool = False,
        match_topics: bool = False,
        max_age: float | None = None,
        idle_seconds: float | None = None,
        poll_seconds: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        # Also for a number that is not one, which no age would be above.
        if max_age is not None and not max_age > 0:
            raise UsageError(f"max_age is {max_age}: give seconds above 0, or None")
        self._model = model
        self._topic = TopicNames(model).releases
        keys = KeyRing.load(public_key, model)
        self._log, self._owned = open_log(log)
        self._reader = ReleaseReader(self._log, model, keys)
        self._progress = None if progress is None else Path(progress)
        self._include_withdrawn = include_withdrawn
        self._match_topics = match_topics
        self._idle_seconds = idle_seconds
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._max_age = max_age
        self._waiting: dict[int, Release] = {}
        self._withdrawn: set[int] = set()
        self._latest: Release | None = None
        self._said = False
        self._remembered = 0
        self._given = self._load()
        # The content of the file by now, so that a poll without news writes nothing.
        self._done = (self._given, self._remembered)
        self.refused = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the last release was not dealt with, so it must come again.
        self.close(finished=error is None)

    def __iter__(self) -> Iterator[Release]:
        """Yield releases as they are published."""
        since = self._clock()
        while True:
            release = self.poll()
            if release is not None:
                yield release
                since = self._clock()
                continue
            left = _WAIT_SECONDS if self._idle_seconds is None else since + self._idle_seconds - self._clock()
            if left <= 0:
                return
            self._wait(min(left, _WAIT_SECONDS))

    @property
    def withdrawn(self) -> frozenset[int]:
        """The withdrawn versions, as far as they are known."""
        return frozenset(self._withdrawn)

    @property
    def skipped(self) -> int:
        """Number of records of the releases topic that were not part of a release; the log says why."""
        return self._reader.skipped

    @property
    def freshness(self) -> Freshness:
        """How sure it is that this subscriber has the newest version, as of the last look at the log."""
        statement = self._reader.statement
        age = None if statement is None else max(self._now() - statement.made / 1000, 0.0)
        return Freshness(statement, age, self._stale(statement, age))

    def poll(self) -> Release | None:
        """Return the next release, without waiting; None where there is no new one. Raises StaleRelease."""
        self._save(self._given)
        self._read()
        self._judge()
        for version in sorted(self._waiting):
            release = self._waiting.pop(version)
            # A restart reads the topic from its beginning, and so meets versions that were dealt with.
            if version <= self._given or release.withdrawn:
                continue
            self._given = version
            if self._match_topics and self._latest is not None:
                release = release.matched(self._latest)
            self._latest = release
            return release
        return None

    def close(self, *, finished: bool = True) -> None:
        """Close the log if this object opened it.

        finished: whether the release given out last was dealt with.
        """
        if finished:
            self._save(self._given)
        if self._owned:
            self._log.close()

    def _wait(self, seconds: float) -> None:
        if self._reader.offset is None:
            self._sleep(min(seconds, self._poll_seconds))
        else:
            self._log.wait(self._topic, {0: self._reader.offset}, seconds)

    def _read(self) -> None:
        """Read the releases topic to its end."""
        # To the end, before anything is given out: the last record may withdraw the first version.
        for found in self._news():
            match found:
                case Opened(release):
                    self._withdrawn.update(release.envelope.withdrawn)
                    if release.version > self._given:
                        # A release in use asks each time it serves, so that a later withdrawal reaches it.
                        left_out = partial(self._left_out, found.digest)
                        release = replace(release, is_withdrawn=left_out, why_stale=self._refused_as)
                        self._waiting[release.version] = release
                case Refused(version, error):
                    self.refused += 1
                    extra = {"event": "release_refused", "version": version}
                    logger.warning("release %d of %s refused: %s", version, self._model, error, extra=extra)
        if self._reader.statement is not None:
            self._withdrawn.update(self._reader.statement.withdrawn)

    def _news(self) -> Iterator[Opened | Refused | Removed]:
        """Yield what is new in the releases topic."""
        try:
            yield from self._reader.read()
        except StateMismatch as error:
            # As after a restart: no version comes again, and `freshness` tells what is missing.
            extra = {"event": "model_stale"}
            logger.warning("releases of %s are read from the beginning: %s", self._model, error, extra=extra)
            self._reader = self._reader.anew()
            yield from self._reader.read()

    def _judge(self) -> None:
        """Warn once that a model may be out of date. With `max_age`, raise StaleRelease."""
        stale = self.freshness.stale
        if stale is None:
            self._said = False
            return
        if self._max_age is not None and (self._waiting or self._latest is not None):
            raise StaleRelease(f"model {self._model}: {stale}")
        if not self._said:
            logger.warning("model %s may be out of date: %s", self._model, stale, extra={"event": "model_stale"})
            self._said = True

    def _stale(self, statement: Statement | None, age: float | None) -> str | None:
        """Return why the newest version may be missing, None without a sign of that."""
        sequence = 0 if statement is None else statement.sequence
        # In a log that was set back or shortened all signatures are still valid.
        if sequence < self._remembered:
            return (
                f"the log lacks statement {self._remembered}, which it had before, and has no later one: find out who "
                "may write to the releases topic, or whether it was restored"
            )
        if statement is None or age is None:
            return None if self._max_age is None else _NO_STATEMENT
        there = self._reader.digest(statement.newest) or ""
        if statement.newest not in self._withdrawn and there != statement.digest:
            return (
                f"version {statement.newest} is the newest and the log does not hold it: find out who may write to the "
                "releases topic, or have a new version made (`streamtopic retrain`)"
            )
        limit = _PATIENCE * statement.interval / 1000 if self._max_age is None else self._max_age
        if limit and age > limit:
            return (
                f"the last statement of its service is {age:,.0f} s old, more than {limit:,.0f}: start `streamtopic "
                "publish`, or check that this is the right log"
            )
        return None

    def _left_out(self, digest: str, version: int) -> bool:
        """Return whether a release must not be used: it was withdrawn, or signed with a key that was revoked since."""
        if digest in self._reader.discredited:
            return True
        return version in self._withdrawn and not self._include_withdrawn

    def _refused_as(self) -> str | None:
        return None if self._max_age is None else self.freshness.stale

    def _load(self) -> int:
        """Return the last version that was dealt with, 0 without one. Raises UsageError."""
        if self._progress is None or not self._progress.exists():
            return 0
        try:
            fields = json.loads(self._progress.read_text())
            if fields["model"] != self._model:
                raise UsageError(f"{self._progress} belongs to model {fields['model']}: give each model its own file")
            # Files of before 0.2 have no statement.
            self._remembered = int(fields.get("statement", 0))
            return int(fields["version"])
        except OSError as error:
            raise UsageError(f"cannot read {self._progress}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise UsageError(
                f"{self._progress} is not a file of progress ({error}): remove it to start over"
            ) from error

    def _save(self, version: int) -> None:
        statement = self._reader.statement
        self._remembered = max(self._remembered, 0 if statement is None else statement.sequence)
        done = (version, self._remembered)
        if self._progress is None or done == self._done:
            return
        # Written beside it and renamed: a file that is cut short would make a restart fail.
        written = self._progress.with_name(self._progress.name + ".new")
        content = json.dumps({"model": self._model, "version": version, "statement": self._remembered})
        try:
            written.write_text(content)
            written.replace(self._progress)
        except OSError as error:
            raise UsageError(f"cannot write {self._progress}: {error.strerror}") from None
        self._done = done


_WITHOUT_SALT = 2
"""Format of receipts whose request digests have no salt."""


class Receipts(Closing):
    """Reads a model's receipts topic and verifies each receipt. Other records are passed over and counted.

    log: Kafka's servers (`host:port[,host:port]`), KafkaOptions with credentials, an EventLog, or the folder of a log
        in files.
    model: name of the model.
    public_key: as `PublicKey.load` takes it; with a root key, the newest key list in the releases topic names the keys
        that sign.

    All methods raise ComponentUnreachable where the log does not answer. Use them in one thread at a time.
    """

    def __init__(
        self,
        log: str | Path | KafkaOptions | EventLog,
        *,
        model: str,
        public_key: KeyRing | PublicKey | str | bytes | Path,
    ) -> None:
        self._model = model
        # Refuses an unusable name now, not at the first look.
        TopicNames(model)
        self._key = KeyRing.load(public_key, model)
        self._log, self._owned = open_log(log)
        self._lists_end = 0
        self._begin()

    @property
    def skipped(self) -> int:
        """Number of records so far that are not receipts of the chain. Anybody may have written them."""
        return self._reader.skipped

    def __iter__(self) -> Iterator[Receipt]:
        """Yield all receipts of the topic, in the order of their chain, each once."""
        return ReceiptReader(self._log, self._model, self._key, learn=self._learn).read()

    def find(self, request: str, *, salt: Salt | None = None) -> list[Receipt]:
        """Return the receipts of deletions with this request id and salt, in their order.

        request: as `DocumentProducer.delete` returned it, with its salt; or any request id.
        salt: the salt, where `request` does not hold it. Without a salt only receipts of before 0.2 are found: later
            ones only the service can find.

        The list is empty until a version without the document is published. It may hold receipts of another producer
        who used the same request id; `Receipt.is_about` tells which one is yours.
        """
        known = getattr(request, "salt", None) if salt is None else salt
        found = self._lookup(plain_request_digest(request), lambda receipt: receipt.format == _WITHOUT_SALT)
        if known:
            found += self._lookup(request_digest(request, known), lambda receipt: receipt.is_of(request, known))
        return sorted(found, key=lambda receipt: receipt.sequence)

    def linked(self, request: str, keys: Mapping[str, bytes]) -> list[Receipt]:
        """Return the receipts of a request id without its salt; only the service itself can do this.

        keys: month to key, for the months whose keys are not destroyed.
        """
        if not keys:
            return []
        return [receipt for receipt in self if receipt.is_linked(request, keys)]

    def get(self, receipt_id: str) -> Receipt | None:
        """Return the receipt with this id, None without one."""
        found = self._lookup(receipt_id, lambda receipt: receipt.id == receipt_id)
        return found[0] if found else None

    def completion(self, receipt: Receipt) -> Completion | None:
        """Return the signed statement that no trace is left of the document of a receipt; None before it is made.

        receipt: of this topic.
        """
        self._read_on()
        return next((one for one in self._reader.completions if one.covers(receipt)), None)

    def covering(self, request: str, *, salt: Salt | None = None) -> SubjectReceipt | None:
        """Return the receipt that covers all documents of a subject, None before it is made.

        request: as `DocumentProducer.delete_subject` returned it, with its salt; or any request id.
        salt: the salt, where `request` does not hold it.
        """
        known = getattr(request, "salt", None) if salt is None else salt
        self._read_on()
        receipts = [receipt for receipt, _ in self._reader.covering.values()]
        return next((receipt for receipt in receipts if known and receipt.is_of(request, known)), None)

    def covering_linked(self, request: str, keys: Mapping[str, bytes]) -> SubjectReceipt | None:
        """Return the covering receipt of a request id without its salt; only the service itself can do this.

        keys: as of `linked`.
        """
        self._read_on()
        receipts = [receipt for receipt, _ in self._reader.covering.values()]
        return next((receipt for receipt in receipts if receipt.is_linked(request, keys)), None)

    def problem(self, covering: SubjectReceipt) -> str | None:
        """Return why the receipts in the topic are not those that a receipt covers, None where they are.

        covering: of this topic.
        """
        self._read_on()
        wanted = set(covering.sequences())
        digests = dict[int, str]()
        for link, record in self._reader.records():
            if link.sequence in wanted:
                digests[link.sequence] = digest_of(record.value or b"")
        return covering.problem(digests)

    def _lookup(self, name: str, wanted: Callable[[Receipt], bool]) -> list[Receipt]:
        """Return the receipts with this request digest or id that the test accepts."""
        self._read_on()
        # Only places are kept of receipts that were read; those that may be meant are read again.
        noted = [self._reader.at(offset) for offset in self._places.find(name)]
        found = {receipt.sequence: receipt for receipt in noted if receipt is not None}
        named = (receipt for receipt in found.values() if name in {receipt.request, receipt.id})
        return [receipt for receipt in named if wanted(receipt)]

    def _read_on(self) -> None:
        """Verify the records that are new in the topic, and note the places of receipts."""
        try:
            self._reader.catch_up()
        except StateMismatch:
            # The log was made anew or set back: what it holds now counts.
            self._begin()
            self._reader.catch_up()

    def _begin(self) -> None:
        """Begin at the beginning of the topic."""
        self._places = _Places()
        self._reader = ReceiptReader(self._log, self._model, self._key, note=self._places.note, learn=self._learn)

    def _learn(self) -> bool:
        """Read newer key lists; return whether there were any."""
        topic = TopicNames(self._model).releases
        end = self._log.end(topic, 0) if self._log.partitions(topic) else 0
        # Asked for every record with an unknown key: forged ones must not make it read the releases topic each time.
        if end == self._lists_end:
            return False
        self._lists_end = end
        return follow_keys(self._log, self._model, self._key)

    def close(self) -> None:
        """Close the log if this object opened it."""
        if self._owned:
            self._log.close()


class _Places:
    """The offsets of receipts, by request digest and by id."""

    def __init__(self) -> None:
        # 24 bytes for each receipt, since a topic may hold millions: eight of each name's digest, eight of the offset.
        self._names = array("Q")
        self._offsets = array("q")

    def note(self, receipt: Receipt, offset: int) -> None:
        self._names.extend((_short(receipt.request), _short(receipt.id)))
        self._offsets.append(offset)

    def find(self, name: str) -> list[int]:
        """Return offsets of receipts that may have this name, the oldest first."""
        # `frombuffer` refuses an empty buffer.
        if not self._names:
            return []
        found = np.flatnonzero(np.frombuffer(self._names, np.uint64) == _short(name))
        return [self._offsets[place // 2] for place in found]


def _short(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
