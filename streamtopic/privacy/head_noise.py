"""Noise of a head: how far B = A w can lie from the exact one, and the noise that hides the difference.

Let A* be the exact optimum for the retained counts, w* the head of A*, and B* = A* w*. A run that computes A within D_A
and w within g of its own optimum releases a B with

    ||B - B*||_F <= ||A||_2 g + D_A (||w|| + g) + (||A||_2 + D_A) L_F D_A / lambda,

so a run that unlearned and one that retrained differ by twice that. The last term is the paper's lemma "ERM Lipschitz",
||w*(A_1) - w*(A_2)|| <= L_F ||A_1 - A_2|| / lambda, with L_F measured instead of assumed. Nothing depends on how many
documents were forgotten. C classes are one matrix: norms are Frobenius norms over all of them.

Source: the paper, appendix "Downstream task proofs", and its decomposition of A w - A^F w^F.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamtopic.errors import CannotLearn, UsageError
from streamtopic.privacy.keystream import NoiseSeed
from streamtopic.privacy.noise import NoisedMatrix, add_noise, plan_noise
from streamtopic.topics.heads import rounding_bound
from streamtopic.topics.tasks import HeadTask, LabelledDocuments, TopicMatrix

__all__ = ["HeadConstants", "head_constants", "head_sensitivity", "newton_step_error", "release_task_weights"]

Float64 = npt.NDArray[np.float64]

# Coarse enough that two runs hardly ever round to other numbers, at the cost of a little more noise.
_STEPS_PER_OCTAVE = 8
_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True)
class HeadConstants:
    """Upper bounds of the numbers that make the sensitivity, rounded up so that both runs have the same.

    They hold for every A within D_A of the one measured.

    ridge: lambda.
    documents, classes, topics: m, C, k.
    base_error: D_A.
    spectral: ||A||_2.
    mean_x, mean_phi: mean ||x||_2 and mean ||phi||_2, phi = A^T x.
    mean_x_phi, mean_phi_cubed: mean ||x|| ||phi|| and mean ||phi||^3.
    settled: whether no run within D_A of the exact A could have rounded to other numbers.
    """

    ridge: float
    documents: int
    classes: int
    topics: int
    base_error: float
    spectral: float
    mean_x: float
    mean_phi: float
    mean_x_phi: float
    mean_phi_cubed: float
    settled: bool

    @property
    def weights(self) -> float:
        """||w||_F <= sqrt(C) min(sqrt(2 ln 2 / lambda), mean ||phi|| / lambda), of an optimal head."""
        one = min(math.sqrt(2 * math.log(2) / self.ridge), self.mean_phi / self.ridge)
        return math.sqrt(self.classes) * one

    @property
    def lipschitz(self) -> float:
        """L_F: how much grad f at an optimal head moves with ||A||_F. mean ||x|| (sqrt(C) + ||w||_F ||phi|| / 4)."""
        return self.mean_x * math.sqrt(self.classes) + self.weights * self.mean_x_phi / 4

    @property
    def hessian_lipschitz(self) -> float:
        """L_2: how much the second derivative moves with ||w||, mean ||phi||^3 / (6 sqrt 3)."""
        return self.mean_phi_cubed / (6 * math.sqrt(3))

    def check_reach(self, task: HeadTask) -> None:
        """Raise CannotLearn where rounding may keep a head from its tolerance.

        By numbers that every run has alike, so that whether there is a head at all gives nothing away; four times as
        strict as a fit, which therefore succeeds wherever this does.
        """
        square = self.mean_phi_cubed ** (2 / 3)
        floor = rounding_bound(self.documents, self.topics, self.mean_phi, square, self.ridge, self.weights)
        # Each class is solved to its share of the tolerance.
        reach = 4 * floor * math.sqrt(self.classes) / self.ridge
        if reach > task.distance:
            raise CannotLearn(
                "head tolerance",
                f"the head can be known to {reach:.1e} only, not {task.distance:.1e}: raise ridge or tolerance",
            )


def head_constants(
    model: TopicMatrix, data: LabelledDocuments, task: HeadTask, base_error: float, *, cold: bool = False
) -> HeadConstants:
    """Measure the constants of a task for an A that is within `base_error` of the exact one in Frobenius norm.

    base_error: a constant of the settings that the certificate keeps, not the certificate itself, which differs from
    run to run. Numbers are rounded up to eighths of an octave. Where another run's A could have led to other numbers
    the result is not `settled`: measure again on an A from a cold start, which is the same bits on every path, and say
    `cold`. Raises UsageError for a negative base_error, CannotLearn as `fit_head`.
    """
    if not (base_error >= 0 and math.isfinite(base_error)):
        raise UsageError(f"the base model's error is {base_error}: give the bound that its certificate keeps")
    A, X = model.columns(task), data.frequencies(model.words)
    x = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    phi = np.linalg.norm(X @ A, axis=1)
    drift = x * base_error
    rounding = (sum(A.shape) + len(data) + 16) * _UNIT
    spectral, first = _rounded_up(float(np.linalg.norm(A, 2)), base_error, rounding)
    mean_phi, second = _rounded_up(float(phi.mean()), float(drift.mean()), rounding)
    mean_x_phi, third = _rounded_up(float((x * phi).mean()), float((x * drift).mean()), rounding)
    # ||phi|| <= ||x|| ||A||_2 bounds the change of the cube by numbers that both runs share.
    cube_drift = float((3 * (x * spectral + drift) ** 2 * drift).mean())
    mean_phi_cubed, fourth = _rounded_up(float((phi**3).mean()), cube_drift, rounding)
    return HeadConstants(
        ridge=task.ridge,
        documents=len(data),
        classes=len(data.classes),
        topics=A.shape[1],
        base_error=base_error,
        spectral=spectral,
        mean_x=float(x.mean()) * (1 + rounding),
        mean_phi=mean_phi,
        mean_x_phi=mean_x_phi,
        mean_phi_cubed=mean_phi_cubed,
        settled=cold or (first and second and third and fourth),
    )


def head_sensitivity(constants: HeadConstants, task: HeadTask) -> float:
    """Greatest ||B - B'||_F between two runs on the same retained documents, one unlearned and one retrained.

    tau > 0 adds sqrt(2 tau / lambda), how far a tau-optimal head may lie from the optimum, to each run's g.
    """
    g = task.tolerance + math.sqrt(2 * task.tau / task.ridge)
    D, spectral = constants.base_error, constants.spectral
    own = spectral * g + D * (constants.weights + g)
    return 2 * (own + (spectral + D) * constants.lipschitz * D / constants.ridge)


def newton_step_error(constants: HeadConstants, distance: float, tau: float = 0.0) -> float:
    """Bound on ||w - w*|| for one class after the paper's single Newton step.

    distance: L ||A - A^S|| / lambda, how far the optimum moved; tau: how far from optimal w^S was, as loss. Source:
    the lemma on the approximation error of the Newton step, L_2 distance^2 / (2 lambda), and its version for inexact
    minimisers, (L_2 / lambda) (2 tau / lambda + distance^2).
    """
    if tau < 0 or distance < 0:
        raise UsageError(f"tau {tau} and distance {distance} are lengths: give 0 or more")
    curvature = constants.hessian_lipschitz / constants.ridge
    if tau == 0:
        return curvature * distance**2 / 2
    return curvature * (2 * tau / constants.ridge + distance**2)


def release_task_weights(
    B: Float64,
    constants: HeadConstants,
    task: HeadTask,
    *,
    epsilon: float,
    delta: float,
    seed: NoiseSeed,
    together: int = 1,
) -> NoisedMatrix:
    """B = A w (n, C) with noise on all of its numbers jointly: (epsilon, delta)-indistinguishable from a retraining.

    together: how many heads are released at once; sqrt(together) times the noise makes all of them (epsilon, delta)
    together, since mu^2 is the sum of 1 / scale^2. The noise is a function of the constants and the task: made for the
    sensitivity rounded up to an eighth of an octave. Raises
    UsageError for a guarantee that makes no sense, a B that is not finite or of other classes; CannotLearn where the
    constants are not settled.
    """
    if B.ndim != 2 or B.shape[1] != constants.classes or not np.isfinite(B).all():
        raise UsageError(f"B {B.shape} is not a finite matrix of {constants.classes} classes: fit the head again")
    if not constants.settled:
        raise CannotLearn(
            "head constants",
            "another run could have measured other constants, and so other noise: retrain from counts, then measure",
        )
    # Sigma is published: with all digits it would tell the mean norm of the labelled documents.
    sensitivity = _ceiling(head_sensitivity(constants, task))
    shared = plan_noise(math.sqrt(together) * sensitivity, epsilon, delta)
    plan = replace(shared, sensitivity=sensitivity, scale=math.sqrt(together) * shared.scale)
    noised = add_noise(B, plan, seed)
    return NoisedMatrix(noised, noised, plan)


def _rounded_up(value: float, error: float, rounding: float) -> tuple[float, bool]:
    """Round up to eighths of an octave; also whether a value within twice the error would have come out the same.

    Two runs lie within `error` of the exact value each. If one is settled and the other is not, the other measures
    again on the exact path, whose value the first one's test has covered: the same number for both.
    """
    slack = error + rounding * value
    low, middle, high = (_ceiling(max(v, 0.0)) for v in (value - 2 * slack, value, value + 2 * slack))
    return middle * (1 + rounding) + error, low == high


def _ceiling(value: float) -> float:
    return 2.0 ** (math.ceil(_STEPS_PER_OCTAVE * math.log2(value)) / _STEPS_PER_OCTAVE) if value > 0 else 0.0
