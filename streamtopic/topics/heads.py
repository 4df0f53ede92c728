"""Heads of a downstream task: one logistic classifier for each class on phi = A^T x, fitted and unlearned.

    fit_head      A_head: w = argmin of mean f(x^T A w, y) + lambda/2 ||w||^2 on the task's topics, from zero
    unlearn_head  U_head: Newton steps from w^S on the new A and the labelled documents that are left
    newton_step   the paper's single step
    task_weights  B = A w (n, C), which is released where A is withheld

Where A is published, the head is fitted on the published A. For the base documents that is post-processing of A (the
paper's theorem 2, "naive"). Since a fit starts from zero it is a function of that A and the labelled documents that are
left: a retraining has the same bits. Where A is withheld, B is released with noise: privacy.head_noise.

Source: the paper, sections 2 (tau-head tuning) and 5 (Algorithm 2). There are two differences. Newton is repeated until
the residual certifies the distance to the optimum, in place of one step with a worst-case bound. And B = A w is
released in place of (A^S)^+ A w, which leaks (`streamtopic.paper.literal_head`).

Each class is a ridge-regularised logistic regression, f = mean log(1 + exp(-s phi w)) + lambda/2 ||w||^2, with s = 1
for a document of the class and -1 for another one. The loss is lambda-strongly convex, so ||w - w*|| <=
||grad f|| / lambda: the certificate does not need constants of the data.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.special import expit

from streamtopic.counts.arrays import Float, Mask
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


_UNIT = 2.0**-53
_MOST_STEPS = 200
# The shortest step that is tried: a shorter one moves less than rounding does.
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
    """Fit a head from zero. It is a function of A, the labelled documents in their order, and the task alone.

    Raises CannotLearn where fewer than two classes are left, an anchor word of the task is gone, no document holds a
    word of the model, or rounding keeps the head from the task's tolerance. Source: the paper, section 2.
    """
    return _solved(model, data, task, None)


def unlearn_head(head: TopicHead, model: TopicMatrix, data: LabelledDocuments, task: HeadTask) -> TopicHead:
    """Carry a head w^S over to the model and the labelled documents without the forget set.

    A class without a document is dropped with its weights. Both this head and the one that `fit_head` would find lie
    within their `distance` of the optimum, so they differ by the sum of both at most.
    Raises as `fit_head`. Source: the paper, section 5, Algorithm 2.
    """
    return _solved(model, data, task, head)


def newton_step(head: TopicHead, model: TopicMatrix, data: LabelledDocuments, task: HeadTask) -> Float:
    """Return w - H^-1 grad at w^S, (k, C): Algorithm 2's single step, for comparison. Raises as `fit_head`."""
    phi = data.frequencies(model.words) @ model.columns(task)
    start = _start(head, model, data, task)
    steps = []
    for c, member in enumerate(data.membership.T):
        w = start[:, c]
        factor = cho_factor(hessian(phi, task.ridge, w))
        g = gradient(phi, member, task.ridge, w)
        steps.append(w - cho_solve(factor, g))
    return np.array(steps).T


def _solved(model: TopicMatrix, data: LabelledDocuments, task: HeadTask, head: TopicHead | None) -> TopicHead:
    """Minimise the loss of each class, from the weights of a head, or from zero for None."""
    columns = model.columns(task)
    phi = np.ascontiguousarray(data.frequencies(model.words) @ columns)
    start = _start(head, model, data, task)
    whole_goal = task.ridge * task.distance
    goal = whole_goal / math.sqrt(len(data.classes))
    solved = []
    for c, member in enumerate(data.membership.T):
        solved.append(minimise(phi, member, task.ridge, start[:, c], goal))
    reached = math.sqrt(sum(part.gradient**2 for part in solved))
    # Each class keeps its share of the goal. The root of the sum of their squares may round above the whole goal.
    if not reached <= whole_goal * (1 + 1e-12):
        raise CannotLearn(
            "head tolerance",
            f"rounding keeps the head at a distance of {reached / task.ridge:.1e}, above the {task.distance:.1e} that "
            "the task allows: raise ridge or tolerance",
        )
    topics = tuple(model.anchors[k] for k in model.positions(task))
    w = np.array([part.w for part in solved]).T
    steps = max(part.steps for part in solved)
    return TopicHead(topics, data.classes, w, task.ridge, reached, steps)


