"""TextCounts and TextTopics by scikit-learn's contract, which its own checks hold for matrices only."""

import pickle

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from streamtopic import TextCounts, TextTopics

TEXTS = ["car engine wheel road", "wheel road car brake", "cat dog fur paw", "dog paw cat tail"] * 8
OTHERS = ["oven bread dough flour", "flour oven bread", "tide gull rope", "gull rope mast tide"] * 8
ESTIMATORS = [TextCounts, TextTopics]


def shown(estimator, texts=TEXTS):
    """What a fitted estimator gives for texts, as an array."""
    found = estimator.transform(texts)
    return found.toarray() if hasattr(found, "toarray") else found


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_scikit_learn_finds_nothing_wrong(kind):
    """With defaults every check that there is for an estimator of texts passes, and tags say that it takes texts."""
    results = check_estimator(kind(), on_fail=None, on_skip=None)
    assert {result["status"] for result in results} == {"passed"}
    tags = get_tags(kind()).input_tags
    assert (tags.string, tags.two_d_array, tags.positive_only) == (True, False, False)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_nothing_works_before_a_fit(kind):
    """Each method that needs a fit says so in scikit-learn's words, and there is no attribute of a fit."""
    estimator = kind()
    with pytest.raises(NotFittedError):
        estimator.transform(TEXTS)
    with pytest.raises(NotFittedError):
        estimator.get_feature_names_out()
    assert [name for name in vars(estimator) if name.endswith("_")] == []


@pytest.mark.filterwarnings("ignore:.* hold no word of the model:UserWarning")
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_a_transform_changes_nothing(kind):
    """Texts are transformed one by one as together, by a pickle as by the estimator, and nothing is kept of them."""
    estimator = kind().fit(TEXTS)
    state = pickle.dumps(estimator)
    together = shown(estimator, OTHERS + TEXTS)
    apart = [shown(estimator, [text])[0] for text in OTHERS + TEXTS]
    assert np.array_equal(together, apart)
    assert pickle.dumps(estimator) == state
    again = pickle.loads(state)  # noqa: S301  made in this test
    assert np.array_equal(shown(again, OTHERS + TEXTS), together)
    assert len(estimator.get_feature_names_out()) == together.shape[1]
