"""Receive published versions: verified, in order, each once."""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from streamtopic.errors import InvalidRelease, UsageError
from streamtopic.release import Assembled, Assembler, Release, Removed, open_release
from streamtopic.signing import PublicKey
from streamtopic.streams import EventLog, KafkaOptions, TopicNames, open_log

__all__ = ["ModelSubscriber"]

# A log wakes a waiting subscriber; now and then it looks all the same.
_WAIT_SECONDS = 10.0

logger = logging.getLogger("streamtopic.client")


class ModelSubscriber:
    """Iterates over a model's releases in version order; a new one is given out as soon as it is published.

    Forged, damaged and half releases are never given out: they are logged, and counted in `refused`. A version that a
    later one withdraws is left out, unless `include_withdrawn`; one that was given out before refuses to serve.

    log: Kafka's servers (`host:port[,host:port]`), KafkaOptions with credentials, an EventLog, or the folder of one in
    files. public_key: as `PublicKey.load` takes it. progress: a file that
    remembers the last version that was dealt with, so that a restart goes on after it: a release counts as dealt with
    when the next is asked for, or at `close`. match_topics: number topics like those of the version given out before.
    idle_seconds: iteration ends after so long without a release (None: never). poll_seconds: between looks for a topic
    that is not there yet. clock, sleep: seconds that waiting goes by.

    Iterating and polling raise ComponentUnreachable where the log does not answer; the next call goes on.
    """

    def __init__(
        self,
        log: str | Path | KafkaOptions | EventLog,
        *,
        model: str,
        public_key: PublicKey | str | bytes | Path,
        progress: str | Path | None = None,
        include_withdrawn: bool = False,
        match_topics: bool = False,
        idle_seconds: float | None = None,
        poll_seconds: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._model = model
        self._topic = TopicNames(model).releases
        self._key = PublicKey.load(public_key)
        self._log, self._owned = open_log(log)
        self._progress = None if progress is None else Path(progress)
        self._include_withdrawn = include_withdrawn
        self._match_topics = match_topics
        self._idle_seconds, self._poll_seconds = idle_seconds, poll_seconds
        self._clock, self._sleep = clock, sleep
        self._assembler = Assembler()
        self._offset: int | None = None
        self._waiting: dict[int, Release] = {}
        self._digests: dict[int, bytes] = {}
        self._withdrawn: set[int] = set()
        self._latest: Release | None = None
        self._done = self._given = self._load()
        self.refused = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the last release was not dealt with: it comes again.
        self.close(finished=error is None)

    def __iter__(self) -> Iterator[Release]:
        """Releases as they come."""
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
        """Versions known to be withdrawn."""
        return frozenset(self._withdrawn)

    def poll(self) -> Release | None:
        """The next release if one is there, without waiting."""
        self._save(self._given)
        self._read()
        for version in sorted(self._waiting):
            release = self._waiting.pop(version)
            if version <= self._given or (version in self._withdrawn and not self._include_withdrawn):
                continue
            self._given = version
            if self._match_topics and self._latest is not None:
                release = release.matched(self._latest)
            self._latest = release
            return release
        return None

    def close(self, *, finished: bool = True) -> None:
        """Close the log if opened here; `finished`: the release given out last has been dealt with."""
        if finished:
            self._save(self._given)
        if self._owned:
            self._log.close()

    def _wait(self, seconds: float) -> None:
        if self._offset is None:
            self._sleep(min(seconds, self._poll_seconds))
        else:
            self._log.wait(self._topic, {0: self._offset}, seconds)

    def _read(self) -> None:
        """Take in the log up to its end: a withdrawal must be known before what it withdraws is given out."""
        if self._log.partitions(self._topic) == 0:
            return
        if self._offset is None:
            self._offset = self._log.begin(self._topic, 0)
        while records := self._log.read(self._topic, 0, self._offset):
            self._offset = records[-1].next_offset
            for record in records:
                match self._assembler.take(record):
                    case Assembled(version, data):
                        self._accept(version, data)
                    case Removed(version, retired=False):
                        self._withdrawn.add(version)

    def _accept(self, version: int, data: bytes) -> None:
        digest = hashlib.sha256(data).digest()
        if self._digests.get(version) == digest:
            return
        try:
            release = self._open(version, data)
        except InvalidRelease as error:
            self.refused += 1
            logger.warning("release %d of %s refused: %s", version, self._model, error)
            return
        self._digests[version] = digest
        self._withdrawn.update(release.envelope.withdrawn)
        if version > self._given:
            self._waiting[version] = replace(release, is_withdrawn=self._is_withdrawn)

    def _is_withdrawn(self, version: int) -> bool:
        return version in self._withdrawn and not self._include_withdrawn

    def _open(self, version: int, data: bytes) -> Release:
        release = open_release(data, self._key)
        envelope = release.envelope
        if (envelope.model, envelope.version) != (self._model, version):
            raise InvalidRelease(f"it says to be version {envelope.version} of {envelope.model}")
        if version in self._digests:
            raise InvalidRelease("another release with this version is signed as well")
        return release

    def _load(self) -> int:
        if self._progress is None or not self._progress.exists():
            return 0
        try:
            fields = json.loads(self._progress.read_text())
            if fields["model"] != self._model:
                raise UsageError(f"{self._progress} belongs to model {fields['model']}: give each model its own file")
            return int(fields["version"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{self._progress} holds no progress ({error}): remove it to start over") from error

    def _save(self, version: int) -> None:
        if self._progress is None or version == self._done:
            return
        written = self._progress.with_name(self._progress.name + ".new")
        written.write_text(json.dumps({"model": self._model, "version": version}))
        written.replace(self._progress)
        self._done = version
