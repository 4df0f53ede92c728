"""A learned model before noise, with all numbers that a later update needs, and the digest of its counts.

TopicFit      the model; Words: its words, which know their places
fingerprint   a keyed digest of the retained counts of a vocabulary and of settings: a released model is a function
              of these
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Protocol

import numpy as np

from streamtopic.counts import SymmetricCounts
from streamtopic.counts.arrays import Float, Int64, Positions
from streamtopic.topics.certificate import Certificate, topic_columns
from streamtopic.topics.learner_options import GuidedTopic, LearnerOptions
from streamtopic.topics.mixtures import Mixtures

__all__ = ["RetainedCounts", "TopicFit", "Words", "fingerprint"]


class Words(tuple[str, ...]):  # noqa: SLOT001  it keeps its table of places
    """Words that know their places."""

    # One table for all updates over the same words.
    @cached_property
    def place(self) -> dict[str, int]:
        """Position of each word."""
        return {word: k for k, word in enumerate(self)}

    def places(self, words: Sequence[str]) -> Int64:
        """Return the position of each of some words, -1 for a word that is not among these, (len(words),)."""
        if words is self:
            return np.arange(len(self))
        found = [*map(self.place.get, words, repeat(-1))]
        return np.array(found, np.int64)


@dataclass(eq=False)
class TopicFit:
    """A topic model before noise, over n words.

    options: the choices of the learner.
    words: (n,) ascending by code point. Each of them meets another one.
    documents: how many documents were counted.
    q: their pair counts.
    mass: (n,) row sums.
    squares: (n,) D^2.
    candidates: positions of words that may be anchors.
    choice: positions of the anchor words, ascending.
    group: (n,) the topic that each word represents, -1 for most.
    mixtures: every word as a mixture of topics. Those of anchors come first, then the guided ones.
    guided: topics of seed words that the counts still hold, each with the seeds that are left.
    notes: by name a sentence for each guided topic that has ended or lacks a seed.
    """

    options: LearnerOptions
    words: Words
    documents: int
    q: SymmetricCounts
    mass: Int64
    squares: Float
    candidates: Positions
    choice: Positions
    group: Int64
    mixtures: Mixtures
    guided: tuple[GuidedTopic, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def anchors(self) -> tuple[str, ...]:
        """The anchor word of each topic that was found, ascending."""
        return tuple(self.words[k] for k in self.choice)

    @property
    def topic_names(self) -> tuple[str, ...]:
        """A name for each topic, (r,), all different: its anchor word, or the name that a guided topic was given.

        A guided topic whose name is an anchor word has a star after it.
        """
        names = list(self.anchors)
        for topic in self.guided:
            name = topic.name
            while name in names:
                name += "*"
            names.append(name)
        return tuple(names)

    @cached_property
    def p(self) -> Float:
        """Word masses, (n,), sum 1."""
        return np.asarray(self.mass / self.total)

    @property
    def total(self) -> float:
        """Sum of all entries of Q."""
        # Python's integers, since the sum of masses may leave 64 bits.
        return float(sum(self.mass.tolist()))

    @property
    def C(self) -> Float:
        """Each word as a mixture of topics, (n, r)."""
        return self.mixtures.C

    @cached_property
    def topic_masses(self) -> Float:
        """Masses of topics, z = C^T p, (r,)."""
        return np.asarray(self.C.T @ self.p)

    @cached_property
    def A(self) -> Float:
        """Topic-conditional word distributions, (n, r), columns sum to 1."""
        return self._columns[0]

    @cached_property
    def certificate(self) -> Certificate:
        """Bound on the distance of A to the exact optimum for these counts."""
        return self.mixtures.certificate(self.mass, self.p, *self._columns)

    @cached_property
    def _columns(self) -> tuple[Float, Float]:
        """A and z: A and the certificate need the same sums."""
        with np.errstate(invalid="ignore"):
            A, z = topic_columns(self.C, self.p)
        # By definition a topic without mass has each word alike. Its certificate says that this may be far off.
        A[:, z == 0] = 1.0 / len(A)
        return A, z


class RetainedCounts(Protocol):
    """Counts of the documents that are left, over n words."""

    @property
    def q(self) -> SymmetricCounts:
        """Their pair counts."""

    @property
    def mass(self) -> Int64:
        """The sums of its rows, (n,)."""

    @property
    def words(self) -> tuple[str, ...]:
        """The words, (n,), ascending."""

    @property
    def documents(self) -> int:
        """How many documents are counted."""


def fingerprint(fit: RetainedCounts, frequency: Sequence[int], settings: Sequence[str], key: bytes) -> str:
    """Return a hex digest of words, their document frequencies, pair counts, m and settings, under a secret key.

    fit: the retained counts.
    frequency: (n,) documents that hold each word.
    settings: any texts.
    key: at least 32 bytes.

    Equal counts have equal digests on every path to them. Cost: one pass over Q.
    Without the key nobody can tell which of several candidates the counts belong to. Nor can anybody choose documents
    so that two counts have one digest, and so one noise.
    """
    state = hmac.new(key, b"streamtopic model 3\0", hashlib.sha256)
    for text in (*settings, str(fit.documents), *fit.words):
        data = text.encode("utf-8", "surrogatepass")
        # With its length, so that no two lists of texts run together to the same bytes.
        length = len(data).to_bytes(8, "big")
        state.update(length + data)
    state.update(np.asarray(frequency, "<i8").tobytes())
    # Equal counts have equal arrays: a pair that is not there has no entry.
    for array in fit.q.rows:
        little = np.asarray(array, array.dtype.newbyteorder("<"))
        state.update(len(little).to_bytes(8, "big"))
        state.update(little.view(np.uint8).data)
    return state.hexdigest()
