"""Measured against planted topics: the learner's guarantee, and deletions that try to do harm."""

import numpy as np

from streamtopic.bench.cases import paper


def test_the_benchmark_has_these_cases(monkeypatch):
    """`bench paper` measures recovery and deletions, beside the table of run times."""
    monkeypatch.setattr(paper, "DOCUMENTS", (300, 900))
    monkeypatch.setattr(paper, "DELETION_DOCUMENTS", (4_000, 8_000))
    monkeypatch.setattr(paper, "DRAWS", 1)
    monkeypatch.setattr(paper, "DELETION_DRAWS", 2)
    assert len(paper.CASES) == len(paper.SIZES) + 2
    for case in ("recovery", "deletions"):
        assert all(np.isfinite(figure.value) for figure in paper.CASES[case]())
