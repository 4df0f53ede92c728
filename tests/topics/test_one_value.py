"""An estimator's model is one value: readers in other threads and copies never see half of a change."""

import copy
import pickle
import sys
import threading

import numpy as np
import pytest

from streamtopic import AnchorTopics, TextTopics

RNG = np.random.default_rng(5)
TOPICS = RNG.dirichlet(np.full(60, 0.05), 3)
X = np.array([RNG.multinomial(30, RNG.dirichlet(np.full(3, 0.1)) @ TOPICS) for _ in range(300)])
CARS = ["car engine wheel road", "wheel road car brake", "engine brake car"] * 30
PETS = ["cat dog fur paw", "dog paw cat tail", "fur tail cat"] * 30


def model():
    """An estimator of all words."""
    return AnchorTopics(3, min_df=1, min_share=0, max_df=1.0)


@pytest.fixture
def often_switched():
    """Threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def beside(change, times, read):
    """Run `read` again and again in another thread until `change` has run some times; return what it found."""
    done = threading.Event()
    found = []

    def reading():
        while not done.is_set():
            found.append(read())

    thread = threading.Thread(target=reading)
    thread.start()
    try:
        for _ in range(times):
            change()
    finally:
        done.set()
        thread.join()
    return found


class Watched(AnchorTopics):
    """Notes what a reader would see after each assignment to it."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        seen = self.__dict__.get("seen")
        if seen is not None:
            seen.append(self.components_.tobytes() + self.topic_shares_.tobytes() + repr(self.certificate_).encode())


def test_a_change_is_one_assignment():
    """Whatever is assigned, a reader at that moment finds the whole model before the change or the one after it."""
    fitted = Watched(3, min_df=1, min_share=0, max_df=1.0).fit(X)
    fitted.__dict__["seen"] = []
    for change in (fitted.unlearn, fitted.partial_fit):
        fitted.seen.clear()
        change(X[:5])
        assert len(fitted.seen) == 1
    fitted.seen.clear()
    fitted.fit(X[:200])
    assert len(fitted.seen) == 1


@pytest.mark.usefixtures("often_switched")
def test_a_reader_sees_the_model_before_or_after():
    """Components, proportions and shown words read during changes are each of one of the two models, to the bit."""
    fitted = model().fit(X)
    states = []
    for _ in range(2):
        fitted.unlearn(X[:5])
        states.append(_view(fitted))
        fitted.partial_fit(X[:5])
        states.append(_view(fitted))

    def change():
        fitted.unlearn(X[:5]).partial_fit(X[:5])

    # Last bits may differ each time, so whole models are told apart by numbers that do not.
    found = beside(change, 15, lambda: _view(fitted))
    assert len(found) > 10
    wanted = [state[1:] for state in states]
    for components, *rest in found:
        assert np.allclose(components.sum(axis=1), 1)
        assert tuple(rest) in wanted


def _view(fitted):
    """A model as one reader sees it: numbers rounded beyond the error of any path."""
    theta = fitted.transform(X[:4])
    return fitted.components_, tuple(np.rint(theta * 1e6).ravel().tolist()), str(fitted.topics(top=5))


@pytest.mark.usefixtures("often_switched")
def test_words_and_model_of_texts_belong_together():
    """While one thread fits other texts again and again, proportions are those of one of the two models."""
    fitted = TextTopics(2, min_df=1, min_share=0, max_df=1.0).fit(CARS + PETS)
    other = [" ".join(reversed(text.replace("a", "q").split())) for text in CARS + PETS]
    text = "car engine cqr engine"
    wanted = [np.round(fitted.transform([text]), 6).tolist()]
    both = [CARS + PETS, other]
    wanted.append(np.round(copy.copy(fitted).fit(other).transform([text]), 6).tolist())

    def change():
        fitted.fit(both[1]).fit(both[0])

    found = beside(change, 15, lambda: np.round(fitted.transform([text]), 6).tolist())
    assert len(found) > 10
    assert all(one in wanted for one in found)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])  # noqa: S301  made here
def test_copies_change_by_themselves(copied):
    """A copy and its original unlearn different documents, and each is the model of what it has left."""
    fitted = model().fit(X)
    other = copied(fitted)
    for k in range(3):
        fitted.unlearn(X[k : k + 1])
        other.unlearn(X[k + 10 : k + 11])
    for one, left in ((fitted, X[3:]), (other, np.delete(X, [10, 11, 12], axis=0))):
        never = model().fit(left)
        assert one.retrain_reason_ is None
        assert np.array_equal(one.anchors_, never.anchors_)
        assert np.abs(one.components_ - never.components_).max() <= one.certificate_ + never.certificate_


def test_a_copy_of_texts_changes_by_itself():
    """New words of one copy are not those of the other."""
    fitted = TextTopics(2, min_df=1, min_share=0, max_df=1.0).fit(CARS + PETS)
    other = copy.copy(fitted)
    fitted.partial_fit(["tram rail car"] * 2)
    other.partial_fit(["ship sail car"] * 2)
    assert "tram" not in other.vectoriser_.words_
    assert fitted.unlearn(["tram rail car"] * 2).n_documents_ == other.unlearn(["ship sail car"] * 2).n_documents_


def test_a_change_that_is_refused_leaves_everything_as_it_was():
    """`fit`, `partial_fit` and `unlearn` fail before they change anything, and the next update is a warm one."""
    fitted = model().fit(X)
    before = dict(vars(fitted))
    for refused in (
        lambda: fitted.fit(X[:1]),
        lambda: fitted.fit(np.zeros((4, 7))),
        lambda: fitted.fit(-X),
        lambda: fitted.partial_fit(X[:, :3]),
        lambda: fitted.unlearn(X),
        lambda: fitted.unlearn(X * 3),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            refused()
        assert vars(fitted) == before
    assert fitted.unlearn(X[:2]).retrain_reason_ is None
