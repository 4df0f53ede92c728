"""Topics over time and by class, in a fitted model."""

from datetime import UTC, date, datetime, timedelta, timezone

import numpy as np
import pytest
from scipy.sparse import csr_array, vstack

from streamtopic import AnchorTopics
from streamtopic.errors import UsageError
from streamtopic.topics.over_time import ShareEstimator, SliceKeys, periods, read_days

WORDS, TOPICS = 400, 8


def planted_slices(rng, A, base, documents, concentration, absent=0.0, burst=0.0):
    """Return the planted shares of one slice, (r,), and its documents, (documents, n).

    base: (r,) shares that the slice's own are drawn around.
    documents: how many; their lengths vary by a factor of five and more.
    concentration: the lower, the fewer topics a document has.
    absent: the chance with which each topic is missing in the slice; the first one never is.
    burst: 0 for words that are drawn one by one; the higher, the more often a word is in its document again.
    """
    drawn = rng.dirichlet(40.0 * base)
    present = rng.random(len(base)) >= absent
    present[0] = True
    shares = drawn * present / drawn[present].sum()
    theta = np.zeros((documents, len(base)))
    theta[:, present] = rng.dirichlet(concentration * shares[present], documents)
    mean_length = rng.gamma(2.0, 40.0, documents)
    lengths = 5 + rng.poisson(mean_length)
    expected = theta @ A.T
    if burst:
        # Dirichlet's, whose words have 1 + L burst times the variance of words that are drawn one by one.
        expected = rng.standard_gamma(expected / burst)
    expected /= expected.sum(axis=1, keepdims=True)
    rows = [rng.multinomial(length, p) for length, p in zip(lengths.tolist(), expected, strict=True)]
    return shares, csr_array(np.stack(rows).astype(np.int64))


@pytest.fixture(scope="module")
def model():
    """Planted topics: A (n, r) and shares (r,)."""
    rng = np.random.default_rng(3)
    A = np.ascontiguousarray(rng.dirichlet(np.full(WORDS, 0.05), TOPICS).T)
    return A, rng.dirichlet(np.full(TOPICS, 5.0))


@pytest.mark.parametrize(
    ("concentration", "absent", "burst"), [(1.0, 0.0, 0.0), (5.0, 0.0, 0.0), (1.0, 0.5, 0.0), (5.0, 0.5, 0.01)]
)
@pytest.mark.parametrize("size", [25, 120])
def test_intervals_hold_the_planted_shares(model, concentration, absent, burst, size):
    """The 95 % intervals of shares hold the planted value 93 to 97 times in 100, that of absent topics too."""
    A, base = model
    rng = np.random.default_rng(11)
    slices = 120
    drawn = [planted_slices(rng, A, base, size, concentration, absent, burst) for _ in range(slices)]
    truth = np.stack([shares for shares, _ in drawn])
    keys = SliceKeys.made(np.repeat([f"{k:03d}" for k in range(slices)], size).tolist(), None)
    estimator = ShareEstimator.of(A, base)
    sums = estimator.sums(csr_array(vstack([X for _, X in drawn])), keys.of, slices)
    found = estimator.slices(keys, sums)
    held = (found.low <= truth) & (truth <= found.high)
    assert 0.93 <= held.mean() <= 0.97
    if absent:
        assert held[truth == 0].mean() >= 0.93
    # The errors are of the size that is meant: an interval as wide as the whole line would hold everything.
    assert np.abs(found.shares - truth).mean() == pytest.approx(0.8 * found.errors.mean(), rel=0.15)


def test_documents_without_words_of_the_model_do_not_reach_the_floor(model):
    """Behind 19 of them, one document with words would be shown alone."""
    A, base = model
    X = np.zeros((40, WORDS), np.int64)
    X[:21] = np.random.default_rng(4).multinomial(50, A @ base, 21)
    keys = SliceKeys.made(None, ["alone"] * 20 + ["enough"] * 20)
    estimator = ShareEstimator.of(A, base)
    rows = csr_array(np.concatenate([X[:1], X[21:40], X[1:21]]))
    found = estimator.slices(keys, estimator.sums(rows, keys.of, 2))
    assert found.classes == ("enough",)
    assert (found.hidden, found.hidden_documents) == (1, 1)


def test_slices_below_the_floor_are_left_out(model):
    """A slice of 19 documents is not shown, and the number of such slices and documents is."""
    A, base = model
    rng = np.random.default_rng(5)
    _, X = planted_slices(rng, A, base, 45, 2.0)
    classes = ["large"] * 20 + ["small"] * 19 + [""] * 6
    keys = SliceKeys.made(None, classes)
    estimator = ShareEstimator.of(A, base)
    found = estimator.slices(keys, estimator.sums(X, keys.of, 2))
    assert found.names == ("large",)
    assert (found.hidden, found.hidden_documents, found.outside) == (1, 19, 6)
    assert len(estimator.slices(keys, estimator.sums(X, keys.of, 2), floor=30)) == 0


