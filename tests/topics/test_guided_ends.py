"""Guided topics of which nothing is left: they end alike on every path, and no number of the model is 0/0."""

import numpy as np
import pytest

from streamtopic import AnchorTopics

# Fits that end a topic on purpose are said.
pytestmark = pytest.mark.filterwarnings("ignore:guided topic .* has ended")

ALL_WORDS = {"min_df": 1, "min_share": 0, "max_df": 1.0, "anchor_min_df": 0.0}
NO_WORD = "no word represents it next to the other topics"

# No word of these documents is a mixture with a share of the first topic.
WITHOUT_MASS = np.array(
    [
        [2, 1, 0, 1, 0, 0],
        [0, 0, 0, 2, 3, 0],
        [0, 1, 1, 0, 0, 0],
        [0, 3, 2, 1, 1, 0],
        [0, 3, 0, 3, 0, 2],
        [0, 2, 0, 0, 1, 0],
        [1, 0, 1, 0, 3, 2],
        [1, 1, 0, 1, 0, 0],
        [3, 0, 2, 1, 0, 0],
    ]
)
GUIDES = {"g0": [0, 4], "g1": [0, 1, 4]}


def model(topics, guides):
    """An estimator of all words."""
    return AnchorTopics(topics, guided=guides, **ALL_WORDS)


def sound(fitted):
    """Assert that a model has a finite bound, and rows and proportions on the simplex."""
    assert np.isfinite(fitted.certificate_)
    assert np.allclose(fitted.components_.sum(axis=1), 1)
    assert len(fitted.components_) == len(fitted.topic_names_) == len(fitted.topic_shares_) == len(fitted.anchors_)
    assert (fitted.topic_shares_ > 0).all()


def test_a_topic_of_which_no_word_has_a_share_ends():
    """It has no row, a note says why, and the other topics are as they should be."""
    fitted = model(2, GUIDES).fit(WITHOUT_MASS)
    sound(fitted)
    assert fitted.topic_names_ == ("g1",)
    assert fitted.guided_notes_ == (f"guided topic g0 has ended: {NO_WORD}",)
    assert fitted.transform(WITHOUT_MASS).shape == (9, 1)


def test_a_topic_that_loses_its_words_ends_by_a_deletion_and_comes_back():
    """Deleted documents end the topic as a fit without them does, and added ones bring it back."""
    more = np.array([[2, 0, 0, 0, 2, 0], [3, 0, 0, 0, 3, 0], [1, 0, 0, 0, 1, 0]])
    fitted = model(2, GUIDES).fit(np.concatenate([WITHOUT_MASS, more]))
    assert "g0" in fitted.topic_names_
    fitted.unlearn(more)
    never = model(2, GUIDES).fit(WITHOUT_MASS)
    assert fitted.topic_names_ == never.topic_names_ == ("g1",)
    assert fitted.guided_notes_ == never.guided_notes_
    assert np.abs(fitted.components_ - never.components_).max() <= 1e-12
    fitted.partial_fit(more)
    assert "g0" in fitted.topic_names_
    sound(fitted)


def test_all_topics_guided_and_all_ended_is_one_clear_error():
    """`fit` names the remedy; `unlearn` does as well, and leaves the model and its documents as they were."""
    guides = {"one": [0, 1], "two": [2, 3]}
    # Each seed has a word of its own, so no word meets two of them.
    apart = np.tile(np.hstack([2 * np.eye(4, dtype=int), np.eye(4, dtype=int)]), (3, 1))
    with pytest.raises(ValueError, match=r"no topic is left \(guided topic one has ended: .*other seeds"):
        model(2, guides).fit(apart)
    together = np.array([[2, 2, 0, 0, 1, 1, 0, 0], [0, 0, 2, 2, 0, 0, 1, 1]] * 2)
    fitted = model(2, guides).fit(np.concatenate([apart, together]))
    before = fitted.components_.copy()
    with pytest.raises(ValueError, match="no topic is left"):
        fitted.unlearn(together)
    assert fitted.n_documents_ == 16
    assert np.array_equal(fitted.components_, before)
    assert fitted.unlearn(together[:1]).n_documents_ == 15


@pytest.mark.parametrize("learner", ["default", "paper"])
def test_small_corpora_never_give_numbers_that_are_none(learner):
    """Whatever few documents come and go, a change gives a sound model or an error that changes nothing."""
    ended = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(3, 10))
        X = rng.poisson(rng.uniform(0.2, 1.0), (int(rng.integers(5, 16)), n))
        guides = {f"g{k}": rng.choice(n, int(rng.integers(1, 4)), replace=False).tolist() for k in range(2)}
        options = {} if learner == "paper" else {"guided": guides}
        estimator = AnchorTopics(int(rng.integers(2, 4)), learner=learner, **options, **ALL_WORDS)
        inside = [*range(len(X) - 2)]
        # numpy's own errors have no remedy.
        said = _refused(estimator.fit, X[inside])
        assert not said or ": " in said
        if said:
            continue
        for _ in range(3):
            sound(estimator)
            before = estimator.n_documents_
            said = _refused(estimator.unlearn, X[inside[:1]])
            if said:
                assert ": " in said
                assert estimator.n_documents_ == before
                break
            inside = inside[1:]
            ended += any(NO_WORD in note for note in estimator.guided_notes_)
    assert ended or learner == "paper"


def _refused(change, documents):
    """What a change says if it is refused; "" if it is made."""
    try:
        change(documents)
    except ValueError as error:
        return str(error)
    return ""
