"""Heads of downstream tasks: exact to a certificate, and forgetting is never having seen."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from streamtopic.counts import Cooccurrence, Counts, DocumentBatch
from streamtopic.errors import CannotLearn, UsageError
from streamtopic.paper.algorithm1 import literal_head
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.heads import (
    HeadTask,
    LabelledDocuments,
    TopicMatrix,
    fit_head,
    gradient,
    minimise,
    rounding,
)
from streamtopic.topics.learner import learn
from streamtopic.topics.update import update

TASK = HeadTask(ridge=1e-5, tolerance=1e-7)


def loss(phi, member, ridge, w):
    """The loss of one class, as the module's docstring has it."""
    margin = np.where(member, 1.0, -1.0) * (phi @ w)
    return np.logaddexp(0.0, -margin).mean() + ridge / 2 * (w @ w)


def take(data, which):
    """Return the labelled documents at some positions."""
    return LabelledDocuments(data.words, data.counts[which], tuple(data.labels[k] for k in which))


def without(data, forgotten):
    """Return all labelled documents but those at some positions."""
    return take(data, np.setdiff1d(np.arange(len(data)), forgotten))


def labelled(planted, which=None, classes=3, seed=1):
    """Documents of a planted corpus, labelled by their strongest topic, one label in ten at random."""
    which = np.arange(len(planted.documents)) if which is None else which
    batch = DocumentBatch.build(planted.documents)
    amounts = LabelledDocuments.of(batch, planted.words, [""] * batch.documents).counts
    rng = np.random.default_rng(seed)
    labels = np.argmax(amounts @ (planted.A / planted.A.sum(axis=1, keepdims=True)), axis=1) % classes
    flipped = rng.random(len(labels)) < 0.1
    labels[flipped] = rng.integers(0, classes, flipped.sum())
    everything = LabelledDocuments.of(batch, planted.words, [f"class {k}" for k in labels])
    return take(everything, np.asarray(which))


def matrix(fit):
    """The task's view of a fit."""
    return TopicMatrix(fit.A, fit.words, fit.anchors)


@pytest.fixture(scope="module")
def fitted(planted):
    """A fit of the whole planted corpus."""
    return learn(planted.counts(planted.options()), planted.options())


def forgotten(planted, fit, gone):
    """The model without some documents, updated."""
    options = fit.options
    everything, part = planted.counts(options), planted.counts(options, gone)
    now = Counts(everything.words, everything.cooccurrence - part.cooccurrence)
    delta = Counts(everything.words, Cooccurrence.zero(len(now.words)) - part.cooccurrence)
    outcome = update(fit, now, delta)
    assert isinstance(outcome, TopicFit), outcome
    return outcome


@given(st.integers(0, 1000), st.sampled_from([1e-9, 1e-5, 1.0]), st.floats(0, 1e4))
@settings(max_examples=30)
def test_newton_arrives_from_anywhere(seed, ridge, far):
    """From any start the minimum is reached and the certificate bounds the distance to it, separable data included."""
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(4, 0.3), 60) * 0.01
    member = phi[:, 0] > np.median(phi[:, 0])
    found = minimise(phi, member, ridge, rng.normal(size=4) * far, ridge * 1e-6)
    best = minimise(phi, member, ridge, np.zeros(4), ridge * 1e-9)
    assert found.gradient <= ridge * 1e-6
    assert np.linalg.norm(found.w - best.w) <= (found.gradient + best.gradient) / ridge
    near = [loss(phi, member, ridge, found.w + s) for s in rng.normal(size=(20, 4)) * 0.1]
    assert loss(phi, member, ridge, found.w) <= min(near)


def test_rounding_bounds_the_error_of_a_gradient_of_many_documents():
    """Against sums of exact fractions; the bound grows with blocks and not with documents."""
    rng = np.random.default_rng(0)
    phi, member, w = rng.random((5000, 2)) * 1e-3, rng.random(5000) < 0.3, np.array([900.0, -700.0])
    g = gradient(phi, member, 1e-9, w)
    residual = [Fraction(float(value)) for value in expit(phi @ w) - member]
    for k in range(2):
        exact = sum((r * Fraction(float(x)) for r, x in zip(residual, phi[:, k], strict=True)), Fraction(0)) / 5000
        exact += Fraction(1e-9) * Fraction(float(w[k]))
        assert abs(Fraction(float(g[k])) - exact) <= Fraction(rounding(phi, 1e-9, w))
    many, few = (rounding(np.full((m, 2), 1e-3), 1e-9, w) for m in (100_000, 1000))
    assert many < 1.5 * few


def test_a_head_is_the_minimum_scikit_learn_finds(planted, fitted):
    """One class against the others is logistic regression with C = 1 / (m lambda) and no intercept."""
    from sklearn.linear_model import LogisticRegression

    data, task = labelled(planted), HeadTask(ridge=1e-3, tolerance=1e-9)
    head = fit_head(matrix(fitted), data, task)
    phi = data.frequencies(fitted.words) @ fitted.A
    other = LogisticRegression(C=1 / (len(data) * task.ridge), fit_intercept=False, tol=1e-12, max_iter=10_000)
    for c, member in enumerate(data.membership.T):
        assert other.fit(phi, member).coef_[0] == pytest.approx(head.w[:, c], abs=1e-4)
    assert head.distance <= task.tolerance


