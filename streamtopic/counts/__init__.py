"""Documents to exact co-occurrence counts: int64, reversible bit for bit, in any order.

Weighting        what one document's word pairs weigh
DocumentBatch    documents as rows of word counts
count            a batch to counts; count_rows: block by block
Cooccurrence     counts: add, subtract, restrict, digest
Counts           counts with their words: what learners read
KeptCounts       counts that stay in memory and change in place
SymmetricCounts  the working matrix Q, both triangles, six bytes an entry
SignedPassages   what a small change is made of
"""

from streamtopic.counts.batch import DocumentBatch, Passage
from streamtopic.counts.cooccurrence import Cooccurrence
from streamtopic.counts.kept import KeptCounts
from streamtopic.counts.kernel import PairBlock, count, count_rows, statistics
from streamtopic.counts.passages import SignedPassages
from streamtopic.counts.source import Counts, CountSource, CountsWithout
from streamtopic.counts.symmetric import SymmetricCounts
from streamtopic.counts.weights import MAX_LENGTH, Weighting
from streamtopic.counts.wordsets import WordSets

__all__ = [
    "MAX_LENGTH",
    "Cooccurrence",
    "CountSource",
    "Counts",
    "CountsWithout",
    "DocumentBatch",
    "KeptCounts",
    "PairBlock",
    "Passage",
    "SignedPassages",
    "SymmetricCounts",
    "Weighting",
    "WordSets",
    "count",
    "count_rows",
    "statistics",
]
