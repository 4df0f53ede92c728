"""An estimator's model is one value: readers in other threads and copies never see half of a change."""

import copy
import pickle

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


class Watched:
    """Counts assignments to it."""

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        self.__dict__["assigned"] = self.__dict__.get("assigned", 0) + 1


class WatchedTopics(Watched, AnchorTopics):
    """A model of counts."""


class WatchedTexts(Watched, TextTopics):
    """A model of texts, with the words of its columns."""


@pytest.mark.parametrize(("kind", "documents"), [(WatchedTopics, X), (WatchedTexts, CARS + PETS)])
def test_a_change_is_one_assignment(kind, documents):
    """So a reader in another thread finds the whole model before the change or the one after it, words included."""
    fitted = kind(2, min_df=1, min_share=0, max_df=1.0).fit(documents)
    for change, given in (
        (fitted.unlearn, documents[:5]),
        (fitted.partial_fit, documents[:5]),
        (fitted.fit, documents[9:]),
    ):
        before = fitted.assigned
        change(given)
        assert fitted.assigned == before + 1


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])  # noqa: S301  made here
def test_copies_change_by_themselves(copied):
    """A copy and its original unlearn different documents, and each is the model of what it has left."""
    rare = np.zeros((len(X), 1), int)
    rare[20] = 3
    wide = np.hstack([X, rare])
    # The last word is dropped before the copy is made.
    fitted = model().fit(wide).unlearn(wide[[20]])
    other = copied(fitted)
    for k in range(3):
        fitted.unlearn(wide[[k]])
        other.unlearn(wide[[k + 10]])
    for one, gone in ((fitted, [0, 1, 2, 20]), (other, [10, 11, 12, 20])):
        never = model().fit(np.delete(wide, gone, axis=0))
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
