"""A downstream task and its heads: one logistic classifier for each class on phi = A^T x.

    HeadTask, LabelledDocuments, TopicMatrix   the task's topics, its labelled documents, and the model as it sees it
    fit_head      A_head: w = argmin of mean f(x^T A w, y) + lambda/2 ||w||^2 on the task's topics, from zero
    task_weights  B = A w (n, C), which is released if A is withheld

Topics are declared by their anchor word, since their positions change at a retrain. A label is a part of its document,
so a document that is deleted is deleted from the task as well.

If A is published, the head is fitted on the published A. For the base documents that is post-processing of A (the
paper's theorem 2, "naive"). Since a fit starts from zero it is a function of that A and the labelled documents that are
left: a retraining has the same bits. If A is withheld, B is released with noise: privacy.head_noise.

Source: the paper, sections 2 (topic classification task, tau-head tuning) and 5 (Algorithm 2). There are two
differences. Newton begins at zero, and is repeated until the residual certifies the distance to the optimum, in place
of one step from the last head with a worst-case bound. And B = A w is released in place of (A^S)^+ A w, which leaks
(`streamtopic.paper.literal_head`).

Each class is a ridge-regularised logistic regression, f = mean log(1 + exp(-s phi w)) + lambda/2 ||w||^2, with s = 1
for a document of the class and -1 for another one. The loss is lambda-strongly convex, so ||w - w*|| <=
||grad f|| / lambda: the certificate does not need constants of the data.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import csr_array
from scipy.special import expit

from streamtopic.counts import DocumentBatch
from streamtopic.counts.arrays import Float, Mask, Positions, entry_rows
from streamtopic.errors import CannotLearn, UsageError

__all__ = [
    "HeadTask",
    "LabelledDocuments",
    "Solved",
    "TopicHead",
    "TopicMatrix",
    "fit_head",
    "gradient",
    "hessian",
    "minimise",
    "rounding",
]


# A class costs a fit of its own and a column of B, and whoever may add documents may add classes.
MOST_CLASSES = 500
_UNIT = 2.0**-53
_MOST_STEPS = 200
# The shortest step that is tried: a shorter one moves less than rounding does.
_LEAST_STEP = 2.0**-40
# Documents whose gradients are summed by themselves.
_BLOCK = 1024


@dataclass(frozen=True, slots=True)
class HeadTask:
    """How a head is fitted.

    topics: anchor words of the topics that the task depends on; empty for all.
    ridge: lambda, the strong convexity of the loss.
    tolerance: ||grad|| / lambda that a head must reach, an upper bound on its distance to the optimum.
    tau: the loss above the optimum that is allowed; it counts in place of `tolerance` if it allows more.

    Features A^T x are about 1e-3, so a ridge much above their squares hides them. Weights are about 1e4.
    Raises UsageError for numbers that are not possible.
    """

    topics: tuple[str, ...] = ()
    ridge: float = 1e-9
    tolerance: float = 1e-4
    tau: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("ridge", self.ridge), ("tolerance", self.tolerance)):
            if not (value > 0 and math.isfinite(value)):
                raise UsageError(f"{name} is {value}: use a number above 0")
        if not (self.tau >= 0 and math.isfinite(self.tau)):
            raise UsageError(f"tau is {self.tau}: use 0 for exact heads, or a number above 0 for the loss to allow")
        if len(set(self.topics)) < len(self.topics):
            raise UsageError(f"a topic is declared twice among {', '.join(self.topics)}: name each anchor word once")

    @property
    def distance(self) -> float:
        """Bound on ||w - w*||_F at which a head may stop: sqrt(2 tau / lambda), or the tolerance."""
        by_loss = math.sqrt(2 * self.tau / self.ridge)
        return max(self.tolerance, by_loss)


@dataclass(frozen=True, slots=True, eq=False)
class TopicMatrix:
    """A topic model as a task sees it.

    A: (n, r) columns on the simplex.
    words: (n,) the words of its rows.
    anchors: (r,) one anchor word a topic.

    If A is withheld, this is the exact one (`TopicFit.A`). If A is published, it is the one that was released: a
    head fitted on it is post-processing (the paper's naive setting, theorem 2).
    Raises UsageError if the shapes do not fit or A holds numbers that are not finite.
    """

    A: Float
    words: tuple[str, ...]
    anchors: tuple[str, ...]

    def __post_init__(self) -> None:
        shape = (len(self.words), len(self.anchors))
        if self.A.shape != shape:
            raise UsageError(
                f"A is {self.A.shape}, and there are {shape} words and anchors: "
                "give one row for each word and one column for each anchor"
            )
        if not np.isfinite(self.A).all():
            raise UsageError("A holds numbers that are not finite: fit the model again")

    def positions(self, task: HeadTask) -> Positions:
        """Return the columns of the task's topics, (k,), in the order declared.

        Raises CannotLearn if an anchor word of the task is not an anchor of this model.
        """
        place = {anchor: k for k, anchor in enumerate(self.anchors)}
        lost = [topic for topic in task.topics if topic not in place]
        if lost:
            there = ", ".join(self.anchors[:10])
            if len(self.anchors) > 10:
                there += " ..."
            raise CannotLearn(
                "task topics",
                f"the task depends on topics that are gone, with anchor words {', '.join(lost)}: "
                f"declare others among {there}",
            )
        declared = task.topics or self.anchors
        return np.array([place[topic] for topic in declared], np.intp)

    def columns(self, task: HeadTask) -> Float:
        """Return the task's columns of A, (n, k). Raises CannotLearn as `positions`."""
        chosen = self.A[:, self.positions(task)]
        return np.ascontiguousarray(chosen, np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class LabelledDocuments:
    """Documents with a class each.

    words: (n,) the words that are counted.
    counts: (documents, n) of each word in each document.
    labels: (documents,) the class of each document.
    A model keeps some of these words only, and other ones after a deletion. `frequencies` looks at those that it keeps.
    """

    words: tuple[str, ...]
    counts: csr_array
    labels: tuple[str, ...]

    @classmethod
    def of(cls, batch: DocumentBatch, words: Sequence[str], labels: Sequence[str]) -> "LabelledDocuments":
        """Take documents over some words. Raises UsageError unless there is one label for each document."""
        if len(labels) != batch.documents:
            raise UsageError(f"{len(labels)} labels for {batch.documents} documents: give one label for each document")
        owners = batch.owners[entry_rows(batch.indptr)]
        coordinates = (owners, batch.words)
        amounts = batch.counts.astype(np.float64)
        shape = (batch.documents, len(words))
        counts = csr_array((amounts, coordinates), shape=shape)
        # A task looks at whole documents: their passages are added up.
        counts.sum_duplicates()
        return cls(tuple(words), counts, tuple(labels))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of the documents, ascending, (C,). A class whose last document is gone leaves no trace."""
        return tuple(sorted(set(self.labels)))

    @property
    def membership(self) -> Mask:
        """Whether a document is of a class, (documents, C)."""
        place = {name: c for c, name in enumerate(self.classes)}
        classes = np.array([place[label] for label in self.labels], np.intp)
        numbers = np.arange(len(place))
        return np.asarray(classes[:, None] == numbers)

    def over(self, words: Sequence[str]) -> "LabelledDocuments":
        """Return the same documents over other words. A word that was not counted has 0."""
        if self.words == tuple(words):
            return self
        place = {word: k for k, word in enumerate(words)}
        found = [place.get(word, -1) for word in self.words]
        ids = np.array(found, np.intp)
        kept = np.flatnonzero(ids >= 0)
        some = self.counts[:, kept].tocoo()
        rows, columns = some.coords
        coordinates = (rows, ids[kept][columns])
        shape = (len(self), len(words))
        counts = csr_array((some.data, coordinates), shape=shape)
        # In a fixed order, since sums over a row go in the order of its entries.
        counts.sort_indices()
        return LabelledDocuments(tuple(words), counts, self.labels)

    def frequencies(self, words: Sequence[str]) -> csr_array:
        """Return x (documents, len(words)): the shares of some words in each document.

        Rows sum to 1, or to 0 for a document without one of the words.
        Raises CannotLearn unless there are 2 to 500 classes and some document holds one of the words.
        """
        classes = self.classes
        if len(classes) > MOST_CLASSES:
            raise CannotLearn(
                "classes",
                f"there are {len(classes)} classes, more than {MOST_CLASSES}: if each document has a label of its own, "
                "take a coarser label",
            )
        if len(classes) < 2:
            left = f"only {classes[0]!r} is" if classes else "no labelled document is"
            raise CannotLearn("classes", f"{left} left, and a head tells classes apart: label documents of two classes")
        counts = self.over(words).counts.tocoo()
        rows, columns = counts.coords
        totals = np.bincount(rows, counts.data, len(self))
        if not totals.any():
            raise CannotLearn("words", "no labelled document holds a word of the model: label documents of its kind")
        shares = counts.data / totals[rows]
        return csr_array((shares, (rows, columns)), shape=counts.shape)


@dataclass(frozen=True, slots=True, eq=False)
class TopicHead:
    """A head: weights for the task's topics, 0 on all other topics.

    topics: (k,) anchor words of the task's topics.
    classes: (C,) the classes.
    w: (k, C) weights.
    ridge: lambda of the task.
    gradient: bound on the Frobenius norm of the loss's gradient at w, over all classes.
    """

    topics: tuple[str, ...]
    classes: tuple[str, ...]
    w: Float
    ridge: float
    gradient: float

    @property
    def distance(self) -> float:
        """Bound on ||w - w*||_F for the A and documents it was fitted on: ||grad|| / lambda."""
        return self.gradient / self.ridge

    def task_weights(self, model: TopicMatrix) -> Float:
        """Return B = A w, (n, C): a document of word shares x is of the class with the largest x^T B."""
        columns = model.columns(HeadTask(self.topics))
        return np.asarray(columns @ self.w)


def fit_head(model: TopicMatrix, data: LabelledDocuments, task: HeadTask) -> TopicHead:
    """Fit a head from zero. It is a function of A, the labelled documents in their order, and the task alone.

    Raises CannotLearn if fewer than two classes are left, an anchor word of the task is gone, no document holds a
    word of the model, or rounding keeps the head from the task's tolerance. Source: the paper, section 2.
    """
    columns = model.columns(task)
    phi = np.ascontiguousarray(data.frequencies(model.words) @ columns)
    start = np.zeros(phi.shape[1])
    whole_goal = task.ridge * task.distance
    goal = whole_goal / math.sqrt(len(data.classes))
    solved = [minimise(phi, member, task.ridge, start, goal) for member in data.membership.T]
    squared_gradient = sum(part.gradient**2 for part in solved)
    reached = math.sqrt(squared_gradient)
    # Each class keeps its share of the goal. The root of the sum of their squares may round above the whole goal.
    if not reached <= whole_goal * (1 + 1e-12):
        distance = reached / task.ridge
        raise CannotLearn(
            "head tolerance",
            f"rounding keeps the head at a distance of {distance:.1e}, above the {task.distance:.1e} that "
            "the task allows: raise ridge or tolerance",
        )
    topics = tuple(model.anchors[k] for k in model.positions(task))
    w = np.array([part.w for part in solved]).T
    return TopicHead(topics, data.classes, w, task.ridge, reached)


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """One class of a head.

    w: (k,) weights.
    gradient: bound on ||grad||, its rounding included.
    """

    w: Float
    gradient: float


def gradient(phi: Float, member: Mask, ridge: float, w: Float) -> Float:
    """Return grad f(w), (k,): mean (sigma(phi w) - y) phi + lambda w.

    phi: (m, k) features of the documents.
    member: (m,) whether a document is of the class.
    ridge: lambda.
    w: (k,) weights.
    """
    residual = expit(phi @ w) - member
    # Summed in blocks, so that rounding grows with the size and the number of blocks and not with their product.
    total = np.zeros(phi.shape[1])
    for start in range(0, len(phi), _BLOCK):
        block = slice(start, start + _BLOCK)
        total += residual[block] @ phi[block]
    of_loss = total / len(phi)
    return np.asarray(of_loss + ridge * w)


def hessian(phi: Float, ridge: float, w: Float) -> Float:
    """Return the second derivative of f at w, (k, k): mean sigma (1 - sigma) phi phi^T + lambda I, without labels."""
    share = expit(phi @ w)
    weights = share * (1 - share)
    weighted = phi * weights[:, None]
    curvature = phi.T @ weighted / len(phi)
    identity = np.eye(phi.shape[1])
    return np.asarray(curvature + ridge * identity)


def rounding(phi: Float, ridge: float, w: Float) -> float:
    """Bound the rounding of a computed gradient: u times terms times sizes. phi itself is taken as exact."""
    m, k = phi.shape
    means = np.abs(phi).mean(axis=0)
    mean = float(np.linalg.norm(means))
    square = float(np.square(phi).sum()) / m
    length = float(np.linalg.norm(w))
    # A sum over a block, a sum over blocks, and 8 for everything around them.
    blocks = -(-m // _BLOCK)
    terms = min(m, _BLOCK) + blocks + 8
    of_features = (k + 8) * length * square / 4
    of_penalty = 4 * ridge * length
    return float(_UNIT * (terms * mean + of_features + of_penalty))


def minimise(phi: Float, member: Mask, ridge: float, start: Float, goal: float) -> Solved:
    """Take Newton steps from `start` until the gradient's norm, with its rounding, is at most `goal`.

    If rounding ends the descent above `goal`, the norm that was reached is returned.

    start: (k,) weights. goal: of ||grad||. Other parameters as in `gradient`.
    """
    w = start.copy()
    g = gradient(phi, member, ridge, w)
    reached = _norm_bound(g, phi, ridge, w)
    for _ in range(_MOST_STEPS):
        if reached <= goal:
            break
        try:
            factor = cho_factor(hessian(phi, ridge, w))
        except LinAlgError:
            # A ridge that is lost in the rounding of phi^T phi leaves directions without curvature.
            break
        direction = cho_solve(factor, g)
        moved = _descended(phi, member, ridge, w, g, direction)
        if moved is None:
            break
        w, g = moved
        reached = _norm_bound(g, phi, ridge, w)
    return Solved(w, reached)


def _norm_bound(g: Float, phi: Float, ridge: float, w: Float) -> float:
    """Bound the norm of the exact gradient, given the computed one."""
    computed = float(np.linalg.norm(g))
    return computed + rounding(phi, ridge, w)


def _descended(
    phi: Float, member: Mask, ridge: float, w: Float, g: Float, direction: Float
) -> tuple[Float, Float] | None:
    """Return the weights after a step and their gradient, or None if rounding leaves no step to take."""
    # A step is halved until it lowers the gradient's norm enough. That norm is stationary at the optimum only, so this
    # arrives from anywhere. The loss itself is too flat near the optimum to compare.
    norm = float(np.linalg.norm(g))
    step = 1.0
    while step >= _LEAST_STEP:
        trial = w - step * direction
        there = gradient(phi, member, ridge, trial)
        reached = float(np.linalg.norm(there))
        enough = (1 - step / 4) * norm
        if reached <= enough:
            return trial, there
        step /= 2
    return None
