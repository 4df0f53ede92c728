"""TextTopics: texts in, topics out, and texts taken away again, whatever column holds them."""

import doctest
import math
import pickle
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from streamtopic import AnchorTopics, TextCounts, TextTopics
from streamtopic.errors import UsageError

CARS = ["car engine wheel road", "wheel road car brake", "engine brake car"] * 30
PETS = ["cat dog fur paw", "dog paw cat tail", "fur tail cat"] * 30
TEXTS = [text for pair in zip(CARS, PETS, strict=True) for text in pair]


def model(**more):
    """An estimator of two topics that keeps all words."""
    return TextTopics(**{"n_topics": 2, "min_df": 1, "min_share": 0, "max_df": 1.0, **more})


def test_the_docstring_shows_what_happens():
    """The example in the docstring gives the values that it prints."""
    failed, tried = doctest.testmod(sys.modules["streamtopic.texts"])
    assert (failed, tried) == (0, 6)


def test_it_is_the_model_of_the_two_parts():
    """Every bit is that of AnchorTopics on the counts of TextCounts, and columns have the words' names."""
    one = model().fit(TEXTS)
    counts = TextCounts()
    other = AnchorTopics(**one.get_params()).fit(counts.fit_transform(TEXTS))
    assert one.components_.tobytes() == other.components_.tobytes()
    assert one.feature_names_in_.tolist() == list(counts.words_)
    assert one.topics(top=3) == other.topics(top=3)
    assert np.array_equal(one.transform(TEXTS), other.transform(counts.transform(TEXTS)))
    assert np.array_equal(model().fit_transform(iter(TEXTS)), one.transform(TEXTS))
    assert one.get_feature_names_out().tolist() == ["texttopics0", "texttopics1"]


def test_a_change_that_is_refused_leaves_model_and_words_as_they_were():
    """Texts that are not there, or no texts at all, name the trouble; no word of refused texts stays."""
    fitted = model().fit(TEXTS)
    before, words = fitted.components_.copy(), fitted.vectoriser_.words_
    for text in ("words of nobody", f"{TEXTS[0]} nobody"):
        with pytest.raises(ValueError, match="1 texts hold words without a column"):
            fitted.unlearn([text])
    with pytest.raises(ValueError, match="not all in the model"):
        fitted.unlearn(["car car car"])
    with pytest.raises(ValueError, match="text 1 is a int, not a string: give one text, or the list of its words"):
        fitted.partial_fit(["words of nobody", 7])
    with pytest.raises(ValueError, match="put a single text into a list"):
        fitted.partial_fit("a single text")
    assert fitted.vectoriser_.words_ == words
    assert np.array_equal(fitted.components_, before)
    assert fitted.partial_fit(["words of nobody"]).unlearn(["words of nobody"]).n_documents_ == len(TEXTS)


def test_a_saved_model_goes_on_with_the_same_bits(tmp_path):
    """A file or a pickle forgets and learns as the model that was saved; a model without words says so."""
    fitted = model().fit(TEXTS)
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    for again in (TextTopics.load(path), pickle.loads(pickle.dumps(fitted))):  # noqa: S301  made in this line
        for one in (again, fitted := TextTopics.load(path)):
            one.unlearn(TEXTS[:4]).partial_fit(["tram rail car"])
        assert again.components_.tobytes() == fitted.components_.tobytes()
        assert again.vectoriser_.words_ == fitted.vectoriser_.words_
        assert np.array_equal(again.transform(TEXTS), fitted.transform(TEXTS))
    counts = np.array([[3, 1, 0, 0], [2, 2, 0, 0], [0, 0, 1, 3], [0, 0, 2, 2]] * 5)
    AnchorTopics(2, min_df=1, min_share=0, max_df=1.0, anchor_min_df=0.01).fit(counts).save(path)
    with pytest.raises(UsageError, match=r"read it with AnchorTopics\.load"):
        TextTopics.load(path)


def test_it_is_an_estimator_in_pipelines_and_folds():
    """It is cloned with its parameters, takes part in cross validation, and a classifier can follow it."""
    assert clone(model(n_topics=3)).get_params()["n_topics"] == 3
    labels = ["car", "pet"] * (len(TEXTS) // 2)
    pipeline = make_pipeline(model(), LogisticRegression())
    assert cross_val_score(pipeline, TEXTS, labels, cv=3, error_score="raise").min() == 1.0


def columns():
    """Columns of the same texts in all kinds of tables that are installed."""
    yield pytest.param(list, id="list")
    yield pytest.param(lambda texts: np.array(texts, object), id="numpy")
    yield pytest.param(lambda texts: pa.table({"text": texts})["text"], id="pyarrow")
    yield pytest.param(pa.array, id="pyarrow array")
    yield pytest.param(lambda texts: pd.DataFrame({"text": texts})["text"], id="pandas")
    yield pytest.param(lambda texts: pd.Series(texts, dtype="category", index=texts), id="pandas category")
    yield pytest.param(lambda texts: pl.DataFrame({"text": texts})["text"], id="polars")


@pytest.mark.parametrize("column", [*columns()])
def test_columns_of_tables_are_texts(column):
    """Each kind of column gives the model of the list, and a missing value is named by its row and type."""
    wanted = model().fit(TEXTS)
    fitted = model().fit(column(TEXTS))
    assert fitted.components_.tobytes() == wanted.components_.tobytes()
    fitted.partial_fit(column(["tram rail"])).unlearn(column(["tram rail"]))
    assert fitted.n_documents_ == len(TEXTS)
    with pytest.raises(ValueError, match=r"text 2 is a \w+, not a string.*leave out rows without a text"):
        model().fit(column(["some text", "more text", None]))


def tables():
    """Whole tables, which give the names of their columns when they are read as texts."""
    yield pytest.param(pa.table, id="pyarrow")
    yield pytest.param(pd.DataFrame, id="pandas")
    yield pytest.param(pl.DataFrame, id="polars")
    yield pytest.param(pl.LazyFrame, id="polars lazy")
    yield pytest.param(dict, id="dict")


@pytest.mark.parametrize("table", [*tables()])
def test_a_whole_table_is_refused_with_the_remedy(table):
    """The names of columns are never learned as if they were texts."""
    rows = {"text": TEXTS, "date": TEXTS}
    for estimator in (model(), TextCounts()):
        with pytest.raises(ValueError, match=r'give one column of a table, such as table\["text"\]'):
            estimator.fit(table(rows))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (set(TEXTS), "got a set"),
        (np.array([TEXTS, TEXTS]), "a column of texts, got a ndarray"),
        (7, "expected a list or a column of texts, got a int"),
        ([math.nan], "text 0 is a float, not a string.*leave out rows"),
        ([b"text"], "text 0 is a bytes, not a string.*decode bytes"),
        ("one text", "put a single text into a list"),
        ([["words", 3]], "has a int among its words"),
        ([{"word": 0}], "must be whole numbers"),
    ],
)
def test_other_values_are_refused_by_name(wrong, said):
    """Each error names the row and the type, and says what to give."""
    with pytest.raises(ValueError, match=said):
        model().fit(wrong)


OTHERS = ["oven bread dough flour", "flour oven bread", "tide gull rope", "gull rope mast tide"] * 8
ESTIMATORS = [TextCounts, TextTopics]


def shown(estimator, texts):
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
