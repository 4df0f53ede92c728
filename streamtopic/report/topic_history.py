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
    """A version, compared with the version before it; the first is compared with nothing, so it has None.

    kept: share of the topics' ten top words that both versions have.
    moved: mean total variation distance between topics, from 0 to 1.
    """

    envelope: Envelope
    kept: float | None
    moved: float | None


@dataclass(frozen=True, slots=True)
class TopicPath:
    """A topic of the newest version: its share in each version, and top words that came and went since the first."""

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

    releases: in version order. None may be withdrawn: a word that only a withdrawn version has is a forgotten word.
    """
    chain = [releases[-1]]
    columns = [list(range(releases[-1].envelope.r))]
    steps: list[VersionStep] = []
    for before in reversed(releases[:-1]):
        after = chain[-1]
        if before.envelope.r != after.envelope.r or before.payload.A is None:
            break
        # Numbers of topics are not the same from version to version, so topics are matched by their words.
        place = match_topics(after.words, after.A, before.words, before.A)
        steps.append(VersionStep(after.envelope, _kept(after, before, place), _moved(after, before, place)))
        columns.append([place[k] for k in columns[-1]])
        chain.append(before)
    steps.append(VersionStep(chain[-1].envelope, None, None))
    newest, first = chain[0], chain[-1]
    paths = []
    for topic in range(newest.envelope.r):
        shares = tuple(float(one.shares[at[topic]]) for one, at in zip(chain, columns, strict=True))[::-1]
        now, then = newest.top_words[topic][:_TOP], first.top_words[columns[-1][topic]][:_TOP]
        came = tuple(word for word in now if word not in then)
        went = tuple(word for word in then if word not in now)
        paths.append(TopicPath(topic, shares, came, went))
    return TopicHistory(tuple(steps[::-1]), tuple(paths))


def _kept(after: Release, before: Release, place: Sequence[int]) -> float:
    shares = []
    for words, counterpart in zip(after.top_words, place, strict=True):
        now, then = words[:_TOP], before.top_words[counterpart][:_TOP]
        shares.append(len({*now} & {*then}) / max(len(now), 1))
    return float(np.mean(shares))


def _moved(after: Release, before: Release, place: Sequence[int]) -> float:
    # Vocabularies differ between versions; a word that one of them lacks has probability 0 there.
    words = sorted({*after.words, *before.words})
    # Both models over all words of either: half the sum of differences is the total variation distance.
    gap = np.zeros((len(words), after.envelope.r))
    gap[np.searchsorted(words, after.words)] += after.A
    gap[np.searchsorted(words, before.words)] -= before.A[:, list(place)]
    total: npt.NDArray[np.float64] = np.abs(gap).sum(axis=0) / 2
    return float(total.mean())
