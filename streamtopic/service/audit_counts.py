"""Read the counts for an audit: from an instance, or from documents in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from streamtopic.counts import Counts
from streamtopic.service.verify.recount import recount
from streamtopic.text import passages
from streamtopic.topics.working_vocabulary import thresholds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamtopic.corpus import Corpus
    from streamtopic.events import Passages
    from streamtopic.service.app import Service
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["counts_of_corpus", "counts_of_instance"]

# An audit deletes a few documents, so only words this near to a threshold of the vocabulary can cross it.
_NEAR = 10
STRIDE = 500


def counts_of_corpus(corpus: Corpus, options: LearnerOptions, progress: Callable[[int, int | None], None]) -> Counts:
    """Count documents from scratch, in memory.

    progress: told how many documents were read, of how many.
    """
    total = len(corpus.documents)

    def counted() -> Iterator[Passages]:
        for number, document in enumerate(corpus.documents):
            if number % STRIDE == 0:
                progress(number, total)
            yield tuple(passages(document.text))

    return recount(counted(), options.weighting)


def counts_of_instance(service: Service, options: LearnerOptions) -> Counts:
    """Read the counts of an instance, of all words that are in the vocabulary or within ten documents of it.

    Raises StateMissing where nothing was counted.
    """
    snapshot = service.reader.snapshot()
    limits = thresholds(max(snapshot.documents, 1), options)
    near = (snapshot.frequency >= limits.least - _NEAR) & (snapshot.frequency <= limits.most + _NEAR)
    keep = np.flatnonzero(near)
    return Counts([snapshot.words[k] for k in keep.tolist()], snapshot.restrict(keep))
