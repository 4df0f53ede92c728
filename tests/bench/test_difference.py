"""What two versions reveal: the attack behind the figures of the first page is run, on a small corpus."""

import json

import numpy as np

from streamtopic.bench.cases import difference


def _corpus(path):
    """Write 1,200 documents of five planted topics, with words of their own frequencies, as JSON lines."""
    rng = np.random.default_rng(7)
    words = rng.dirichlet(np.full(900, 0.08), size=5)
    with path.open("w", encoding="utf-8") as file:
        for number in range(1_200):
            mixture = rng.dirichlet(np.full(5, 0.2)) @ words
            drawn = rng.choice(900, size=60, p=mixture)
            text = " ".join(f"word{n}" for n in drawn)
            file.write(json.dumps({"id": f"d{number}", "text": text}) + "\n")
    return str(path)


def test_two_versions_reveal_a_single_deletion(tmp_path):
    """Whoever holds the version before and the version after ranks the deleted document far ahead of 299 others."""
    figures = difference.CASES["single"](_corpus(tmp_path / "texts.jsonl"), 5, 3, 1)
    found = {figure.name: figure.value for figure in figures}
    assert found["candidates"] == 300
    assert found["deletions"] == 3
    assert found["ranked first"] >= 2
    assert found["words recovered, median"] > 0.1
