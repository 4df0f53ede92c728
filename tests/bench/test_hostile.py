"""How far one hostile document moves the topics, as a case of its own."""

import json

import numpy as np
import pytest

from streamtopic.bench import CaseResult, Figure, Result
from streamtopic.bench.cases import hostile
from streamtopic.bench.peers.material import load_material
from streamtopic.counts import DocumentBatch, Weighting
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions

KINDS = {
    "one frequent word",
    "one rare word, a text of 1 MB",
    "two words of two topics",
    "all anchors",
    "random words",
    "spam, 20,000 tokens",
    "the longest document again",
    "any document again",
}


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Return a file of documents on three planted topics."""
    rng = np.random.default_rng(2)
    path = tmp_path_factory.mktemp("hostile") / "documents.jsonl"
    with path.open("w") as file:
        for k in range(400):
            words = [f"word{k % 3}{w:03d}" for w in rng.integers(0, 60, 15)]
            words += [f"common{w}" for w in rng.integers(0, 200, 10)]
            file.write(json.dumps({"id": str(k), "text": " ".join(words)}) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def attacked(documents):
    """Return the corpus with its model."""
    options = LearnerOptions(n_topics=3)
    return hostile.Attacked(load_material(documents), options, options.weighting)


@pytest.mark.parametrize("case", hostile.CASES)
def test_every_kind_is_measured_with_one_copy_and_with_ten(documents, case):
    """Each learner has all figures of each kind of document, shares are shares, and the table has a row for each."""
    figures = hostile.CASES[case](documents=documents, topics=3, seed=1)
    found = {figure.name: figure.value for figure in figures}
    assert found["documents"] == 400
    for kind in KINDS:
        for copies in (1, 10):
            values = {name: found[f"{kind}, {copies}: {name}"] for name in hostile.UNITS}
            assert 0 <= values["anchors"] <= 1
            assert 0 <= values["shown"] <= 1
            assert 0 <= values["entry"] <= 1
            assert 0 <= values["distance"] <= 2
    assert len(found) == 2 + 2 * len(KINDS) * len(hostile.UNITS)
    options = {"documents": documents, "topics": 3}
    table = hostile.text(Result("hostile", "a machine", [CaseResult(case, figures, 0)], [], options))
    assert sum(line.startswith(tuple(KINDS)) for line in table.splitlines()) == 2 * len(KINDS)


def test_hostile_documents_are_within_the_limits(attacked):
    """No passage has more than 8,192 tokens, no document more than a text of 1,000,000 bytes, all words are theirs."""
    made = attacked.hostile(np.random.default_rng(1))
    assert {*made} == KINDS
    for document in made.values():
        assert sum(passage.length for passage in document) <= 1_000_000 // 3
        for passage in document:
            assert passage.length == passage.counts.sum() <= 8_192
            assert np.all(np.diff(passage.words) > 0)
            assert passage.words[-1] < len(attacked.counts.words)
    (anchors,) = made["all anchors"]
    assert {attacked.counts.words[k] for k in anchors.words} == {*attacked.fit.anchors}
    text = made["one rare word, a text of 1 MB"]
    word = attacked.counts.words[text[0].words[0]]
    assert 999_000 <= (len(word) + 1) * sum(passage.length for passage in text) <= 1_000_000
    assert len(made["two words of two topics"][0].words) == 2


def test_no_document_moves_nothing(attacked):
    """With no copy the topics are the same to the bit, so every figure is of the document."""
    (document, *_) = attacked.hostile(np.random.default_rng(1)).values()
    same = hostile.Moved(anchors=1.0, taken=0, shown=1.0, entry=0.0, distance=0.0, left=0, entered=0)
    assert attacked.moved(document, 0) == same


def test_words_that_no_copy_brings_in_make_no_difference(documents, attacked):
    """The model is that of all words, though pairs are counted for those only that may be kept."""
    from streamtopic.counts import Counts, count
    from streamtopic.counts.matrices import as_documents

    material = load_material(documents)
    whole = Counts(material.words, count(as_documents(material.counts), len(material.words), Weighting(256)))
    fit = learn(whole, attacked.options)
    assert fit.words == attacked.fit.words
    assert fit.A.tobytes() == attacked.fit.A.tobytes()


def test_without_a_cap_a_document_has_the_mass_of_its_tokens():
    """The weight of a document without a cap is f(L) = L: its pairs sum to as many tokens as it has."""
    uncapped = hostile._Uncapped()
    lengths = np.array([2, 100, 8_192])
    mass = uncapped.weights(lengths, lengths, lengths) * lengths * (lengths - 1) / 2.0**uncapped.shift
    assert np.allclose(mass, lengths, rtol=5e-4)
    batch = DocumentBatch.build([hostile._document(np.arange(20), hostile.SPAM_TOKENS)])
    tokens = uncapped.tokens(batch)
    assert tokens.sum() < batch.lengths.sum() / 10
    shared = uncapped.of(batch) * tokens * (tokens - 1) / 2.0**uncapped.shift
    assert np.isclose(shared.sum(), hostile.SPAM_TOKENS, rtol=1e-3)


def test_figures_are_the_same_in_each_run(documents):
    """The seed decides the documents, and nothing else does."""
    one, other = (hostile.CASES["default"](documents=documents, topics=3, seed=4) for _ in range(2))
    assert one == other
    assert all(isinstance(figure, Figure) for figure in one)
