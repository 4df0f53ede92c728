"""Noise of a head: how far B = A w can lie from the exact B, and the noise that hides the difference.

Let A* be the exact optimum for the retained counts, w* the head of A*, and B* = A* w*. A run that computes A within D_A
and w within g of its own optimum releases a B with

    ||B - B*||_F <= ||A||_2 g + D_A (||w|| + g) + (||A||_2 + D_A) L_F D_A / lambda,

and what floating point adds to the features A^T x and to the product A w. So two runs differ by twice that. The last
term is the paper's lemma "ERM Lipschitz",

    ||w*(A_1) - w*(A_2)|| <= L_F ||A_1 - A_2|| / lambda,

with L_F measured instead of assumed. Nothing depends on how many documents were forgotten. C classes are one matrix:
norms are Frobenius norms over all of them.

Source: the paper, appendix "Downstream task proofs", and its decomposition of A w - A^F w^F.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamtopic.errors import UsageError
from streamtopic.privacy.keystream import NoiseSeed
from streamtopic.privacy.noise import CalibratedGuarantee, NoisedMatrix, add_noise, plan_noise
from streamtopic.topics.certificate import gamma
from streamtopic.topics.heads import HeadTask, LabelledDocuments, TopicMatrix

__all__ = ["HeadConstants", "head_constants", "head_sensitivity", "release_task_weights"]

Float64 = npt.NDArray[np.float64]

# Coarse enough that two runs hardly ever round to other numbers, at the cost of a little more noise.
_STEPS_PER_OCTAVE = 8
_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True)
class HeadConstants:
    """Upper bounds of the numbers that make the sensitivity. They hold for every A within D_A of the measured A.

    ridge: lambda.
    classes, topics: C, k.
    entries: the most distinct words of a document.
    base_error: D_A.
    spectral: ||A||_2.
    mean_x, mean_phi: mean ||x||_2 and mean ||phi||_2, phi = A^T x.
    mean_x_phi, mean_phi_cubed: mean ||x|| ||phi|| and mean ||phi||^3.
    """

    ridge: float
    classes: int
    topics: int
    entries: int
    base_error: float
    spectral: float
    mean_x: float
    mean_phi: float
    mean_x_phi: float
    mean_phi_cubed: float

    @property
    def weights(self) -> float:
        """||w||_F <= sqrt(C) min(sqrt(2 ln 2 / lambda), mean ||phi|| / lambda), of an optimal head."""
        # The optimum costs no more than w = 0, ln 2. And lambda w is a mean of gradients there, each ||phi|| at most.
        by_loss = math.sqrt(2 * math.log(2) / self.ridge)
        by_gradient = self.mean_phi / self.ridge
        return math.sqrt(self.classes) * min(by_loss, by_gradient)

    @property
    def lipschitz(self) -> float:
        """L_F: how much grad f at an optimal head moves with ||A||_F. mean ||x|| (sqrt(C) + ||w||_F ||phi|| / 4)."""
        at_zero = self.mean_x * math.sqrt(self.classes)
        return at_zero + self.weights * self.mean_x_phi / 4

    @property
    def rounding(self) -> float:
        """How far floating point moves B: by the features A^T x that a head is fitted on, and by the product A w."""
        # Terms of a feature are not negative, so its relative error is that of their sum. It moves the gradient as an
        # error of A would, and the optimum by 1 / lambda of that.
        square = self.mean_phi_cubed ** (2 / 3)
        slope = math.sqrt(self.classes) * self.mean_phi + self.weights * square / 4
        of_features = gamma(self.entries + 2.0) * slope / self.ridge
        # A is not negative either, so its sizes have its norm.
        of_product = gamma(float(self.topics)) * (self.weights + of_features)
        return float(self.spectral * (of_features + of_product))


def head_constants(model: TopicMatrix, data: LabelledDocuments, task: HeadTask, base_error: float) -> HeadConstants:
    """Measure the constants of a task for an A that is within `base_error` of the exact A in Frobenius norm.

    model: A and its words, learned from counts alone, so that every run has the same bits and the same constants.
    data: the labelled documents of the task.
    base_error: D_A, a constant of the settings. The certificate's own number differs from run to run, so it cannot be
        used here.

    Raises UsageError for a base_error that is negative or not finite, CannotLearn as `fit_head` does.
    """
    if not (base_error >= 0 and math.isfinite(base_error)):
        raise UsageError(f"the base model's error is {base_error}: give the bound that its certificate keeps")
    A = model.columns(task)
    X = data.frequencies(model.words)
    squares = X.multiply(X).sum(axis=1)
    x = np.sqrt(np.asarray(squares).ravel())
    phi = np.linalg.norm(X @ A, axis=1)
    drift = x * base_error
    # A number below comes from sums over words, topics and documents, one after the other, and a few operations more.
    terms = sum(A.shape) + len(data) + 16
    rounding = terms * _UNIT

    def bound(measured: npt.NDArray[np.floating] | np.floating, moved: Float64 | float) -> float:
        """Return the mean of what was measured, and how far the error of A moves it, rounded up."""
        return float(np.mean(measured)) * (1 + rounding) + float(np.mean(moved))

    spectral = bound(np.linalg.norm(A, 2), base_error)
    return HeadConstants(
        ridge=task.ridge,
        classes=len(data.classes),
        topics=A.shape[1],
        entries=int(np.diff(X.indptr).max()),
        base_error=base_error,
        spectral=spectral,
        mean_x=bound(x, 0.0),
        mean_phi=bound(phi, drift),
        mean_x_phi=bound(x * phi, x * drift),
        # ||phi|| <= ||x|| ||A||_2 bounds the change of the cube.
        mean_phi_cubed=bound(phi**3, 3 * (x * spectral + drift) ** 2 * drift),
    )


def head_sensitivity(constants: HeadConstants, task: HeadTask) -> float:
    """Greatest ||B - B'||_F between two runs on the same retained documents, one unlearned and one retrained.

    Source: twice the bound at the top of this file. A head that is tau-optimal may lie sqrt(2 tau / lambda) from the
    optimum, and this is added to each run's g.
    """
    g = task.tolerance + math.sqrt(2 * task.tau / task.ridge)
    D = constants.base_error
    spectral = constants.spectral
    own = spectral * g + D * (constants.weights + g)
    shared = (spectral + D) * constants.lipschitz * D / constants.ridge
    # Of a head that is g longer than the optimal one, the product loses as much more.
    rounding = constants.rounding + gamma(float(constants.topics)) * spectral * g
    return 2 * (own + shared + rounding)


def release_task_weights(
    B: Float64,
    constants: HeadConstants,
    task: HeadTask,
    guarded: CalibratedGuarantee,
    seed: NoiseSeed,
    *,
    together: int = 1,
) -> NoisedMatrix:
    """Add noise to all numbers of a head jointly: (epsilon, delta)-indistinguishable from a retraining.

    B: A w, (n, C), the head's weights on words.
    constants, task: of the head; the noise is a function of these two.
    guarded: the guarantee.
    seed: of this head's noise.
    together: how many heads are released at once. With sqrt(together) times the noise all of them are (epsilon, delta)
        together, since mu^2 is the sum of 1 / scale^2.

    Raises UsageError for a guarantee that makes no sense, or a B that is not finite or has other classes.
    """
    fits = B.ndim == 2 and B.shape[1] == constants.classes
    if not fits or not np.isfinite(B).all():
        raise UsageError(f"B {B.shape} is not a finite matrix of {constants.classes} classes: fit the head again")
    # Sigma is published: with all digits it would tell the mean norm of the labelled documents.
    sensitivity = _ceiling(head_sensitivity(constants, task))
    wider = math.sqrt(together)
    shared = plan_noise(wider * sensitivity, guarded.epsilon, guarded.delta)
    # The same sigma, written as a larger scale of one head's sensitivity, which is how an account composes heads.
    plan = replace(shared, sensitivity=sensitivity, scale=wider * shared.scale)
    noised = add_noise(B, plan, seed)
    return NoisedMatrix(noised, noised, plan)


def _ceiling(value: float) -> float:
    """Return the next power of 2^(1/8) at or above a value."""
    steps = math.ceil(_STEPS_PER_OCTAVE * math.log2(value))
    return float(2.0 ** (steps / _STEPS_PER_OCTAVE))
