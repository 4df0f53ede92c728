"""Chains of additions and deletions: wherever a model has been, it is the model of the documents that are there."""

import numpy as np
import pytest

from streamtopic.bench.chain_corpora import KINDS
from streamtopic.bench.chains import Described, one_chain, parted

EACH = 16
"""Chains of each kind; `streamtopic bench chains` runs thousands."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_that_of_a_fresh_fit_after_every_change(kind):
    """Words, anchors and sets are equal, A is within the certificates and to 1e-12, and no refusal is one-sided."""
    first = tuple(KINDS).index(kind)
    outcomes = [one_chain(first + k * len(KINDS)) for k in range(EACH)]
    assert {outcome.kind for outcome in outcomes} == {kind}
    assert not [str(outcome.finding) for outcome in outcomes if outcome.finding is not None]
    assert sum(outcome.updates for outcome in outcomes) >= EACH // 2


def _model(**changed):
    """A model as chains see it, of two words and two topics."""
    plain = {"words": ("a", "b"), "anchors": ("a", "b"), "sets": {"a": 0, "b": 1}, "A": np.eye(2), "certificate": 0.0}
    return Described(**{**plain, "guides": {}, "notes": (), **changed})


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("words", {"words": ("a", "c")}),
        ("anchors", {"anchors": ("a", "c")}),
        ("guides", {"guides": {"t": ("a",)}}),
        ("guides", {"notes": ("guided topic t has ended",)}),
        ("sets", {"sets": {"a": 0}}),
        ("shape", {"A": np.array([[1.0, np.nan], [0.0, 1.0]])}),
        ("shape", {"A": 2 * np.eye(2)}),
        ("shape", {"certificate": np.inf}),
        ("certificate", {"A": np.array([[1 - 1e-8, 0.0], [1e-8, 1.0]]), "certificate": 1e-8}),
        ("precision", {"A": np.array([[1 - 1e-11, 0.0], [1e-11, 1.0]]), "certificate": 1e-10}),
    ],
)
def test_every_broken_promise_is_named(what, changed):
    """Whatever parts two models is found, from either side; what keeps all promises is not."""
    for pair in ((_model(), _model(**changed)), (_model(**changed), _model())):
        assert parted(*pair)[0] == what
    assert parted(_model(), _model()) is None
    near = _model(A=np.array([[1 - 1e-8, 0.0], [1e-8, 1.0]]), certificate=1e-7)
    assert parted(_model(), near) is None
