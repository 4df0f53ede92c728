"""Where a partition stands: positions, epochs, versions and counters, as one Redis hash."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from streamtopic.errors import StateCorrupt, StateMismatch

__all__ = ["SCHEMA", "ManifestEntry", "Meta"]

SCHEMA = 2
"""Layout version of everything under a partition's tag."""


@dataclass(frozen=True, slots=True)
class Meta:
    """A partition's meta hash.

    partitions, cap: settings of the model. next_offset: the first record not yet counted. version: of the manifest.
    commit: id of the last change, by which this very history is known. fence: token of the newest writer.
    time_ms: newest time of a counted record, 0 before the first; moved_ms: time of the last commit, by Redis's clock.
    next_word: first id never given. words: of live documents; 0 until the first commit by this release.
    live, counted: documents per epoch.
    totals: events by outcome since the state was created. cuts: offsets at which the epochs after `folded` begin.
    origins: partition to the first of its offsets from which no record was moved here yet.
    """

    partitions: int
    cap: int
    next_offset: int
    version: int
    commit: str
    fence: int
    time_ms: int
    moved_ms: int
    folded: int
    cuts: tuple[int, ...]
    next_word: int
    words: int
    live: Mapping[int, int]
    counted: Mapping[int, int]
    totals: Mapping[str, int]
    origins: Mapping[int, int]

    @classmethod
    def parse(cls, fields: Mapping[bytes, bytes]) -> "Meta":
        """Read the hash. Raises StateMismatch for another schema and StateCorrupt for a hash that is none."""
        text = {key.decode(): value.decode("ascii", "replace") for key, value in fields.items()}
        if text.get("schema") != str(SCHEMA):
            raise StateMismatch(
                f"the state in Redis has layout {text.get('schema')}, this program reads {SCHEMA}: use the version "
                "that wrote it, or rebuild it from the log (`streamtopic rebuild`)"
            )
        try:
            return cls(
                partitions=int(text["partitions"]),
                cap=int(text["cap"]),
                next_offset=int(text["next"]),
                version=int(text["version"]),
                commit=text["commit"],
                fence=int(text["fence"]),
                time_ms=int(text["time"]),
                moved_ms=int(text["moved"]),
                folded=int(text["folded"]),
                cuts=tuple(int(cut) for cut in text["cuts"].split(",") if cut),
                next_word=int(text["next_word"]),
                words=int(text.get("words", 0)),
                live={int(epoch): number for epoch, number in _counters(text, "live:").items()},
                counted={int(epoch): number for epoch, number in _counters(text, "counted:").items()},
                totals=_counters(text, "total:"),
                origins={int(source): offset for source, offset in _counters(text, "origin:").items()},
            )
        except (KeyError, ValueError) as error:
            raise StateCorrupt(f"partition state cannot be read ({error}): run `streamtopic rebuild`") from None

    @property
    def epoch(self) -> int:
        """The epoch that a document added now belongs to."""
        return self.folded + len(self.cuts)

    @property
    def documents(self) -> int:
        """Live documents."""
        return sum(self.live.values())

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of a document added at this offset."""
        return self.folded + bisect_right(self.cuts, offset)

    def end_of(self, through: int | None) -> int:
        """Return the offset behind the last add of epochs up to `through`; of all for None."""
        if through is None or through >= self.epoch:
            return self.next_offset
        return min(self.next_offset, self.cuts[through - self.folded])

    def live_through(self, epoch: int) -> int:
        """Return how many live documents belong to this epoch or an earlier one."""
        return sum(number for of, number in self.live.items() if of <= epoch)


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One segment in the manifest; keys is the number of its Redis strings, the head included."""

    name: str
    order: int
    epoch: int
    keys: int
    pairs: int
    size: int

    @classmethod
    def parse(cls, name: bytes, value: bytes) -> "ManifestEntry":
        """Read one field of the manifest hash. Raises StateCorrupt."""
        try:
            return cls(name.decode("ascii"), *map(int, value.split(b":")))
        except (TypeError, ValueError):
            raise StateCorrupt(f"manifest entry {name!r} cannot be read: run `streamtopic rebuild`") from None

    def pack(self) -> str:
        """Return the value of its field."""
        return f"{self.order}:{self.epoch}:{self.keys}:{self.pairs}:{self.size}"


def _counters(text: Mapping[str, str], prefix: str) -> dict[str, int]:
    return {key.removeprefix(prefix): int(value) for key, value in text.items() if key.startswith(prefix)}
