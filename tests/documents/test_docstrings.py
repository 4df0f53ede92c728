"""Docstrings as documents."""

import sys

from streamtopic.documents.corpus import load_docstrings, module_docstrings

SOURCE = b'''"""The module, one two three four five six seven eight nine ten."""
class Thing:
    """The thing, one two three four five six seven eight nine ten."""
    def act(self):
        """The act, one two three four five six seven eight nine ten."""
    def _hidden(self):
        """The hidden, one two three four five six seven eight nine ten."""
    def told(self):
        """The super, one two three four five six seven eight nine ten."""
        def inner():
            """The inner, one two three four five six seven eight nine ten."""
        return super().told()
class Plain:
    words = "not a docstring, though it has more than ten words one two three"
class Odd:
    __doc__ = " ".join("no docstring of the source either, and it has more words".split())
def short():
    """Too short."""
'''


def _found(tmp_path, source):
    path = tmp_path / "m.py"
    path.write_bytes(source)
    return module_docstrings(path, "m")


def test_public_names_with_enough_words_are_found(tmp_path):
    """Modules, classes and methods under their dotted names; private and terse ones are left out."""
    first, second = _found(tmp_path, SOURCE), _found(tmp_path, SOURCE)
    assert [name for name, _ in first] == ["m", "m.Thing", "m.Thing.act", "m.Thing.told"]
    assert dict(first)["m.Thing.told"] == "The super, one two three four five six seven eight nine ten."
    # From the cache of compiled modules.
    assert first == second


def test_source_that_does_not_compile_gives_nothing(tmp_path):
    """Templates and Python 2 files lie about in packages."""
    assert _found(tmp_path, b'print \'x\' """') == []
    assert _found(tmp_path, b'"""\x00') == []
    assert module_docstrings(tmp_path / "gone.py", "gone") == []


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
