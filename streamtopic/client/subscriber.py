"""Receiving published versions, verified, in order, each once."""

import logging
import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from streamtopic.errors import InvalidRelease, StaleRelease, StateMismatch, UsageError
from streamtopic.signed import (
    KeyRing,
    Ledger,
    LedgerProof,
    LedgerReader,
    PublicKey,
    Refused,
    Release,
    ReleaseReader,
    Runs,
)
from streamtopic.signed.canonical import Whole, load, save
from streamtopic.streams import EventLog, KafkaOptions, TopicNames, open_log

__all__ = ["ModelSubscriber"]


# A log wakes a waiting subscriber. It also looks by itself after so long, since the last word of its service may have
# become old.
_WAIT_SECONDS = 10.0
# A topic that does not exist yet wakes nobody.
_LOOK_SECONDS = 0.5

logger = logging.getLogger("streamtopic.client")


@dataclass(frozen=True, slots=True)
class _Progress:
    """What a file of progress holds.

    version: the last one that was dealt with.
    size: the largest number of entries that the ledger ever had.
    offset: of the ledger's topic, at which to go on with the ledger of this dump.
    """

    model: str
    version: Whole
    size: Whole
    offset: Whole
    ledger: str


class ModelSubscriber:
    """Iterates over a model's releases in the order of versions, each as soon as it is published.

    A release is given out if a proof leads from it to a checkpoint of the model's ledger. Forged, damaged and
    incomplete releases are logged and counted in `refused`. A version that the ledger has withdrawn is left out; if it
    was given out before, it refuses to serve.

    log: Kafka's servers (`host:port[,host:port]`), KafkaOptions with credentials, an EventLog, or the folder of a log
        in files.
    model: name of the model.
    public_key: as `PublicKey.load` takes it: the ledger's key, or the root key, with which the newest key list in the
        ledger names the keys that sign, also while the subscriber runs.
    progress: a file that remembers the last version that was dealt with, and the ledger, so that a restart goes on
        there and notices a ledger that has lost entries. A release is dealt with once the next one is asked for, or at
        `close`.
    max_age: seconds. Without a word of the service that is younger, and the version that it calls the newest,
        StaleRelease is raised by iterating, by polling, and by releases in use. None: `stale` tells, and a warning is
        logged once.
    idle_seconds: iteration ends after so long without a release; None for never.
    clock, sleep: monotonic seconds, for waiting.
    now: seconds since 1970.

    Iterating and polling raise ComponentUnreachable if the log does not answer; the next call goes on. They raise
    UsageError if the progress cannot be written. A topic that was made again or set back is read again, as after a
    restart. Use a subscriber in one thread at a time. A coroutine polls by `asyncio.to_thread`.
    """

    def __init__(
        self,
        log: str | Path | KafkaOptions | EventLog,
        *,
        model: str,
        public_key: KeyRing | PublicKey | str | Path,
        progress: str | Path | None = None,
        max_age: float | None = None,
        idle_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        # Also for a number that is not one, which no age would be above.
        if max_age is not None and not max_age > 0:
            raise UsageError(f"max_age is {max_age}: give seconds above 0, or None")
        self._model = model
        self._topic = TopicNames(model).releases
        self._keys = KeyRing.load(public_key, model)
        self._progress = None if progress is None else Path(progress)
        self._max_age = max_age
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._waiting: dict[int, Release] = {}
        self._withdrawn = Runs()
        self._said = False
        self.refused = 0
        self._given = 0
        # The largest number of entries that the ledger ever had.
        self._remembered = 0
        self._saved: _Progress | None = None
        begin = ("", None) if self._progress is None else self._load(self._progress)
        self._log, self._owned = open_log(log)
        self._begin(*begin)

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
    def withdrawn(self) -> AbstractSet[int]:
        """The withdrawn versions, as far as they are known."""
        return self._withdrawn | self._ledger.ledger.withdrawn

    @property
    def skipped(self) -> int:
        """Number of records of the releases topic that were not part of a release; the log says why."""
        return self._releases.skipped

    @property
    def stale(self) -> str | None:
        """Why the newest version may be missing, as of the last look at the log; None without a sign of that."""
        ledger = self._ledger.ledger
        return ledger.stale(self._now(), self._max_age, self._releases.digest, self._remembered)

    def poll(self) -> Release | None:
        """Return the next release, without waiting; None if there is no new one. Raises StaleRelease."""
        self._save()
        self._read()
        self._judge()
        for version in sorted(self._waiting):
            release = self._waiting.pop(version)
            if not self._left_out(release):
                self._given = version
                return release
        return None

    def close(self, *, finished: bool = True) -> None:
        """Close the log if this object opened it.

        finished: whether the release given out last was dealt with.
        """
        if finished:
            self._save()
        if self._owned:
            self._log.close()

    def _wait(self, seconds: float) -> None:
        # Whatever the ledger says of a version is followed by a record of its release: its chunks, or their tombstones.
        if self._releases.offset is None:
            self._sleep(min(seconds, _LOOK_SECONDS))
        else:
            self._log.wait(self._topic, {0: self._releases.offset}, seconds)

    def _read(self) -> None:
        """Read the ledger and the releases to their ends."""
        try:
            self._read_on()
        except StateMismatch as problem:
            # As after a restart: what was withdrawn stays so, and `stale` tells what is missing.
            self._warn("the log of %s is read again: %s", problem)
            self._withdrawn |= self._ledger.ledger.withdrawn
            self._begin()
            self._read_on()

    def _read_on(self) -> None:
        size, gaps = self._ledger.ledger.size, self._ledger.ledger.gaps
        self._ledger.catch_up()
        ledger = self._releases.ledger = self._ledger.ledger
        self._remembered = max(self._remembered, ledger.size)
        # What is before the first page was left out on purpose.
        if size and ledger.gaps != gaps:
            lost = ", ".join(ledger.missing)
            self._warn("the ledger of %s has lost entries, find out who may write to its topic: %s", lost)
        # To the end, before anything is given out: the last record may withdraw the first version.
        for found in self._releases.read(self._log):
            match found:
                # A restart reads the releases from their beginning, and so meets versions that were dealt with.
                case Release(envelope=facts) if facts.version > self._given:
                    # In use it asks each time that it serves, so that a later withdrawal reaches it.
                    self._waiting[facts.version] = replace(found, check=self._check)
                case Refused(version, error):
                    self.refused += 1
                    extra = {"event": "release_refused", "version": version}
                    logger.warning("release %d of %s refused: %s", version, self._model, error, extra=extra)

    def _warn(self, text: str, reason: object) -> None:
        logger.warning(text, self._model, reason, extra={"event": "model_stale"})

    def _judge(self) -> None:
        """Warn once that a model may be out of date. With `max_age`, raise StaleRelease."""
        stale = self.stale
        if stale is None:
            self._said = False
            return
        if self._max_age is not None and (self._waiting or self._given):
            raise StaleRelease(f"model {self._model}: {stale}")
        if not self._said:
            self._warn("model %s may be out of date: %s", stale)
            self._said = True

    def _left_out(self, release: Release) -> bool:
        """Return whether a release must not be used: it was withdrawn, or signed with a key that was revoked since."""
        index = LedgerProof.parse(release.proof).index
        return self._ledger.ledger.is_void(index) or release.version in self.withdrawn

    def _check(self, release: Release) -> None:
        """Raise InvalidRelease if a release must not be used, StaleRelease if it may not be the newest any more."""
        if self._left_out(release):
            raise InvalidRelease(
                f"release {release.version} is withdrawn: it holds documents that were deleted since; take a later one"
            )
        if self._max_age is not None and (stale := self.stale) is not None:
            raise StaleRelease(f"release {release.version} may not be the newest: {stale}")

    def _begin(self, dump: str = "", offset: int | None = None) -> None:
        """Begin with the last records of the ledger, or after a dump of it, and with the first release."""
        self._ledger = LedgerReader(self._log, self._model, self._keys, tail=True, dump=dump, offset=offset)
        self._releases = ReleaseReader(self._ledger.ledger)

    def _load(self, path: Path) -> tuple[str, int | None]:
        """Take up the progress in a file; return the dump of the ledger and the offset after it. Raises UsageError."""
        if not path.exists():
            return "", None
        found = self._saved = load(_Progress, path, "file of progress")
        if found.model != self._model:
            raise UsageError(f"{path} belongs to model {found.model}: give each model its own file")
        try:
            Ledger.restore(found.ledger, replace(self._keys))
        except InvalidRelease as error:
            raise UsageError(f"{path} is not a file of progress ({error}): remove it to start over") from error
        self._given, self._remembered = found.version, found.size
        return found.ledger, found.offset

    def _save(self) -> None:
        ledger = self._ledger
        progress = _Progress(self._model, self._given, self._remembered, ledger.resume, ledger.ledger.dump())
        # A poll without news writes nothing.
        if self._progress is not None and progress != self._saved:
            save(progress, self._progress)
            self._saved = progress
