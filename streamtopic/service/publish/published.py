"""Read the releases topic back, and show versions, releases and receipts as JSON."""

import logging
import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from streamtopic.client import ModelSubscriber
from streamtopic.errors import CheckFailed, UsageError
from streamtopic.signed import Envelope, KeyRing, Opened, PublicKey, Receipt, Refused, Release, ReleaseReader, Statement
from streamtopic.state import ModelState
from streamtopic.streams import EventLog

__all__ = [
    "Published",
    "PublishedVersion",
    "finite",
    "heads_of",
    "quality_of",
    "read_all_releases",
    "read_earlier",
    "read_release",
    "receipt_fields",
    "topics_of",
    "versions_of",
]

logger = logging.getLogger(__name__)

# A page follows topics over so many versions: more lines than these are not read, and each version is held in memory.
_MOST_EARLIER = 12


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """A version in the log.

    envelope: the signed facts about it.
    chunks: number of records that hold its bytes.
    digest: the name of the version in the next version and in receipts.
    sealed: SHA-256 of its sealed bytes, which statements name.
    """

    envelope: Envelope
    chunks: int
    digest: str = ""
    sealed: str = ""


class Published:
    """The verified versions in the releases topic. Each is read once and then kept in memory.

    Versions that were withdrawn or retired are read as well, as long as the log has their chunks.

    rivals: releases under the number of an earlier, different release. A publisher writes a rival if Redis is set back
        while the publisher holds a staged version, and goes on later. Subscribers refuse rivals.
    """

    def __init__(self, log: EventLog, model: str, public_key: KeyRing | PublicKey) -> None:
        self._model = model
        self._reader = ReleaseReader(log, model, KeyRing.load(public_key, model))
        self._versions: dict[int, PublishedVersion] = {}
        self.rivals: list[Envelope] = []

    @property
    def versions(self) -> list[PublishedVersion]:
        """The versions that were read, oldest first."""
        return [self._versions[version] for version in sorted(self._versions)]

    @property
    def envelopes(self) -> list[Envelope]:
        """The envelopes of the versions, oldest first."""
        return [version.envelope for version in self.versions]

    @property
    def statement(self) -> Statement | None:
        """The statement with the highest number, None before the first."""
        return self._reader.statement

    @property
    def last_statement(self) -> int:
        """The number of the last statement in the log, 0 before the first. Compaction keeps this statement."""
        return self._reader.last

    @property
    def newest(self) -> int:
        """The number of the newest version, 0 before the first."""
        return max(self._versions, default=0)

    def digest(self, version: int) -> str:
        """Return the digest of a version, "" where it was not read."""
        found = self._versions.get(version)
        return found.digest if found else ""

    def refresh(self) -> None:
        """Read all releases that were published since the last call. Raises ComponentUnreachable."""
        for found in self._reader.read():
            match found:
                case Opened(release, _, chunks):
                    version = PublishedVersion(release.envelope, chunks, release.digest, found.digest)
                    # A version that was read stays, also where the key that signed it was revoked since.
                    self._versions.setdefault(release.version, version)
                case Refused(version=number, reason=reason, rival=None):
                    extra = {"event": "release_foreign", "version": number}
                    logger.warning(
                        "release %d of %s in the log does not verify: %s", number, self._model, reason, extra=extra
                    )
                case Refused(rival=rival) if rival is not None and rival.envelope not in self.rivals:
                    # The same release may stand in the log twice, as after a publisher that was killed.
                    if rival.envelope != self._versions[rival.version].envelope:
                        self.rivals.append(rival.envelope)


def read_all_releases(log: EventLog, model: str, keys: KeyRing) -> Iterator[Release]:
    """Yield every published version, verified, withdrawn versions as well."""
    with ModelSubscriber(log, model=model, public_key=keys, include_withdrawn=True, idle_seconds=0) as subscriber:
        while (release := subscriber.poll()) is not None:
            yield release


