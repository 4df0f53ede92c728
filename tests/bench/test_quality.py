"""Quality and steadiness of a learner, as a case of its own."""

import json

import numpy as np
import pytest

from streamtopic.bench.cases import quality
from streamtopic.bench.peers.material import load_material
from streamtopic.topics.learner_options import LearnerOptions


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


@pytest.mark.parametrize("case", ["default", "paper"])
def test_every_learner_is_judged_and_shaken(documents, case):
    """Quality of all documents and of samples, and what of the anchors stays."""
    options = {"documents": documents, "topics": 3, "draws": 2, "seed": 1, "halves": 1, "samples": 2}
    found = {f.name: f.value for f in quality.CASES[case](**options)}
    assert found["documents"] == 300
    assert found["NPMI"] > 0
    assert found["NPMI, mean"] == pytest.approx(found["NPMI"], abs=0.5)
    assert found["NPMI, spread"] >= 0
    assert found["NPMI, by probability"] > 0
    assert -1 <= found["NPMI, unseen half"] < found["NPMI"]
    assert -1 <= found["NPMI, unseen half, by probability"] < found["NPMI, by probability"]
    assert 0 < found["diversity"] <= 1
    assert 0 <= found["accuracy"] <= 1
    for kind in ("1 document", "10 documents", "1 %"):
        assert found[f"{kind}: all anchors kept"] in range(3)
        assert 0 <= found[f"{kind}: anchors kept"] <= 1


def test_leaving_documents_out_is_never_having_had_them(documents):
    """What is learned without some documents is what is learned of the others, and so are the anchors."""
    material = load_material(documents)
    options = LearnerOptions(n_topics=3)
    learning = quality._Learning(material, options)
    gone = np.arange(0, 300, 7)
    prepared = learning.without(gone)
    left = material.__class__(material.words, material.counts[np.setdiff1d(np.arange(300), gone)], None)
    other = quality._Learning(left, options).without(np.array([], np.intp))
    assert prepared.words == other.words
    assert np.array_equal(prepared.mass, other.mass)
    assert learning.anchors(prepared) == learning.anchors(other)
    assert learning.anchors(prepared) == {*learning.learned(gone)[0].anchors}