def _start(head: TopicHead | None, model: TopicMatrix, data: LabelledDocuments, task: HeadTask) -> Float:
    """Return the weights to start from, (k, C): those of the same topic and class in a head, else 0."""
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
    """One class of a head.

    w: (k,) weights.
    gradient: bound on ||grad||, its rounding included.
    steps: Newton steps that it took.
    """

    w: Float
    gradient: float
    steps: int


def loss(phi: Float, member: Mask, ridge: float, w: Float) -> float:
    """Return f(w).

    phi: (m, k) features of the documents.
    member: (m,) whether a document is of the class.
    ridge: lambda.
    w: (k,) weights.
    """
    margin = np.where(member, 1.0, -1.0) * (phi @ w)
    # log(1 + exp(-margin)), without an exponential that could overflow.
    costs = np.maximum(-margin, 0.0) + np.log1p(np.exp(-np.abs(margin)))
    return float(costs.mean() + ridge / 2 * (w @ w))


def gradient(phi: Float, member: Mask, ridge: float, w: Float) -> Float:
    """Return grad f(w), (k,): mean (sigma(phi w) - y) phi + lambda w. Parameters as in `loss`."""
    residual = expit(phi @ w) - member
    # Summed in blocks, so that rounding grows with the size and the number of blocks and not with their product.
    total = np.zeros(phi.shape[1])
    for start in range(0, len(phi), _BLOCK):
        block = slice(start, start + _BLOCK)
        total += residual[block] @ phi[block]
    return np.asarray(total / len(phi) + ridge * w)


def hessian(phi: Float, ridge: float, w: Float) -> Float:
    """Return the second derivative of f at w, (k, k): mean sigma (1 - sigma) phi phi^T + lambda I, without labels."""
    share = expit(phi @ w)
    weights = share * (1 - share)
    curvature = phi.T @ (phi * weights[:, None]) / len(phi)
    return np.asarray(curvature + ridge * np.eye(phi.shape[1]))


def rounding(phi: Float, ridge: float, w: Float) -> float:
    """Bound the rounding of a computed gradient. phi itself is taken as exact."""
    m, k = phi.shape
    mean = float(np.linalg.norm(np.abs(phi).mean(axis=0)))
    square = float(np.square(phi).sum()) / m
    return rounding_bound(m, k, mean, square, ridge, float(np.linalg.norm(w)))


def rounding_bound(m: int, k: int, mean: float, square: float, ridge: float, weights: float) -> float:
    """Bound the same from sizes alone: u times terms times sizes.

    m: documents.
    k: topics of the task.
    mean: at least || mean |phi| ||.
    square: at least mean ||phi||^2.
    ridge: lambda.
    weights: at least ||w||.
    """
    # A sum over a block, a sum over blocks, and 8 for everything around them.
    terms = min(m, _BLOCK) + -(-m // _BLOCK) + 8
    return _UNIT * (terms * mean + (k + 8) * weights * square / 4 + 4 * ridge * weights)


def minimise(phi: Float, member: Mask, ridge: float, start: Float, goal: float) -> Solved:
    """Take Newton steps from `start` until the gradient's norm, with its rounding, is at most `goal`.

    Where rounding ends the descent above `goal`, the norm that was reached is returned.

    start: (k,) weights. goal: of ||grad||. Other parameters as in `loss`.
    """
    w = start.copy()
    steps = 0
    g = gradient(phi, member, ridge, w)
    reached = float(np.linalg.norm(g)) + rounding(phi, ridge, w)
    while steps < _MOST_STEPS and reached > goal:
        try:
            factor = cho_factor(hessian(phi, ridge, w))
        except LinAlgError:
            # A ridge that is lost in the rounding of phi^T phi leaves directions without curvature.
            break
        moved = _descended(phi, member, ridge, w, g, cho_solve(factor, g))
        if moved is None:
            break
        w, g = moved
        reached = float(np.linalg.norm(g)) + rounding(phi, ridge, w)
        steps += 1
    return Solved(w, reached, steps)


def _descended(
    phi: Float, member: Mask, ridge: float, w: Float, g: Float, direction: Float
) -> tuple[Float, Float] | None:
    """Return the weights after a step and their gradient, or None where rounding leaves no step to take."""
    # A step is halved until it lowers the gradient's norm enough. That norm is stationary at the optimum only, so this
    # arrives from anywhere. The loss itself is too flat near the optimum to compare.
    norm = float(np.linalg.norm(g))
    step = 1.0
    while step >= _LEAST_STEP:
        trial = w - step * direction
        there = gradient(phi, member, ridge, trial)
        if float(np.linalg.norm(there)) <= (1 - step / 4) * norm:
            return trial, there
        step /= 2
    return None
