"""Heads of a downstream task: one logistic classifier a class on phi = A^T x, fitted and unlearned.

    fit_head      A_head: w = argmin of mean f(x^T A w, y) + lambda/2 ||w||^2 on the task's topics, from zero
    unlearn_head  U_head: Newton steps from w^S on the new A and the labelled documents that are left
    newton_step   the paper's single step
    task_weights  B = A w (n, C), which is released where A is withheld

Where A is published, fit the head on the A that was published: for the base documents that is post-processing of A
(the paper's theorem 2, "naive"), and since a fit starts from zero it is a function of that A and the labelled documents
that are left, the same bits for a retraining. Where A is withheld, B is released with noise: privacy.head_noise.

Source: the paper, sections 2 (tau-head tuning) and 5 (Algorithm 2). Differences: Newton is repeated until the
residual certifies the distance to the optimum, in place of one step with a worst-case bound; and B = A w is released in
place of (A^S)^+ A w, which leaks (`streamtopic.paper.literal_head`).

Each class is a ridge-regularised logistic regression, f = mean log(1 + exp(-s phi w)) + lambda/2 ||w||^2, s = 1 or -1
as the document is of the class or not. The loss is lambda-strongly convex, so ||w - w*|| <= ||grad f|| / lambda: the
certificate needs no constant of the data.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit

from streamtopic.errors import CannotLearn
from streamtopic.topics.tasks import HeadTask, LabelledDocuments, TopicMatrix

__all__ = [
    "Solved",
    "TopicHead",
    "fit_head",
    "gradient",
    "hessian",
    "loss",
    "minimise",
    "newton_step",
    "rounding",
    "rounding_bound",
    "unlearn_head",
]

Float = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

_UNIT = 2.0**-53
_MOST_STEPS = 200
# A step halved so often moves less than rounding does.
_LEAST_STEP = 2.0**-40
# Documents whose gradients are summed by themselves.
_BLOCK = 1024


@dataclass(frozen=True, slots=True, eq=False)
class TopicHead:
    """A head: weights for the task's topics, 0 on all other topics.

    topics: (k,) anchor words of the task's topics.
    classes: (C,) the classes.
    w: (k, C) weights.
    ridge: lambda of the task.
    gradient: bound on the Frobenius norm of the loss's gradient at w, over all classes.
    steps: Newton steps of the class that took most.
    """

    topics: tuple[str, ...]
    classes: tuple[str, ...]
    w: Float
    ridge: float
    gradient: float
    steps: int

    @property
    def distance(self) -> float:
        """Bound on ||w - w*||_F for the A and documents it was fitted on: ||grad|| / lambda."""
        return self.gradient / self.ridge

    @property
    def gap(self) -> float:
        """Bound on the loss above its minimum, summed over classes, the paper's tau: ||grad||^2 / (2 lambda)."""
        return self.gradient**2 / (2 * self.ridge)

    def task_weights(self, model: TopicMatrix) -> Float:
        """Return B = A w, (n, C): a document of word shares x is of the class with the largest x^T B."""
        return np.asarray(model.columns(HeadTask(self.topics)) @ self.w)


def fit_head(model: TopicMatrix, data: LabelledDocuments, task: HeadTask) -> TopicHead:
    """Fit a head from zero: a function of A, the labelled documents in their order, and the task alone.

    Raises CannotLearn where fewer than two classes are left, an anchor word of the task is gone, no document holds a
    word of the model, or rounding keeps the head from the task's tolerance.
    """
    return _solved(model, data, task, None)


def unlearn_head(head: TopicHead, model: TopicMatrix, data: LabelledDocuments, task: HeadTask) -> TopicHead:
    """Carry a head w^S over to the model and the labelled documents without the forget set.

    A class without a document is dropped with its weights. The result lies within its `distance` of the head that
    `fit_head` would find, so the two differ by the sum of their distances at most. Raises as `fit_head`.
    """
    return _solved(model, data, task, head)


def newton_step(head: TopicHead, model: TopicMatrix, data: LabelledDocuments, task: HeadTask) -> Float:
    """Return w - H^-1 grad at w^S, (k, C): Algorithm 2's single step, for comparison. Raises as `fit_head`."""
    phi = data.frequencies(model.words) @ model.columns(task)
    start = _start(head, model, data, task)
    steps = []
    for c, member in enumerate(data.membership.T):
        factor = cho_factor(hessian(phi, task.ridge, start[:, c]))
        steps.append(start[:, c] - cho_solve(factor, gradient(phi, member, task.ridge, start[:, c])))
    return np.array(steps).T


