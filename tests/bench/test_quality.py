"""Quality and steadiness of a learner, as a case of its own."""

import json

import numpy as np
import pytest

from streamtopic.bench.cases import quality


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
