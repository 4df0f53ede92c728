"""AnchorTopics by scikit-learn's contract, and exact forgetting through it."""

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from streamtopic import AnchorTopics
from streamtopic.counts.matrices import canonical

SMALL = {"n_topics": 2, "min_df": 1, "max_df": 1.0, "anchor_min_df": 0.0}


@pytest.fixture(scope="module")
def matrix(planted):
    """The planted corpus as a dense matrix of counts."""
    X = np.zeros((len(planted.documents), len(planted.words)), np.int64)
    for row, document in enumerate(planted.documents):
        X[row, document[0].words] = document[0].counts
    return X


def model(**more):
    """An estimator of four topics that keeps most words."""
    return AnchorTopics(**{"n_topics": 4, "min_df": 3, "max_df": 1.0, **more})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("params", [{}, SMALL, {**SMALL, "learner": "paper"}], ids=["defaults", "small", "paper"])
def test_scikit_learn_finds_nothing_wrong(params):
    """All of scikit-learn's own estimator checks pass; one needs an environment variable and is skipped by itself."""
    results = check_estimator(AnchorTopics(**params), on_fail=None, on_skip=None)
    assert len(results) > 30
    assert {r["check_name"] for r in results if r["status"] != "passed"} <= {"check_array_api_input"}


@pytest.mark.parametrize("learner", ["default", "paper"])
@pytest.mark.parametrize("sparse", [False, True])
def test_unlearn_equals_fit_on_the_rest(matrix, learner, sparse):
    """fit(X).unlearn(X_some) equals fit(X_rest) to 1e-12, whether the update was warm or had to retrain."""
    X = csr_matrix(matrix) if sparse else matrix
    warm = 0
    for seed in range(4):
        gone = np.random.default_rng(seed).choice(len(matrix), 5, replace=False)
        rest = np.setdiff1d(np.arange(len(matrix)), gone)
        forgot = model(learner=learner).fit(X).unlearn(X[gone])
        never = model(learner=learner).fit(X[rest])
        assert np.abs(forgot.components_ - never.components_).max() <= 1e-12
        assert np.array_equal(forgot.anchors_, never.anchors_)
        assert forgot.n_documents_ == len(rest)
        warm += forgot.retrain_reason_ is None
    assert warm >= 1


def test_without_a_number_there_are_twenty_topics_or_as_many_as_can_be():
    """Of few words the largest number is taken whose model can be made: one more is refused."""
    rng = np.random.default_rng(0)
    X = np.array([rng.multinomial(30, rng.dirichlet(np.full(60, 0.3))) for _ in range(300)])
    options = {"min_df": 1, "max_df": 1.0, "anchor_min_df": 0.0}
    assert len(AnchorTopics(**options).fit(X).components_) == 20
    few = X[:, :24]
    most = len(AnchorTopics(**options).fit(few).components_)
    assert 1 < most < 20
    with pytest.raises(ValueError, match="topics"):
        AnchorTopics(most + 1, **options).fit(few)


@settings(max_examples=10)
@given(st.integers(0, 1000), st.floats(0.01, 50))
def test_fractional_values_are_unlearned_exactly(seed, scale):
    """Fixed point: rows with fractions, and long rows that are scaled down, leave no trace either."""
    rng = np.random.default_rng(seed)
    X = rng.dirichlet(np.full(12, 0.3), 60) * scale + rng.random((60, 12)) * 0.01
    X[::7] *= 5000
    forgot = AnchorTopics(**SMALL).fit(X).unlearn(X[10:20])
    never = AnchorTopics(**SMALL).fit(np.delete(X, range(10, 20), axis=0))
    assert np.abs(forgot.components_ - never.components_).max() <= 1e-12


@pytest.mark.parametrize("kind", [csr_matrix, csr_array])
def test_the_caller_s_matrix_stays_as_it_is(matrix, kind):
    """Zeros, unsorted and repeated columns are put right in a copy; what is right already is not copied."""
    X = kind(matrix[:80].astype(float))
    odd = kind(
        (
            np.concatenate([X.data[::-1], [0.0, 1.0]]),
            np.concatenate([X.indices[::-1], [3, 3]]),
            np.concatenate([[0], np.cumsum(np.diff(X.indptr)[::-1])]) + np.r_[np.zeros(80, int), 2],
        ),
        shape=X.shape,
    )
    before = odd.data.copy(), odd.indices.copy(), odd.indptr.copy()
    AnchorTopics(**SMALL).fit(odd).unlearn(odd[:2])
    assert all(np.array_equal(a, b) for a, b in zip((odd.data, odd.indices, odd.indptr), before, strict=True))
    assert np.shares_memory(canonical(csr_array(X)).data, X.data)


