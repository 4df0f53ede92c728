"""Documents to exact co-occurrence counts: int64, reversible bit for bit, in any order.

    documents              DocumentBatch of Passages; narrowed: a batch over some words;
                           TextMatrix: the same as scikit-learn passes it on (CountedTexts)
    weight                 Weighting: how often a word counts in a passage (TWICE), and the integer weight of its pairs;
                           MAX_LENGTH: tokens of a passage
    counting               count: a batch to a Cooccurrence; count_rows: the same as PairBlocks; statistics: of words
    for learners           CountSource; Counts and KeptCounts in memory

The pair counts of n words are an n by n matrix. It takes four forms, each for one purpose:

    Cooccurrence      exact value of a set of documents: one triangle in int64, with the statistics of words; add,
                      subtract, restrict
    PairBlock         some rows of one as they are counted, in buffers that are used again
    SymmetricCounts   the working matrix Q of a learner: both triangles, six bytes an entry, changed in place
    SignedPassages    a small change as outer products: as long as its passages, while pairs are their square

Below SymmetricCounts lies `compact.Compact`, its rows in six bytes an entry, which compiled loops read. Before anybody
reads them, documents in memory stand for them. One form for all purposes would be twice as large
(docs/decisions/0003), or every change would copy it.
"""

from streamtopic.counts.batch import (
    MAX_LENGTH,
    TWICE,
    DocumentBatch,
    Passage,
    SignedPassages,
    Weighting,
    narrowed,
)
from streamtopic.counts.cooccurrence import Cooccurrence
from streamtopic.counts.count_pairs import PairBlock, add_statistics, count, count_rows, statistics
from streamtopic.counts.count_sources import Counts, CountSource, KeptCounts
from streamtopic.counts.matrices import CountedTexts, TextMatrix
from streamtopic.counts.symmetric import SymmetricCounts

__all__ = [
    "MAX_LENGTH",
    "TWICE",
    "Cooccurrence",
    "CountSource",
    "CountedTexts",
    "Counts",
    "DocumentBatch",
    "KeptCounts",
    "PairBlock",
    "Passage",
    "SignedPassages",
    "SymmetricCounts",
    "TextMatrix",
    "Weighting",
    "add_statistics",
    "count",
    "count_rows",
    "narrowed",
    "statistics",
]
