"""What has been published: the releases topic as its own service reads it back."""

import logging
from dataclasses import dataclass

from streamtopic.errors import InvalidRelease
from streamtopic.release import Assembled, Assembler, Envelope, open_release
from streamtopic.signing import PublicKey
from streamtopic.streams import EventLog, TopicNames

__all__ = ["Published", "PublishedVersion"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A version in the log: its envelope, and over how many records it is spread."""

    envelope: Envelope
    chunks: int


class Published:
    """The versions in the releases topic, verified; each is read once.

    Versions that were withdrawn or retired are here as long as the log has their chunks, and stay once they were read.
    rivals: releases under the number of an earlier, different one. A publisher writes one if Redis is set back while it
    holds a staged version in its hands, and goes on later; subscribers refuse them.
    """

    def __init__(self, log: EventLog, model: str, public_key: PublicKey) -> None:
        self._log = log
        self._model = model
        self._topic = TopicNames(model).releases
        self._key = public_key
        self._assembler = Assembler()
        self._offset: int | None = None
        self._versions: dict[int, PublishedVersion] = {}
        self.rivals: list[Envelope] = []

    @property
    def versions(self) -> list[PublishedVersion]:
        """Return those that were read, oldest first."""
        return [self._versions[version] for version in sorted(self._versions)]

    @property
    def envelopes(self) -> list[Envelope]:
        """Return their envelopes, oldest first."""
        return [version.envelope for version in self.versions]

    @property
    def newest(self) -> int:
        """Return the number of the newest, 0 before the first."""
        return max(self._versions, default=0)

    def refresh(self) -> None:
        """Read what has been published since. Raises ComponentUnreachable."""
        if self._offset is None:
            self._offset = self._log.begin(self._topic, 0)
        while records := self._log.read(self._topic, 0, self._offset):
            for record in records:
                whole = self._assembler.take(record)
                if isinstance(whole, Assembled):
                    self._keep(whole, int(record.header("chunks") or b"1"))
            self._offset = records[-1].next_offset

    def _keep(self, whole: Assembled, chunks: int) -> None:
        try:
            envelope = open_release(whole.data, self._key).envelope
        except InvalidRelease as error:
            logger.warning("release %d of %s in the log is not ours: %s", whole.version, self._model, error)
            return
        # The first release of a number is the one that subscribers hold.
        if (envelope.model, envelope.version) == (self._model, whole.version):
            first = self._versions.setdefault(whole.version, PublishedVersion(envelope, chunks))
            if envelope not in (first.envelope, *self.rivals):
                self.rivals.append(envelope)