def test_a_pickle_holds_what_is_there_and_nothing_that_went(matrix):
    """A document's counts are in a model's pickle until it is unlearned, and in none after that."""
    X = matrix[:100].copy()
    X[7, 11] = 7_777
    fitted = AnchorTopics(**SMALL).fit(X)
    assert len([mark for mark in _held(pickle.dumps(fitted)) if mark == 7_777]) == 1
    fitted.unlearn(X[[7]])
    assert 7_777 not in _held(pickle.dumps(fitted))


def _held(pickled):
    """All counts of the documents that a pickled model holds."""
    blocks = pickle.loads(pickled).counts_.blocks  # noqa: S301  made by the caller
    return np.concatenate([block.counts for block in blocks]).tolist()


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        ("alpha", (0, -1.0, np.nan, np.inf, "0.1", None)),
        ("tolerance", (0, -1.0, np.nan, np.inf, "0.1", None)),
        ("n_topics", (0, 1.5, "3", np.nan, 10**6)),
        ("learner", ("x", None)),
        ("min_df", (0, "5", None)),
        ("min_share", ("0", None)),
        ("max_df", (0, "1")),
        ("anchor_min_df", ("0", None)),
        ("max_words", ("100", None)),
        ("guided", ("cars", {"cars": None}, {"cars": 3}, {"cars": [1.5]}, {"cars": [None]})),
    ],
)
def test_a_parameter_that_is_not_possible_is_named(matrix, parameter, values):
    """A parameter of another type, or out of range, is refused by name as a ValueError before anything is learned."""
    for value in values:
        with pytest.raises(ValueError, match=parameter):
            AnchorTopics(**{**SMALL, parameter: value}).fit(matrix)


def test_excluded_words_are_none_of_the_model_s(matrix, tmp_path):
    """Named in a list or a file, they are left out before and after others come and go, and count in lengths."""
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(matrix, columns=[f"w{k:03d}" for k in range(matrix.shape[1])])
    excluded = model().fit(X).feature_names_in_[model().fit(X).anchors_[:2]].tolist()
    file = tmp_path / "words.txt"
    file.write_text("\n".join([*excluded, "", "elsewhere"]), "utf-8")
    fitted = model(exclude_words=file).fit(X)
    assert not fitted.components_[:, X.columns.isin(excluded)].any()
    listed = model(exclude_words=[*excluded[::-1], "elsewhere"]).fit(X[5:]).partial_fit(X[:5])
    assert np.abs(listed.components_ - fitted.components_).max() <= 1e-12
    assert not np.allclose(fitted.components_, model().fit(X.assign(**dict.fromkeys(excluded, 0))).components_)
    for wrong, says in ((["a"], "names"), ([1], "not a text"), ("nowhere.txt", "cannot be read")):
        with pytest.raises(ValueError, match=says):
            model(exclude_words=wrong).fit(matrix)


def test_a_heap_is_said():
    """Where one of five topics holds most of the words `fit` warns, with its share; with equal topics it does not."""
    rng = np.random.default_rng(3)
    for shares, heap in (([0.8, 0.05, 0.05, 0.05, 0.05], True), ([0.2] * 5, False)):
        subjects = rng.choice(5, 600, p=shares)
        X = np.zeros((600, 50), int)
        for row, subject in zip(X, subjects, strict=True):
            row[10 * subject : 10 * subject + 10] = rng.multinomial(12, np.full(10, 0.1))
        model = AnchorTopics(5, min_df=1, max_df=1.0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X)
        said = [str(warning.message) for warning in caught]
        assert bool(said) == heap
        assert all(f"holds {model.topic_shares_.max():.0%} of all words" in text for text in said)