def _solved(model: TopicMatrix, data: LabelledDocuments, task: HeadTask, head: TopicHead | None) -> TopicHead:
    columns = model.columns(task)
    phi = np.ascontiguousarray(data.frequencies(model.words) @ columns)
    start = _start(head, model, data, task)
    goal = task.ridge * task.distance / math.sqrt(len(data.classes))
    solved = [minimise(phi, member, task.ridge, start[:, c], goal) for c, member in enumerate(data.membership.T)]
    reached = math.sqrt(sum(part.gradient**2 for part in solved))
    # Each class keeps its share of the goal; the root of their squares may round above it.
    if not reached <= task.ridge * task.distance * (1 + 1e-12):
        raise CannotLearn(
            "head tolerance",
            f"the head is known to {reached / task.ridge:.1e} only, not {task.distance:.1e}: raise ridge or tolerance",
        )
    return TopicHead(
        topics=tuple(model.anchors[k] for k in model.positions(task)),
        classes=data.classes,
        w=np.array([part.w for part in solved]).T,
        ridge=task.ridge,
        gradient=reached,
        steps=max(part.steps for part in solved),
    )


def _start(head: TopicHead | None, model: TopicMatrix, data: LabelledDocuments, task: HeadTask) -> Float:
    """Return the weights to start from, (k, C): those of the same topics and classes, else 0."""
    topics = [model.anchors[k] for k in model.positions(task)]
    start = np.zeros((len(topics), len(data.classes)))
    if head is None:
        return start
    row = {name: k for k, name in enumerate(head.topics)}
    column = {name: k for k, name in enumerate(head.classes)}
    for k, topic in enumerate(topics):
        for c, name in enumerate(data.classes):
            if topic in row and name in column:
                start[k, c] = head.w[row[topic], column[name]]
    return start


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """w (k,), the bound on ||grad|| with its rounding, and how many Newton steps it took."""

    w: Float
    gradient: float
    steps: int


def loss(phi: Float, member: Bool, ridge: float, w: Float) -> float:
    """Return f(w). phi (m, k), member (m,), w (k,)."""
    margin = np.where(member, 1.0, -1.0) * (phi @ w)
    costs = np.maximum(-margin, 0.0) + np.log1p(np.exp(-np.abs(margin)))
    return float(costs.mean() + ridge / 2 * (w @ w))


def gradient(phi: Float, member: Bool, ridge: float, w: Float) -> Float:
    """Return grad f(w), (k,): mean (sigma(phi w) - y) phi + lambda w."""
    residual = expit(phi @ w) - member
    # Summed in blocks, so that rounding grows with the size and the number of blocks and not with their product.
    total = np.zeros(phi.shape[1])
    for start in range(0, len(phi), _BLOCK):
        total += residual[start : start + _BLOCK] @ phi[start : start + _BLOCK]
    return np.asarray(total / len(phi) + ridge * w)


def hessian(phi: Float, ridge: float, w: Float) -> Float:
    """Return the second derivative of f at w, (k, k): mean sigma (1 - sigma) phi phi^T + lambda I. No labels in it."""
    share = expit(phi @ w)
    curvature = phi.T @ (phi * (share * (1 - share))[:, None]) / len(phi)
    return np.asarray(curvature + ridge * np.eye(phi.shape[1]))


def rounding(phi: Float, ridge: float, w: Float) -> float:
    """Bound the rounding of a computed gradient, phi itself taken as exact: at most u times terms times sizes."""
    m, k = phi.shape
    mean = float(np.linalg.norm(np.abs(phi).mean(axis=0)))
    return rounding_bound(m, k, mean, float(np.square(phi).sum()) / m, ridge, float(np.linalg.norm(w)))


def rounding_bound(m: int, k: int, mean: float, square: float, ridge: float, weights: float) -> float:
    """Bound the same from sizes: mean >= ||mean |phi|||, square >= mean ||phi||^2, weights >= ||w||."""
    terms = min(m, _BLOCK) + -(-m // _BLOCK) + 8
    return _UNIT * (terms * mean + (k + 8) * weights * square / 4 + 4 * ridge * weights)


def minimise(phi: Float, member: Bool, ridge: float, start: Float, goal: float) -> Solved:
    """Take Newton steps from `start` until the gradient's norm, with its rounding, is at most `goal`.

    A step is halved until it lowers the gradient's norm enough. That norm has no stationary point but the optimum, so
    this arrives from anywhere; the loss itself is too flat near the optimum to compare. Where rounding ends the
    descent above `goal`, the norm that was reached is returned.
    """
    w, steps = start.copy(), 0
    g = gradient(phi, member, ridge, w)
    while steps < _MOST_STEPS and float(np.linalg.norm(g)) + rounding(phi, ridge, w) > goal:
        try:
            direction = cho_solve(cho_factor(hessian(phi, ridge, w)), g)
        except LinAlgError:
            # A ridge that is lost in the rounding of phi^T phi leaves directions without curvature.
            break
        moved = _descended(phi, member, ridge, w, g, direction)
        if moved is None:
            break
        w, g = moved
        steps += 1
    return Solved(w, float(np.linalg.norm(g)) + rounding(phi, ridge, w), steps)


def _descended(
    phi: Float, member: Bool, ridge: float, w: Float, g: Float, direction: Float
) -> tuple[Float, Float] | None:
    norm, step = float(np.linalg.norm(g)), 1.0
    while step >= _LEAST_STEP:
        trial = w - step * direction
        there = gradient(phi, member, ridge, trial)
        if float(np.linalg.norm(there)) <= (1 - step / 4) * norm:
            return trial, there
        step /= 2
    return None
