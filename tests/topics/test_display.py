"""Top words and quality figures."""

import numpy as np
import pytest

from streamtopic.counts import WordSets
from streamtopic.topics.display import diversity, npmi, top_words


def test_display_order_prefers_words_that_are_rare_elsewhere():
    """At equal probability the rarer word comes first; ties go to the first word."""
    A = np.array([[0.4], [0.4], [0.1], [0.1]])
    assert top_words(A, np.array([50, 10, 10, 10]), 100, 3).tolist() == [[1, 0, 2]]
    assert top_words(A, np.array([100] * 4), 100, 2).tolist() == [[0, 1]]


def sets(*documents):
    """Word sets of documents."""
    return WordSets.joined([WordSets(np.array([0, len(words)]), np.array(words, np.int64)) for words in documents])


def test_npmi_of_known_cases():
    """Always together 1, never together -1, independent 0."""
    both = sets([0, 1], [1, 0, 1], [0, 1], [2, 3])
    assert npmi(np.array([[0, 1]]), both) == pytest.approx(1)
    assert npmi(np.array([[0, 2]]), both) == -1
    independent = sets([0, 1], [0], [1], [])
    assert npmi(np.array([[0, 1]]), independent) == pytest.approx(0)
    assert npmi(np.array([[0, 1]]), sets([0, 1], [0, 1])) == 1
    assert npmi(np.empty((0, 0), int), WordSets.joined([])) == 0


def test_diversity_counts_distinct_words():
    """Repeated top words lower the share."""
    assert diversity(np.array([[0, 1], [1, 2]])) == 0.75
    assert diversity(np.empty((0, 0), int)) == 0
