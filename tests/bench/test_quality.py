"""Quality and steadiness of a learner, as a case of its own."""

import json

import numpy as np
import pytest

from streamtopic.bench.cases import quality
from streamtopic.bench.peers.material import load_material
from streamtopic.topics.options import LearnerOptions


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Return a file of documents on four planted topics, a fifth of them on each and the rest on nothing."""
    rng = np.random.default_rng(2)
    path = tmp_path_factory.mktemp("quality") / "documents.jsonl"
    with path.open("w") as file:
        for k in range(300):
            topic = k % 5
            words = [f"word{topic}{w:03d}" if topic < 4 else f"common{w}" for w in rng.integers(0, 80, 15)]
            words += [f"common{w}" for w in rng.integers(0, 200, 10)]
            file.write(json.dumps({"id": str(k), "text": " ".join(words), "label": str(topic)}) + "\n")
    return str(path)


@pytest.mark.parametrize("case", ["mass-1/4", "paper"])
def test_every_learner_is_judged_and_shaken(documents, case):
    """Quality of all documents and of samples, and what of the anchors stays."""
    found = {f.name: f.value for f in quality.CASES[case](documents=documents, topics=3, draws=2, seed=1)}
    assert found["documents"] == 300
    assert found["NPMI"] > 0
    assert found["NPMI, mean"] == pytest.approx(found["NPMI"], abs=0.5)
    assert 0 < found["diversity"] <= 1
    assert 0 <= found["accuracy"] <= 1
    for kind in ("1 document", "10 documents", "1 %"):
        assert found[f"{kind}: verified"] in range(3)
        assert 0 <= found[f"{kind}: anchors kept"] <= 1


def test_leaving_documents_out_is_never_having_had_them(documents):
    """What is learned without some documents is what is learned of the others; weights of rows change the search."""
    material = load_material(documents)
    options = LearnerOptions(n_topics=3)
    learning = quality._Learning(material, options, 0.0)
    gone = np.arange(0, 300, 7)
    prepared = learning.without(gone)
    left = material.__class__(material.words, material.counts[np.setdiff1d(np.arange(300), gone)], None)
    other = quality._Learning(left, options, 0.0).without(np.array([], np.intp))
    assert prepared.words == other.words
    assert np.array_equal(prepared.gram, other.gram)
    weighted = quality._Learning(material, options, 0.25).without(gone)
    assert not np.array_equal(weighted.gram, prepared.gram)
    assert np.allclose(weighted.gram, weighted.gram.T)
