"""Chains of additions and deletions: wherever a model has been, it is the model of the documents that are there."""

import numpy as np
import pytest

from streamtopic.bench.chain_corpora import KINDS, cyclic_images
from streamtopic.bench.chains import Described, described, one_chain, parted
from streamtopic.counts import Counts, DocumentBatch, count
from streamtopic.topics.learner import learn
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.update import Updated, update

EACH = 16
"""Chains of each kind; `streamtopic bench chains` runs thousands."""

SENTENCES = {
    "planted topics": "topics that are there to be found",
    "mirrored": "exact ties at 1/2, decided alike on every path",
    "duplicated words": "equal rows, of which the first word wins on every path",
    "near-singular anchors": "hardly any direction to tell topics by, so that a certificate is all there is",
    "giant documents": "one document that outweighs the others comes or goes",
    "two-word documents": "rows of few entries, many of them equal",
    "one-document topics": "a deletion takes a direction away",
    "words at thresholds": "words enter and leave by additions and by deletions",
    "text": "frequencies, bursts and lengths as in docstrings",
    "tiny": "a fresh fit that cannot be learned is refused by the update too, and the other way round",
    "guided topics": "rows of seeds change, and topics end and come back, on every path alike",
    "guided topics of few documents": "a topic of which no word has a share ends, on every path alike",
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind}: {SENTENCES[kind]}")
def test_a_model_is_that_of_a_fresh_fit_after_every_change(kind):
    """Words, anchors and sets are equal, A is within the certificates and to 1e-12, and no refusal is one-sided."""
    first = tuple(KINDS).index(kind)
    outcomes = [one_chain(first + k * len(KINDS)) for k in range(EACH)]
    assert {outcome.kind for outcome in outcomes} == {kind}
    assert not [str(outcome.finding) for outcome in outcomes if outcome.finding is not None]
    assert sum(outcome.updates for outcome in outcomes) >= EACH // 2


def _counts(held, options):
    """Counts of rows of word counts, (documents, n)."""
    row, word = np.nonzero(held)
    documents = len(held)
    batch = DocumentBatch.whole(
        indptr=np.searchsorted(row, np.arange(documents + 1)).astype(np.int64),
        words=word.astype(np.int32),
        counts=held[row, word].astype(np.int32),
        lengths=held.sum(axis=1),
        owners=np.arange(documents, dtype=np.int32),
        documents=documents,
    )
    return Counts([f"w{k:03d}" for k in range(held.shape[1])], count(batch, held.shape[1], options.weighting))


def _mirrored_chain(seed):
    """Delete pair after pair of mirrored documents; yield each update's fit, a fresh one, and the words before."""
    rng = np.random.default_rng(seed)
    options = LearnerOptions(n_topics=2, max_df=1.0, min_df=3, anchor_min_df=0.2)
    columns = np.zeros(2 * (30 + 4) + 6)
    columns[0], columns[1:30], columns[60:] = 0.3, 0.5 * rng.dirichlet(np.geomspace(1.0, 0.05, 29)), 0.2 / 14
    images = cyclic_images(rng, 2, rng.multinomial(30, columns / columns.sum(), 120), 30, 4)
    inside = np.ones(120, bool)
    counts = _counts(images.reshape(-1, images.shape[2]), options)
    fit = learn(counts, options)
    for pair in rng.permutation(120)[:40]:
        inside[pair] = False
        after = _counts(images[inside].reshape(-1, images.shape[2]), options)
        delta = Counts(after.words, after.cooccurrence - counts.cooccurrence)
        words, counts = fit.words, after
        outcome, fresh = update(fit, counts, delta), learn(counts, options)
        if isinstance(outcome, Updated):
            yield outcome.fit, fresh, words
        fit = outcome.fit if isinstance(outcome, Updated) else fresh


def test_ties_at_one_half_fall_alike_on_every_path():
    """Where two subjects are images of each other, words between them lie at 1/2 exactly, also while rare words leave.

    Words that have left must not change the last bit of anything that is compared.
    """
    updates = left = 0
    for seed in range(6):
        for updated, fresh, words in _mirrored_chain(seed):
            updates += 1
            left += len(fresh.words) < len(words)
            assert parted(described(updated), described(fresh)) is None
    assert updates >= 30
    assert left >= 2


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