def test_a_table_has_each_topic_with_its_documents(matrix, planted):
    """Largest share first as in `topics`; documents are counted by their largest topic; it prints and makes a frame."""
    pandas = pytest.importorskip("pandas")
    fitted = model(max_df=0.5, min_df=40).fit(matrix).unlearn(matrix[5:9])
    names = list(planted.words)
    table = fitted.topic_info(names, top=3)
    shares = fitted.topic_shares_
    assert [row.id for row in table] == np.argsort(-shares).tolist()
    assert [row.share for row in table] == sorted(shares, reverse=True)
    assert [list(row.words) for row in table] == fitted.topics(names, top=3)
    left = np.delete(matrix, range(5, 9), axis=0)
    theta = fitted.transform(left)
    largest = np.bincount(theta.argmax(axis=1), minlength=4)
    assert [row.documents for row in table] == largest[[row.id for row in table]].tolist()
    first = str(table).splitlines()[1].split()
    assert first[:2] == [str(table[0].id), fitted.topic_names_[table[0].id]]
    frame = pandas.DataFrame(table)
    assert list(frame) == ["id", "name", "share", "documents", "words"]
    best = fitted.representative_documents(left, top=2)
    assert best.shape == (4, 2)
    assert np.array_equal(theta[best[:, 0], range(4)], theta.max(axis=0))


def test_documents_without_a_word_of_the_model_are_said(matrix):
    """Their proportions are equal, which means nothing, so a warning names their rows; they represent no topic."""
    fitted = model().fit(matrix)
    X = matrix[:8].copy()
    X[[2, 5]] = 0
    with pytest.warns(UserWarning, match=r"2 of 8 documents hold no word of the model \(rows 2, 5\)") as said:
        theta = fitted.transform(X)
    assert said[0].filename == __file__
    assert np.allclose(theta[[2, 5]], 0.25)
    assert set(fitted.representative_documents(X, top=1).ravel()).isdisjoint({2, 5})


def test_a_search_over_topics_needs_no_scorer(matrix):
    """`score` is the held-out log-likelihood of a token: right topics predict better than few, and than chance."""
    rng = np.random.default_rng(0)
    shuffled = matrix[rng.permutation(len(matrix))]
    search = GridSearchCV(model(), {"n_topics": [2, 4]}, cv=2).fit(shuffled)
    assert search.best_params_ == {"n_topics": 4}
    fitted = search.best_estimator_
    words = fitted.components_.any(axis=0).sum()
    assert -np.log(words) < fitted.score(shuffled) < 0
    with pytest.raises(ValueError, match="no document has two words"):
        fitted.score(np.zeros_like(matrix))


def test_what_is_not_needed_is_refused_and_steps_are_said(matrix, caplog):
    """There is no chance in a fit, so `random_state` is refused with the reason; `verbose` says how long steps took."""
    with pytest.raises(TypeError, match="random_state is not needed: the result is deterministic"):
        AnchorTopics(random_state=0)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        AnchorTopics(topics=3)
    model().fit(matrix)
    assert not caplog.messages
    model(verbose=True).fit(matrix)
    assert [text.rsplit(":", 1)[0] for text in caplog.messages] == [
        f"counted {len(matrix)} documents",
        "learned topics",
    ]


def test_names_and_numbers_of_shown_words_are_checked(matrix):
    """Too few names for the columns, and a negative number of words, are refused in words."""
    fitted = model().fit(matrix)
    with pytest.raises(ValueError, match=f"2 names for {matrix.shape[1]} columns"):
        fitted.topics(["one", "two"])
    with pytest.raises(ValueError, match="top is -1"):
        fitted.topics(top=-1)
    assert fitted.topics(top=0) == [[]] * 4


def test_amounts_at_the_end_of_floats_keep_their_documents(matrix):
    """A document of amounts whose sum is not a float is one of the same shares, and not an empty one."""
    X = matrix[:80].astype(float)
    X[::5] = np.where(X[::5] > 0, 1e308, 0)
    fitted = AnchorTopics(**SMALL).fit(X)
    smaller = X.copy()
    smaller[::5] *= 1e-100
    assert np.array_equal(fitted.components_, AnchorTopics(**SMALL).fit(smaller).components_)
    theta = fitted.transform(X)
    assert np.allclose(theta.sum(axis=1), 1)
    assert np.allclose(theta, fitted.transform(smaller), rtol=1e-12)
