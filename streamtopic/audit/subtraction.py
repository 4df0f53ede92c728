"""Two models are subtracted from each other: by who checks that they are one, and by an attacker who holds both.

The attacker has candidates for the document that was deleted between them. A candidate's score says how well the fall
of the words' probabilities fits it.
"""

import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from streamtopic.counts.arrays import Float
from streamtopic.paper.algorithm1 import BaseModel
from streamtopic.topics.fit import TopicFit

__all__ = ["difference", "fall", "probabilities", "score"]


def difference(one: TopicFit | BaseModel, other: TopicFit | BaseModel) -> Float:
    """Return A - A' of two models before noise, over the words of both, (n, r).

    Topics are compared by their number, since both models sort their topics by anchor word.
    """
    words = sorted({*one.words, *other.words})
    place = {word: k for k, word in enumerate(words)}
    found = np.zeros((len(words), max(one.A.shape[1], other.A.shape[1])))
    # Words and topics that one model lacks are 0 in it.
    for model, sign in ((one, 1.0), (other, -1.0)):
        rows = [place[word] for word in model.words]
        found[rows, : model.A.shape[1]] += sign * model.A
    return found


def probabilities(words: Sequence[str], A: Float, shares: Float) -> dict[str, float]:
    """Return the probability of each word as a subscriber computes it from a version: A times the topics' shares.

    words: (n,).
    A: (n, r), columns on the simplex.
    shares: (r,).
    """
    return dict(zip(words, (A @ shares).tolist(), strict=True))


def fall(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the fall of each word's probability, less the fall that all words share."""
    common = sorted(before.keys() & after.keys())
    relative = [(before[word] - after[word]) / max(before[word], 1e-12) for word in common]
    drift = statistics.median(relative)
    fell = {word: (one - drift) * before[word] for word, one in zip(common, relative, strict=True)}
    return fell | {word: before[word] for word in before.keys() - after.keys()}


def score(words: Mapping[str, float], fell: Mapping[str, float], before: Mapping[str, float]) -> float:
    """Return the cosine between the fall of the probabilities and what a deletion of this document takes away.

    words: of the document, with their shares of its tokens.
    fell: as of `fall`.
    before: probabilities in the older version.
    """
    known = {word: share for word, share in words.items() if word in before}
    length = sum(share * share for share in known.values()) ** 0.5
    return sum(fell[word] * share for word, share in known.items()) / length if length else 0.0
