"""What a head may reveal, and how many deletions it bears."""

import math
from fractions import Fraction
from operator import mul, sub

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from streamtopic.errors import CannotLearn, UsageError
from streamtopic.privacy.accounting import Composition, gaussian_scale
from streamtopic.privacy.head_noise import head_constants, head_sensitivity, release_task_weights
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.privacy.noise import CalibratedGuarantee
from streamtopic.topics.certificate import gamma
from streamtopic.topics.heads import (
    HeadTask,
    LabelledDocuments,
    TopicMatrix,
    fit_head,
    gradient,
)

SEED = NoiseKey(bytes(range(32))).of("news", 1).seed("digest", "sport")
GUARDED = CalibratedGuarantee(1.0, 1e-6, 1e-9)
N, R = 40, 4
WORDS = tuple(f"w{k:02d}" for k in range(N))
ANCHORS = WORDS[:R]


def made(seed, documents=80, classes=3):
    """A topic matrix and documents of its topics with labels."""
    rng = np.random.default_rng(seed)
    A = rng.dirichlet(np.full(N, 0.2), R).T
    theta = rng.dirichlet(np.full(R, 0.3), documents)
    counts = np.array([rng.multinomial(30, A @ t) for t in theta])
    label = np.argmax(theta, axis=1) % classes
    label[:classes] = np.arange(classes)
    labels = tuple(f"c{k}" for k in label)
    return TopicMatrix(A, WORDS, ANCHORS), LabelledDocuments(WORDS, csr_array(counts), labels)


def nudged(model, size, rng, toward=None):
    """The model with an A at Frobenius distance `size`, anywhere or along a direction."""
    change = rng.normal(size=model.A.shape) if toward is None else toward
    return TopicMatrix(model.A + change * (size / np.linalg.norm(change)), model.words, model.anchors)


@given(st.integers(0, 500), st.sampled_from([1e-4, 1e-3, 1e-2]), st.sampled_from([1e-6, 1e-4]), st.floats(0, 1e-4))
@settings(max_examples=25)
def test_no_two_runs_differ_by_more_than_the_sensitivity(seed, ridge, base_error, tau):
    """Whatever errors A and w have within their bounds, directions chosen against the bound included."""
    rng = np.random.default_rng(seed)
    model, data = made(seed)
    task = HeadTask(ridge=ridge, tolerance=1e-7, tau=tau)
    exact = HeadTask(ridge=ridge, tolerance=1e-7)
    best = fit_head(model, data, exact)
    steep = np.outer(data.frequencies(WORDS).mean(axis=0), best.w.sum(axis=1))
    runs = []
    for toward in (None, None, steep, -steep):
        near = nudged(model, base_error, rng, toward)
        constants = head_constants(near, data, task, base_error)
        bound = head_sensitivity(constants, task)
        w = fit_head(near, data, exact).w
        error = rng.normal(size=w.shape)
        error *= math.sqrt(2 * tau / ridge) / np.linalg.norm(error)
        runs.append((near.A @ (w + error), bound))
    worst = max(np.linalg.norm(a - b) for a, _ in runs for b, _ in runs)
    assert worst <= min(bound for _, bound in runs)


@given(st.integers(0, 500), st.sampled_from([1e-5, 1e-3, 1.0]))
@settings(max_examples=25)
def test_constants_bound_what_they_name(seed, ridge):
    """Norm of the weights, and the rate at which the gradient moves, at A and near it."""
    rng = np.random.default_rng(seed)
    model, data = made(seed)
    task = HeadTask(ridge=ridge)
    constants = head_constants(model, data, task, 1e-3)
    head = fit_head(model, data, task)
    assert np.linalg.norm(head.w) <= constants.weights
    assert np.linalg.norm(model.A, 2) <= constants.spectral
    X = data.frequencies(WORDS)
    near = nudged(model, 1e-3, rng)

    def slope(A):
        members = data.membership.T
        return np.array([gradient(X @ A, y, ridge, head.w[:, c]) for c, y in enumerate(members)])

    assert np.linalg.norm(slope(near.A) - slope(model.A)) <= constants.lipschitz * 1e-3