@pytest.mark.parametrize(
    ("unit", "names"),
    [
        ("day", ["1987-01-01", "2020-12-31", "2021-01-03", "2021-01-04", "1969-12-29"]),
        ("week", ["1987-W01", "2020-W53", "2020-W53", "2021-W01", "1970-W01"]),
        ("month", ["1987-01", "2020-12", "2021-01", "2021-01", "1969-12"]),
        ("quarter", ["1987-Q1", "2020-Q4", "2021-Q1", "2021-Q1", "1969-Q4"]),
        ("year", ["1987", "2020", "2021", "2021", "1969"]),
    ],
)
def test_periods_are_those_of_the_calendar(unit, names):
    """Weeks are those of ISO 8601, which Python knows too."""
    days = [date(1987, 1, 1), date(2020, 12, 31), date(2021, 1, 3), date(2021, 1, 4), date(1969, 12, 29)]
    assert periods(read_days(days), unit) == names
    if unit == "week":
        span = np.arange(np.datetime64("1995-12-20"), np.datetime64("2012-01-20"))
        iso = [day.isocalendar() for day in span.tolist()]
        assert periods(read_days(span), "week") == [f"{one.year}-W{one.week:02d}" for one in iso]


EASTERN = timezone(timedelta(hours=-5))
STAMP = 541_350_060_000


@pytest.mark.parametrize(
    "value",
    [
        "1987-02-26T15:01:00Z",
        "1987-02-25T23:30:00-05:00",
        "19870226",
        "1987-W09-4",
        datetime(1987, 2, 26, tzinfo=UTC),
        datetime(1987, 2, 25, 23, 30, tzinfo=EASTERN),
        np.datetime64("1987-02-26T15", "ns"),
        STAMP,
        float(STAMP),
    ],
    ids=repr,
)
def test_each_form_of_a_time_names_its_day_in_utc(value):
    """Zones count, whole numbers are milliseconds also beside missing ones, and neighbours do not matter."""
    missing = np.iinfo(np.int64).min
    wanted = (date(1987, 2, 26) - date(1970, 1, 1)).days
    for gap in (None, float("nan"), ""):
        times = np.array([value, gap, date(1900, 1, 1)], dtype=object)
        assert read_days(times).tolist() == [wanted, missing, -25_567]
    assert read_days([value]).tolist() == [wanted]


@pytest.mark.parametrize(
    "times",
    [
        ["yesterday"],
        ["today"],
        ["now"],
        [1.5],
        [True],
        [[1, 2]],
        [[1], [1, 2]],
        [b"1987-02-26"],
        [datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))],
    ],
)
def test_times_that_cannot_be_read_are_refused(times):
    """The error names the form of a time."""
    with pytest.raises(UsageError, match="time"):
        read_days(times)


def test_what_is_missing_or_unknown_is_refused(model):
    """Neither times nor classes, lists of different lengths, an unknown period, and equal topics are named."""
    A, base = model
    with pytest.raises(UsageError, match="give a time"):
        SliceKeys.made(None, None)
    with pytest.raises(UsageError, match="give a time"):
        SliceKeys.made(["1987"], ["a", "b"])
    with pytest.raises(UsageError, match="decade"):
        periods(read_days(["1987-01-01"]), "decade")
    with pytest.raises(UsageError, match="same words"):
        ShareEstimator.of(np.column_stack([A, A[:, 0]]), np.append(base, 0.1))


def test_classes_are_texts_or_whole_numbers():
    """Frames have numbers for classes, and gaps among them; anything else is named by its row."""
    X = np.array([[3, 1, 0, 2], [0, 2, 3, 1], [1, 0, 2, 3]] * 20)
    estimator = AnchorTopics(2, min_df=1, min_share=0.0, max_df=1.0).fit(X)
    for classes in ([1, 2] * 30, np.array([1, 2] * 30), ["1", "2"] * 30, [1.0, 2.0] * 30):
        assert estimator.topics_over(X, classes=classes).names == ("1", "2")
    gaps = estimator.topics_over(X, classes=[1, None, float("nan"), "", "b", 1] * 10, floor=1)
    assert (gaps.names, gaps.outside) == (("1", "b"), 30)
    with pytest.raises(UsageError, match="class of document 1 is a list"):
        estimator.topics_over(X, classes=["a", ["b"]] * 30)


def test_a_fitted_model_shows_topics_over_time_by_class(model):
    """A topic that comes in March is found in March, in its class, with its words, and goes when it is unlearned."""
    A, base = model
    rng = np.random.default_rng(7)
    early = np.where(np.arange(TOPICS) == 2, 0.0, base)
    parts = []
    for month, shares in enumerate([early, early, base]):
        theta = rng.dirichlet(2 * shares / shares.sum() + 1e-9, 150)
        rows = [rng.multinomial(80, np.asarray(A @ one) / (A @ one).sum()) for one in theta]
        parts.append((np.stack(rows), [f"2026-{month + 1:02d}-{1 + k % 28:02d}" for k in range(150)]))
    X = csr_array(np.vstack([rows for rows, _ in parts]))
    times = [day for _, days in parts for day in days]
    classes = ["even" if k % 2 == 0 else "odd" for k in range(len(times))]
    estimator = AnchorTopics(TOPICS, min_df=2, min_share=0.0, max_df=1.0, anchor_min_df=0.02).fit(X)
    found = estimator.topics_over(X, times=times)
    assert found.times == ("2026-01", "2026-02", "2026-03")
    assert found.documents.tolist() == [150, 150, 150]
    assert found.shares.sum(axis=1) == pytest.approx(1.0)
    nearest = int(np.argmax(estimator.components_ @ A[:, 2]))
    assert found.low[2, nearest] > found.high[0, nearest]
    own = {*np.argsort(-A[:, 2])[:20].tolist()}
    assert len(own & {*found.words[2, nearest].tolist()}) >= 8
    both = estimator.topics_over(X, times=times, classes=classes, unit="quarter")
    assert both.names == ("2026-Q1 even", "2026-Q1 odd")
    with pytest.raises(UsageError, match="450 documents, but 2"):
        estimator.topics_over(X, times=["2026-01-01", "2026-01-02"])
