"""The path of each topic over versions: a topic is matched with its counterpart in the version before."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopic.signed import Envelope, Release, match_topics

__all__ = ["TopicHistory", "TopicPath", "VersionStep", "topic_history"]

_TOP = 10


@dataclass(frozen=True, slots=True)
class VersionStep:
    """A version, compared with the version before it.

    kept: share of the topics' ten top words that both versions have; None for the first version.
    moved: mean total variation distance between topics, from 0 to 1; None for the first version.
    """

    envelope: Envelope
    kept: float | None
    moved: float | None


@dataclass(frozen=True, slots=True)
class TopicPath:
    """A topic of the newest version.

    shares: in each version, oldest first.
    came, went: top words that came and went since the first version.
    """

    topic: int
    shares: tuple[float, ...]
    came: tuple[str, ...]
    went: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicHistory:
    """Versions, oldest first, and the path of each topic of the newest."""

    steps: tuple[VersionStep, ...]
    paths: tuple[TopicPath, ...]


def topic_history(releases: Sequence[Release]) -> TopicHistory:
    """Follow the topics of the last release back to the first release that has as many topics.

    releases: in version order. All must stand: a word that only a withdrawn version has is a forgotten word.
    """
    newest = releases[-1]
    topics = range(newest.envelope.r)
    chain = [newest]
    columns = [list(topics)]
    steps: list[VersionStep] = []
    for before in reversed(releases[:-1]):
        after = chain[-1]
        if before.envelope.r != after.envelope.r or before.payload.A is None:
            break
        # Numbers of topics are not the same from version to version, so topics are matched by their words.
        place = match_topics(after.words, after.A, before.words, before.A)
        kept = _kept(after, before, place)
        moved = _moved(after, before, place)
        steps.append(VersionStep(after.envelope, kept, moved))
        columns.append([place[k] for k in columns[-1]])
        chain.append(before)
    steps.append(VersionStep(chain[-1].envelope, None, None))
    # The chain was made from the newest version back.
    steps.reverse()
    chain.reverse()
    columns.reverse()
    paths = [_path(topic, chain, columns) for topic in topics]
    return TopicHistory(tuple(steps), tuple(paths))


def _path(topic: int, chain: Sequence[Release], columns: Sequence[Sequence[int]]) -> TopicPath:
    """Return the path of a topic of the newest version; columns: its counterparts' numbers, version by version."""
    shares = []
    for release, places in zip(chain, columns, strict=True):
        counterpart = places[topic]
        shares.append(float(release.shares[counterpart]))
    now = chain[-1].top_words[topic][:_TOP]
    then = chain[0].top_words[columns[0][topic]][:_TOP]
    came = tuple(word for word in now if word not in then)
    went = tuple(word for word in then if word not in now)
    return TopicPath(topic, tuple(shares), came, went)


def _kept(after: Release, before: Release, place: Sequence[int]) -> float:
    """Return the share of top words that both versions have; place: the counterpart of each topic."""
    shares = []
    for words, counterpart in zip(after.top_words, place, strict=True):
        now = words[:_TOP]
        then = before.top_words[counterpart][:_TOP]
        common = set(now) & set(then)
        shares.append(len(common) / max(len(now), 1))
    return float(np.mean(shares))


def _moved(after: Release, before: Release, place: Sequence[int]) -> float:
    """Return the mean distance of topics from their counterparts; place: as in `_kept`."""
    # Vocabularies differ between versions; a word that one of them lacks has probability 0 there.
    words = sorted({*after.words, *before.words})
    gap = np.zeros((len(words), after.envelope.r))
    now = np.searchsorted(words, after.words)
    then = np.searchsorted(words, before.words)
    gap[now] += after.A
    gap[then] -= before.A[:, list(place)]
    # Half the sum of differences is the total variation distance.
    total: npt.NDArray[np.float64] = np.abs(gap).sum(axis=0) / 2
    return float(total.mean())