def test_a_head_on_a_released_model_is_post_processing(planted, fitted):
    """Fitted from zero it is the same bits for whoever holds the released A and the documents that are left."""
    released = TopicMatrix(np.asarray(np.float32(fitted.A), np.float64), fitted.words, fitted.anchors)
    gone = np.array([3, 99, 200])
    first = fit_head(released, without(labelled(planted), gone), TASK)
    second = fit_head(released, labelled(planted, np.setdiff1d(np.arange(600), gone)), TASK)
    assert first.w.tobytes() == second.w.tobytes()


def test_a_task_uses_the_topics_it_declares(planted, fitted):
    """Other topics get no weight: B stays the same whatever becomes of their columns."""
    chosen = (fitted.anchors[2], fitted.anchors[0])
    task = HeadTask(topics=chosen, ridge=1e-5, tolerance=1e-7)
    head = fit_head(matrix(fitted), labelled(planted), task)
    assert head.topics == chosen
    assert head.w.shape == (2, 3)
    A = fitted.A.copy()
    A[:, [1, 3]] = A[:, [3, 1]]
    again = fit_head(TopicMatrix(A, fitted.words, fitted.anchors), labelled(planted), task)
    assert again.task_weights(TopicMatrix(A, fitted.words, fitted.anchors)).tobytes() == (
        head.task_weights(matrix(fitted)).tobytes()
    )


def component_outside(B, A):
    """||B - P B||_F / ||B||_F, P the projection on col(A): 0 to rounding where B = A w. B (n, C), A (n, r)."""
    basis = np.linalg.svd(A, full_matrices=False)
    kept = basis[0][:, basis[1] > basis[1][0] * 1e-12]
    size = float(np.linalg.norm(B))
    return float(np.linalg.norm(B - kept @ (kept.T @ B))) / size if size else 0.0


def test_the_papers_form_leaks_and_ours_does_not(planted):
    """(A^S)^+ A w puts B into the old model's space; a retraining's B, and ours, lies in the new one's."""
    options = planted.options(min_df=1)
    fit = learn(planted.counts(options), options)
    before = TopicMatrix(fit.A.copy(), fit.words, fit.anchors)
    model = matrix(forgotten(planted, fit, np.arange(3)))
    assert model.words == before.words
    assert model.anchors == before.anchors
    head = fit_head(model, without(labelled(planted), np.arange(30)), TASK)
    B = head.task_weights(model)
    literal = before.A @ literal_head(before.A, model.A, head.w)
    assert component_outside(B, model.A) < 1e-13
    assert component_outside(literal, model.A) > 1e-4
    noise = np.random.default_rng(0).normal(size=(before.A.shape[1], 3)) * np.abs(head.w).max()
    assert component_outside(literal + before.A @ noise, model.A) > 1e-4
    equal = np.repeat(model.A[:, :1], 2, axis=1)
    with pytest.raises(CannotLearn, match="left inverse"):
        literal_head(equal, equal, np.ones((2, 1)))


def test_bad_input_is_named(planted, fitted):
    """Nothing is returned for a task that makes no sense; the message says what to change."""
    model, data = matrix(fitted), labelled(planted)
    one = take(data, np.flatnonzero(np.array(data.labels) == "class 1"))
    # Whoever may add documents cannot make heads of any size.
    ids = dataclasses.replace(data, labels=tuple(f"id-{k}" for k in range(len(data))))
    with pytest.raises(CannotLearn, match="600 classes, more than 500"):
        fit_head(model, ids, TASK)
    equal = TopicMatrix(np.repeat(fitted.A[:, :1], 4, axis=1), fitted.words, fitted.anchors)
    with pytest.raises(CannotLearn, match="raise ridge or tolerance"):
        fit_head(equal, data, HeadTask(ridge=1e-40, tolerance=1e-9))
    with pytest.raises(CannotLearn, match="only 'class 1' is left"):
        fit_head(model, one, TASK)
    with pytest.raises(CannotLearn, match="no labelled document is left"):
        fit_head(model, without(data, np.arange(600)), TASK)
    with pytest.raises(CannotLearn, match="anchor words gone, lost"):
        fit_head(model, data, HeadTask(topics=(fitted.anchors[0], "gone", "lost")))
    with pytest.raises(CannotLearn, match="holds a word of the model"):
        fit_head(TopicMatrix(fitted.A, tuple(f"other {w}" for w in fitted.words), fitted.anchors), data, TASK)
    with pytest.raises(CannotLearn, match="raise ridge or tolerance"):
        fit_head(model, data, HeadTask(ridge=1e-9, tolerance=1e-15))
    with pytest.raises(UsageError, match="labels for"):
        LabelledDocuments.of(DocumentBatch.build(planted.documents), planted.words, ["x"])
    with pytest.raises(UsageError, match="not finite"):
        TopicMatrix(fitted.A * np.nan, fitted.words, fitted.anchors)
    with pytest.raises(UsageError, match="anchors"):
        TopicMatrix(fitted.A, fitted.words[1:], fitted.anchors)
    for wrong in ({"tau": -1e-9}, {"ridge": 0.0}, {"tolerance": -1.0}, {"tau": np.nan}, {"topics": ("a", "a")}):
        with pytest.raises(UsageError):
            HeadTask(**wrong)
