"""Docstrings as documents."""

import sys

from streamtopic.corpus import load_docstrings, module_docstrings

SOURCE = b'''"""The module, one two three four five six seven eight nine ten."""
class Thing:
    """The thing, one two three four five six seven eight nine ten."""
    def act(self):
        """The act, one two three four five six seven eight nine ten."""
    def _hidden(self):
        """The hidden, one two three four five six seven eight nine ten."""
def short():
    """Too short."""
'''


def test_public_names_with_enough_words_are_found():
    """Modules, classes and methods under their dotted names; private and terse ones are left out."""
    assert [name for name, _ in module_docstrings(SOURCE, "m")] == ["m", "m.Thing", "m.Thing.act"]


def test_source_that_does_not_parse_gives_nothing():
    """Templates and Python 2 files lie about in packages."""
    assert module_docstrings(b"print 'x'", "m") == []
    assert module_docstrings(b"\x00", "m") == []


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
