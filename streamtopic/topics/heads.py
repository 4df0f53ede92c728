"""Heads of a downstream task: one logistic classifier a class on phi = A^T x, fitted and unlearned.

    fit_head      A_head: w = argmin of mean f(x^T A w, y) + lambda/2 ||w||^2 on the task's topics, from zero
    unlearn_head  U_head: Newton steps from w^S on the new A and the labelled documents that are left
    newton_step   the paper's single step
    task_weights  B = A w (n, C), what is released where A is withheld

Where A is published, fit the head on the A that was published: for the base documents that is post-processing of A
(the paper's theorem 2, "naive"), and since a fit starts from zero it is a function of that A and the labelled documents
that are left, the same bits for a retraining. Where A is withheld, B is released with noise: streamtopic.privacy.heads.

Source: the paper, sections 2 (tau-head tuning) and 5 (Algorithm 2). Differences: Newton is repeated until the
residual certifies the distance to the optimum, in place of one step with a worst-case bound; and B = A w is released in
place of (A^S)^+ A w, which leaks (`streamtopic.topics.literal_head`).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from streamtopic.errors import CannotLearn
from streamtopic.topics.logistic import gradient, hessian, minimise
from streamtopic.topics.tasks import HeadTask, LabelledDocuments, TopicMatrix

__all__ = ["TopicHead", "fit_head", "newton_step", "unlearn_head"]

Float = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class TopicHead:
    """A head: w (k, C), for the task's topics, named by anchor word, and its classes; 0 on all other topics.

    gradient: bound on the Frobenius norm of the loss's gradient at w, over all classes. steps: Newton steps of the
    class that took most.
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
    row, column = ({name: k for k, name in enumerate(names)} for names in (head.topics, head.classes))
    for k, topic in enumerate(topics):
        for c, name in enumerate(data.classes):
            if topic in row and name in column:
                start[k, c] = head.w[row[topic], column[name]]
    return start
