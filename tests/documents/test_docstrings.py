"""Docstrings as documents."""

import sys

from streamtopic.documents.corpus import load_docstrings


def test_the_installed_packages_give_a_corpus_worth_learning_from():
    """Thousands of distinct texts in a fixed order, and nothing is imported to get them."""
    before = set(sys.modules)
    corpus = load_docstrings()
    assert not {name for name in set(sys.modules) - before if name.split(".")[0] in {"numpy", "scipy", "sklearn"}}
    assert len(corpus.documents) > 5000
    assert len({d.text for d in corpus.documents}) == len({d.id for d in corpus.documents}) == len(corpus.documents)
    assert load_docstrings().documents == corpus.documents
    labels = {d.id.split(".")[0]: d.labels["library"] for d in corpus.documents}
    assert set(labels.values()) == {"numpy", "scipy", "sklearn", "python"}
    assert (labels["scipy"], labels["json"]) == ("scipy", "python")