def read_release(log: EventLog, state: ModelState, keys: KeyRing, version: int | None) -> Release:
    """Return a published version, the newest for None.

    Raises UsageError where it does not exist or is withdrawn, CheckFailed where it does not verify.
    """
    # Redis knows a withdrawal before the log does: the version that withdraws may still wait in the outbox.
    withdrawn = state.withdrawn()
    found = None
    for release in read_all_releases(log, state.model, keys):
        if version in (None, release.version):
            found = release
    if found is None:
        recorded = {number for number, _ in state.releases()}
        if version in recorded:
            told = f"version {version} in the log is not signed with this instance's key"
            raise CheckFailed(f"{told}: compare `public_key` with the key of the service")
        name = "no version" if version is None else f"no version {version}"
        raise UsageError(
            f"there is {name}: `streamtopic versions` lists them, `streamtopic status` shows the next step"
        )
    if found.version in withdrawn:
        raise UsageError(f"version {version} is withdrawn: it holds documents deleted since; take a later one")
    return found


def read_earlier(
    log: EventLog, state: ModelState, keys: KeyRing, version: int
) -> tuple[tuple[Release, ...], tuple[int, ...]]:
    """Return the newest releases before a version that still stand, oldest first, and the numbers of withdrawn ones."""
    # A withdrawn version stays readable until the log is compacted. But words that it has and a later version has not
    # are those of forgotten documents, so a page has its number alone.
    withdrawn = {number for number in state.withdrawn() if number < version}
    standing: deque[Release] = deque(maxlen=_MOST_EARLIER)
    for earlier in read_all_releases(log, state.model, keys):
        if earlier.version < version and earlier.version not in withdrawn:
            standing.append(earlier)
    return tuple(standing), tuple(sorted(withdrawn))


def _version_fields(version: int, record: Mapping[str, Any], *, withdrawn: bool) -> dict[str, Any]:
    """Return a version as `versions --json` shows it.

    anchors_verified: whether an update has the anchors that the remaining documents decide. It is False for a retrain,
        which chooses its own anchors.
    """
    # Only a service with tasks records heads.
    heads = dict(record.get("heads", {}))
    unfitted = dict(record.get("unfitted", {}))
    fields = {
        "version": version,
        "kind": record["kind"],
        "documents": record["documents"],
        "forgotten": record["forget_set"],
        "epsilon": record["epsilon"],
        "delta": record["delta"],
        "sigma": record["sigma"],
        **_guarantee(record),
        "certificate": record["certificate"],
        "anchors_verified": record["kind"] == "unlearn",
        "seconds": round(record["seconds"], 4),
        "reason": record["reason"],
        "base": record["base"],
        "capacity": record["capacity"],
        "cumulative_epsilon": record["cumulative_epsilon"],
        "heads": heads,
        "unfitted": unfitted,
        "withdrawn": withdrawn,
        "created": record["created"],
    }
    return finite(fields)


def versions_of(state: ModelState) -> list[dict[str, Any]]:
    """Return every version in Redis as `versions --json` shows it, oldest first."""
    releases = state.releases()
    withdrawn = state.withdrawn(releases)
    return [_version_fields(version, record, withdrawn=version in withdrawn) for version, record in releases]


def _guarantee(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the proof that the noise rests on. covered: None where the proof has no conditions."""
    # An older program recorded none of these.
    return {
        "guarantee": record.get("guarantee", "certified"),
        "ratio": record.get("ratio", 0.0),
        "covered": record.get("covered"),
    }


def topics_of(release: Release, top: int) -> list[dict[str, Any]]:
    """Return a release's topics as `topics --json` shows them. top: number of words of each."""
    topics = release.topics(top)
    return [{"topic": topic.topic, "share": round(topic.share, 6), "words": list(topic.words)} for topic in topics]


def heads_of(release: Release, top: int) -> dict[str, Any]:
    """Return a release's heads by task, as `topics --json` shows them. top: number of words for each class."""
    found = {}
    for task in release.heads:
        head = release.head(task)
        topics = list(head.topics)
        classes = release.class_words(task, top)
        words = {name: list(some) for name, some in classes.items()}
        found[task] = {"topics": topics, "documents": head.documents, "classes": words}
    return found


def quality_of(release: Release) -> dict[str, float | None]:
    """Return NPMI and diversity of a release's top words, None for a figure that it does not have."""
    return {name: release.quality.get(name) for name in ("npmi", "diversity")}


def receipt_fields(receipt: Receipt) -> dict[str, Any]:
    """Return a receipt as JSON shows it."""
    return finite({"id": receipt.id, **asdict(receipt)})


def finite(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with None for infinities, which JSON does not have."""
    infinite = math.inf, -math.inf
    return {name: None if value in infinite else value for name, value in fields.items()}