@pytest.mark.parametrize("topics", [1, 2, R])
def test_the_sensitivity_holds_what_floating_point_adds(topics):
    """Without an error of A or of w, runs differ by the rounding of A^T x and of A w, held against rationals."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        model, data = made(seed)
        task = HeadTask(ridge=1e-4, topics=ANCHORS[:topics], tolerance=1e-30)
        constants = head_constants(model, data, task, 0.0)
        w = rng.normal(size=(topics, constants.classes))
        w *= constants.weights / np.linalg.norm(w) * (1 - 1e-12)
        A = model.columns(task)
        lost = lost_in_product(A @ w, exact(A), exact(w))
        assert 0 < np.linalg.norm(lost) <= head_sensitivity(constants, task) / 2
        counts = exact(data.over(WORDS).counts.toarray())
        shares = [[value / sum(row) for value in row] for row in counts]
        features = data.frequencies(WORDS) @ A
        off = lost_in_product(features, shares, exact(A)) / features
        assert 0 < np.abs(off).max() <= gamma(constants.entries + 2.0)


def exact(array):
    """Return the numbers of a matrix as rationals."""
    return [[Fraction(value) for value in row] for row in array.tolist()]


def lost_in_product(computed, left, right):
    """Return how far a computed product is from that of two matrices of rationals."""
    columns = [*zip(*right, strict=True)]
    products = [[sum(map(mul, row, column)) for column in columns] for row in left]
    lost = [map(sub, row, other) for row, other in zip(exact(computed), products, strict=True)]
    return np.array([[float(value) for value in row] for row in lost])


@given(st.integers(1, 12), st.floats(0.1, 5))
@settings(max_examples=20)
def test_heads_of_one_version_spend_epsilon_together(heads, epsilon):
    """However many heads are released at once, and however different, together they compose to epsilon and not more.

    Sigma is s(epsilon, delta) times the sensitivity, rounded up to an eighth of an octave, and draws are as large.
    """
    plans = []
    for k in range(heads):
        model, data = made(k)
        task = HeadTask(ridge=10.0 ** -(k % 4), tolerance=1e-8)
        constants = head_constants(model, data, task, 1e-9)
        B = fit_head(model, data, task).task_weights(model)
        claim = CalibratedGuarantee(epsilon, 1e-6, 1e-9)
        release = release_task_weights(B, constants, task, claim, SEED, together=heads)
        assert 1 <= release.plan.sensitivity / head_sensitivity(constants, task) < 2 ** (1 / 8)
        assert (8 * math.log2(release.plan.sensitivity)).is_integer()
        needed = math.sqrt(heads) * gaussian_scale(epsilon, 1e-6) * release.plan.sensitivity
        assert release.plan.sigma == pytest.approx(needed, rel=1e-6)
        assert (release.matrix - B).std() == pytest.approx(needed, rel=0.25)
        plans.append(release.plan)
    spent = Composition.of((plan.scale, 0.0) for plan in plans).epsilon(1e-6)
    assert spent == pytest.approx(epsilon, rel=1e-6)


@given(st.integers(0, 200), st.sampled_from([1e-12, 1e-9, 1e-6, 1e-3]), st.sampled_from([1e-12, 1e-8, 1e-5, 1e-2]))
@settings(max_examples=40)
def test_a_head_is_as_near_as_its_task_asks_or_refused(seed, ridge, tolerance):
    """Only rounding keeps one from a tolerance that lies within reach of floats."""
    model, data = made(seed)
    task = HeadTask(ridge=ridge, tolerance=tolerance)
    try:
        head = fit_head(model, data, task)
    except CannotLearn:
        assert ridge * tolerance < 1e-9
        return
    assert head.distance <= tolerance * (1 + 1e-9)


def test_bad_input_is_named():
    """A guarantee, a bound or a matrix that makes no sense is refused before any noise is drawn."""
    model, data = made(1)
    task = HeadTask(ridge=0.01)
    constants = head_constants(model, data, task, 1e-9)
    B = fit_head(model, data, task).task_weights(model)
    for epsilon, delta in ((0.0, 1e-6), (-1.0, 1e-6), (1.0, 0.0), (1.0, 1.0)):
        with pytest.raises(UsageError):
            release_task_weights(B, constants, task, CalibratedGuarantee(epsilon, delta, 1e-9), SEED)
    for wrong in (B[:, :1], B * np.nan):
        with pytest.raises(UsageError, match="fit the head again"):
            release_task_weights(wrong, constants, task, GUARDED, SEED)
    for error in (-1e-9, np.nan, np.inf):
        with pytest.raises(UsageError, match="certificate"):
            head_constants(model, data, task, error)
    with pytest.raises(CannotLearn, match="gone"):
        head_constants(model, data, HeadTask(topics=("nowhere",)), 1e-9)
