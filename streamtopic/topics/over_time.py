"""Topics over time and by class: shares and words of slices of the documents, through one model.

A slice is the documents of one period, of one class, or of both. N (slices, n) holds how often each word occurs in the
documents of each slice: integers, so that a document can be taken out again. Only the model's n words count.

The shares of a slice are theta with A theta near f = N / sum(N), weighted by D^2 = diag(1 / (A s)), s the shares of the
model: the least squares that the learner solves for words. Without the bounds theta >= 0 the solution is linear,
theta = M^T f with M^T A = I. So a document adds y = M^T x, and theta = sum(y) / sum(L) is a ratio of two sums over
documents, x its counts and L = sum(x). The theory of samples of clusters gives its variance:

    V_k = m / (m - 1) * sum_d (y_dk - theta_k L_d)^2 / sum(L)^2,   m = sum(L)^2 / sum(L^2),

m being the documents that the slice has as many as, if all were equally long (Kish 1965). It assumes that documents are
a sample of what the slice could have held, each by itself, and takes A as given: neither the error of A nor its noise
is in it. Words of one document may depend on each other as they like.

Few documents hold a rare topic, and if none of them is long, V is too small with the share. So half of V comes from
what its parts would be at this share:

    V_k(theta) = b N_k + c theta_k (1 - theta_k),   N_k = sum_{j != k} theta_j sum_w A_wj M_wk^2 / sum(L).

N is the noise by which words of other topics count for topic k, and a topic that is absent has it as well. b says how
much more the words of these documents cluster than words that are drawn one by one: the sum of V over that of N where
shares come out at 0, in all slices together, and at least 1. c is the spread of shares between the documents of a
slice: the rest of sum_k V_k over sum_k theta_k (1 - theta_k). Ends of intervals are Wilson's: the shares theta that lie
t of m - 1 degrees of freedom from the solution without bounds, by the variance at theta.

Source: Cochran, "Sampling Techniques" (1977), sections 6.3 and 9A; Wilson, JASA 22 (1927).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from typing import Any, Literal, Self, get_args

import numpy as np
from scipy.sparse import csr_array, vstack
from scipy.special import stdtrit

from streamtopic.counts.arrays import Float, Int64, Positions
from streamtopic.errors import UsageError
from streamtopic.topics.simplex import solve_rows

__all__ = [
    "FLOOR",
    "UNITS",
    "ShareEstimator",
    "SliceKeys",
    "SliceReport",
    "SliceSums",
    "TopicSlices",
    "Unit",
    "periods",
    "read_days",
]

Unit = Literal["day", "week", "month", "quarter", "year"]
"""Lengths of periods, all in UTC. Weeks begin on Monday and are those of ISO 8601."""

UNITS: tuple[Unit, ...] = get_args(Unit)

FLOOR = 20
"""Documents of a slice that a service shows: with fewer, single documents could be read off."""

# Words of a topic among which those of a slice are chosen. A reader is shown ten of them.
_CANDIDATES = 50
# A word that the model hardly knows gets no more weight than one that is this much rarer than the mean.
_LEAST = 1e-3
# Both tails of an interval that covers 95 in 100.
_UPPER = 0.975
# Below it theta (1 - theta) is taken for that of a topic that is absent, or the only one.
_END = 1e-4
# Keeps divisions finite if a slice has one topic alone.
_TINY = 1e-150
_THURSDAY = 3
_DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1).toordinal()
_NO_TIME = np.iinfo(np.int64).min
_YEAR_OR_MONTH = re.compile(r"\d{4}(-\d{2})?")


@dataclass(frozen=True, slots=True)
class SliceKeys:
    """The slice of each document.

    times, classes: (slices,) period and class of each slice, ascending; "" if slices have none.
    of: (documents,) the slice of each document, -1 for a document in no slice.
    """

    times: tuple[str, ...]
    classes: tuple[str, ...]
    of: Positions

    @classmethod
    def made(cls, times: Sequence[str] | None, classes: Sequence[str] | None) -> Self:
        """Make a slice of each period, class, or period with class that a document has.

        times, classes: (documents,) of each document, "" for a document without one; None if they do not count.
        Raises UsageError if both are None, or have another length.
        """
        given = [list(one) for one in (times, classes) if one is not None]
        sizes = {len(one) for one in given}
        if len(sizes) != 1:
            raise UsageError("give a time, a class, or both for each document")
        number = len(given[0])
        of_time = [""] * number if times is None else given[0]
        of_class = [""] * number if classes is None else given[-1]
        pairs = list(zip(of_time, of_class, strict=True))
        # A document that lacks one of what was asked for is in no slice.
        whole = [(times is None or bool(time)) and (classes is None or bool(name)) for time, name in pairs]
        kept = {pair for pair, complete in zip(pairs, whole, strict=True) if complete}
        slices = sorted(kept)
        place = {pair: k for k, pair in enumerate(slices)}
        of = [place.get(pair, -1) if complete else -1 for pair, complete in zip(pairs, whole, strict=True)]
        return cls._of(slices, np.array(of, np.intp))

    @classmethod
    def joined(cls, parts: Sequence["SliceKeys"]) -> tuple[Self, list[Positions]]:
        """Return the slices of the documents of all parts, and where the slices of each part are among them."""
        every = {pair for part in parts for pair in part.pairs}
        slices = sorted(every)
        place = {pair: k for k, pair in enumerate(slices)}
        places = []
        for part in parts:
            here = [place[pair] for pair in part.pairs]
            places.append(np.array(here, np.intp))
        moved: list[Positions] = [np.zeros(0, np.intp)]
        for own, part in zip(places, parts, strict=True):
            # The last place is for documents in no slice: they are number -1.
            extended = np.append(own, -1)
            moved.append(extended[part.of])
        keys = cls._of(slices, np.concatenate(moved))
        return keys, places

    @classmethod
    def _of(cls, slices: Sequence[tuple[str, str]], of: Positions) -> Self:
        times = tuple(time for time, _ in slices)
        classes = tuple(name for _, name in slices)
        return cls(times, classes, of)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Period and class of each slice."""
        return list(zip(self.times, self.classes, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class SliceSums:
    """Sums over the documents of each slice.

    counts: N (slices, n), int64.
    documents: (slices,) int64.
    lengths, squared_lengths: (slices,) int64, sums of L and L^2 over documents.
    mixed, squares: (slices, r), sums of L y and y^2 over documents, y = M^T x.
    """

    counts: csr_array
    documents: Int64
    lengths: Int64
    squared_lengths: Int64
    mixed: Float
    squares: Float

    @classmethod
    def gathered(cls, parts: Sequence["SliceSums"], places: Sequence[Positions], slices: int) -> Self:
        """Return the sums over the documents of all parts, at least one. Their order decides the last bits of floats.

        places: of each part, where its slices are among all, as `SliceKeys.joined` returns them.
        slices: how many there are.
        """
        rows = np.concatenate(places)
        ones = np.ones(len(rows), np.int64)
        columns = np.arange(len(rows))
        member = csr_array((ones, (rows, columns)), shape=(slices, len(rows)))
        counts = vstack([part.counts for part in parts])
        others: dict[str, Any] = {}
        for one in fields(cls)[1:]:
            several = [getattr(part, one.name) for part in parts]
            others[one.name] = member @ np.concatenate(several)
        return cls(csr_array(member @ counts), **others)


@dataclass(frozen=True, slots=True, eq=False)
class TopicSlices:
    """Shares of topics in slices, each with its error, and the words of topics there.

    times, classes: (slices,) period and class; "" if slices have none.
    documents, tokens: (slices,) documents that hold words of the model, and occurrences of these words in them.
    shares: (slices, r), rows on the simplex.
    errors: (slices, r) standard errors.
    low, high: (slices, r) ends of 95 % intervals, from 0 to 1.
    words: (slices, r, top) positions of words, those first that speak most for the topic in the slice; -1 for none.
    hidden: number of slices that have fewer documents than the floor, and are left out.
    hidden_documents: documents of these slices.
    outside: documents without the time or class that was asked for.
    """

    times: tuple[str, ...]
    classes: tuple[str, ...]
    documents: Int64
    tokens: Int64
    shares: Float
    errors: Float
    low: Float
    high: Float
    words: Positions
    hidden: int
    hidden_documents: int
    outside: int

    def __len__(self) -> int:
        return len(self.times)

    @property
    def names(self) -> tuple[str, ...]:
        """Period and class of each slice in one text."""
        pairs = zip(self.times, self.classes, strict=True)
        # One of the two may be "".
        return tuple(" ".join(pair).strip() for pair in pairs)


@dataclass(frozen=True, slots=True, eq=False)
class SliceReport:
    """The slices of a service's documents, as people read them.

    version: of the model.
    vocabulary: (n,) the model's words.
    unit: length of a period, None for slices of classes alone.
    task: the label whose classes make slices, None for periods alone.
    found: shares, errors and words of each slice.
    """

    version: int
    vocabulary: Sequence[str]
    unit: Unit | None
    task: str | None
    found: TopicSlices

    def words(self, row: int, topic: int) -> list[str]:
        """Return the words of a topic in a slice. row: of the slice."""
        places = self.found.words[row, topic].tolist()
        return [self.vocabulary[place] for place in places if place >= 0]

    def share(self, row: int, topic: int) -> str:
        """Return the share of a topic in a slice with both ends of its interval, as text."""
        found = self.found
        share = found.shares[row, topic]
        low = found.low[row, topic]
        high = found.high[row, topic]
        return f"{share:.1%} ({low:.1%} to {high:.1%})"

    def as_json(self) -> dict[str, Any]:
        """Return everything as `topics --over --json` shows it: of each slice a list of numbers, one a topic."""
        found = self.found
        tables = {"shares": found.shares, "errors": found.errors, "low": found.low, "high": found.high}
        slices = []
        for row, (time, name) in enumerate(zip(found.times, found.classes, strict=True)):
            about = {"time": time or None, "class": name or None}
            sizes = {"documents": int(found.documents[row]), "tokens": int(found.tokens[row])}
            numbers = {name: table[row].round(6).tolist() for name, table in tables.items()}
            words = [self.words(row, topic) for topic in range(found.shares.shape[1])]
            slices.append({**about, **sizes, **numbers, "words": words})
        hidden = {"slices": found.hidden, "documents": found.hidden_documents}
        return {
            "version": self.version,
            "unit": self.unit,
            "by": self.task,
            "floor": FLOOR,
            "slices": slices,
            "hidden": hidden,
            "outside": found.outside,
        }


@dataclass(frozen=True, slots=True, eq=False)
class ShareEstimator:
    """Shares of slices for one model; see the module for the method.

    A: (n, r) words given topics.
    usual: (n,) A s, the share of each word in all documents, but for words that are almost absent.
    gram: G = A^T D^2 A, (r, r).
    M: (n, r) the linear solution: M^T f is theta without bounds, with sum 1.
    """

    A: Float
    usual: Float
    gram: Float
    M: Float

    @classmethod
    def of(cls, A: Float, shares: Float) -> Self:
        """Prepare a model. A: (n, r), columns sum to 1. shares: s (r,).

        Raises UsageError if topics depend on each other, so that shares are not determined.
        """
        expected = np.asarray(A @ shares)
        usual = np.maximum(expected, _LEAST * expected.mean())
        weighted = A / usual[:, None]
        gram = A.T @ weighted
        try:
            # Fails for a matrix that is not positive definite, which `solve` would not notice.
            np.linalg.cholesky(gram)
            M = np.linalg.solve(gram, weighted.T).T
            even = np.linalg.solve(gram, np.ones(len(gram)))
        except np.linalg.LinAlgError:
            raise UsageError(
                "two topics of this model use the same words, so that shares of slices are not determined: learn fewer "
                "topics, or merge them"
            ) from None
        # By Lagrange's multiplier for sum(theta) = 1. It vanishes up to rounding if no weight was bounded.
        missing = 1.0 - M.sum(axis=1)
        M += missing[:, None] * (even / even.sum())
        return cls(A, usual, gram, np.ascontiguousarray(M))

    def sums(self, X: csr_array, of: Positions, slices: int) -> SliceSums:
        """Sum over documents.

        X: (documents, n) counts of the model's words, integers, columns ascending in each row.
        of: (documents,) slice of each document, -1 for none.
        slices: how many there are.
        The bits are a function of the documents in their order.
        """
        chosen = np.flatnonzero(of >= 0)
        rows = X if len(chosen) == X.shape[0] else X[chosen]
        places = of[chosen]
        ones = np.ones(len(chosen), np.int64)
        numbers = np.arange(len(chosen))
        member = csr_array((ones, (places, numbers)), shape=(slices, len(chosen)))
        lengths = np.asarray(rows.sum(axis=1)).astype(np.int64)
        y = rows @ self.M
        counts = member @ rows.astype(np.int64, copy=False)
        # A document without any word of the model protects nobody.
        documents = np.bincount(places[lengths > 0], minlength=slices)
        return SliceSums(
            counts=csr_array(counts),
            documents=documents.astype(np.int64),
            lengths=member @ lengths,
            squared_lengths=member @ (lengths * lengths),
            mixed=member @ (lengths[:, None] * y),
            squares=member @ (y * y),
        )

    def slices(self, keys: SliceKeys, sums: SliceSums, *, floor: int = FLOOR, top: int = 10) -> TopicSlices:
        """Return the shares and words of the slices with enough documents.

        keys: names of the slices. sums: over their documents.
        floor: the fewest documents of a slice that is shown, at least 1.
        top: words of a topic in a slice.
        """
        enough = (sums.documents >= max(floor, 1)) & (sums.lengths > 0)
        shown = np.flatnonzero(enough)
        N = sums.counts[shown]
        total = sums.lengths[shown].astype(float)[:, None]
        free = (N @ self.M) / total
        weighted = self.A / self.usual[:, None]
        shares = solve_rows(self.gram, (N @ weighted) / total)
        variance = self._variance(sums, shown, free)
        low, high = variance.ends(free, _effective(sums, shown))
        words = self._words(N, shares, top)
        held = np.asarray(sums.documents[~enough])
        times = tuple(keys.times[k] for k in shown)
        classes = tuple(keys.classes[k] for k in shown)
        outside = np.count_nonzero(keys.of < 0)
        return TopicSlices(
            times=times,
            classes=classes,
            documents=sums.documents[shown],
            tokens=sums.lengths[shown],
            shares=shares,
            errors=np.sqrt(variance.whole),
            # The point of the simplex is shown, so it must lie within its interval.
            low=np.minimum(low, shares),
            high=np.maximum(high, shares),
            words=words,
            hidden=len(held),
            hidden_documents=int(held.sum()),
            outside=int(outside),
        )

    def _variance(self, sums: SliceSums, shown: Positions, free: Float) -> "_Variance":
        """Return the variance of each share. free: (slices, r) shares without bounds."""
        total = sums.lengths[shown].astype(float)[:, None]
        squared = sums.squared_lengths[shown].astype(float)[:, None]
        mixed = sums.mixed[shown]
        spread = sums.squares[shown] - 2 * free * mixed + free**2 * squared
        m = _effective(sums, shown)[:, None]
        own = np.maximum(spread, 0.0) / total**2 * m / (m - 1)
        inside = np.clip(free, 0.0, 1.0)
        of_others = self.A.T @ self.M**2
        np.fill_diagonal(of_others, 0.0)
        noise = inside @ of_others / total
        return _Variance.fitted(own, noise, inside * (1 - inside))

    def _words(self, N: csr_array, shares: Float, top: int) -> Positions:
        """Return the words that speak most for each topic in each slice, (slices, r, top), -1 if there are fewer.

        Of N_sw, the share A_wk theta_sk / (A theta_s)_w is the topic's. It counts by log(A_wk / usual_w), so that words
        of all topics come last.
        """
        slices, r = shares.shape
        found = np.full((slices, r, top), -1, np.intp)
        positive = np.maximum(self.A, 1e-300)
        lift = np.log(positive / self.usual[:, None])
        speaking = np.where(lift > 0, self.A * lift, 0.0)
        ranked = np.argsort(-speaking, axis=0, kind="stable")[:_CANDIDATES]
        # Columns of a sparse matrix are costly to take, so all of them are taken together, for all topics.
        needed = np.unique(ranked)
        counts = N[:, needed].toarray()
        expected = shares @ self.A[needed].T
        of_each = counts / np.maximum(expected, 1e-300)
        for k in range(r):
            best = ranked[:, k]
            best = best[speaking[best, k] > 0]
            columns = np.searchsorted(needed, best)
            here = of_each[:, columns]
            weights = speaking[best, k] * shares[:, k : k + 1]
            score = here * weights
            order = np.argsort(-score, axis=1, kind="stable")[:, :top]
            scored = np.take_along_axis(score, order, axis=1) > 0
            found[:, k, : order.shape[1]] = np.where(scored, best[order], -1)
        return found


def _effective(sums: SliceSums, shown: Positions) -> Float:
    """Return m, the documents that each slice has as many as, if all were equally long; 2 at least."""
    total = sums.lengths[shown].astype(float)
    squared = sums.squared_lengths[shown].astype(float)
    # One document alone has no spread, and t no degree of freedom.
    return np.asarray(np.maximum(total**2 / squared, 2.0))


@dataclass(frozen=True, slots=True, eq=False)
class _Variance:
    """Variances of shares, and how they would change with the share; see the module.

    whole: (slices, r) variance of each share.
    noise: (slices, r) its part that does not change with the share.
    spread: (slices, r) the rest over theta (1 - theta).
    """

    whole: Float
    noise: Float
    spread: Float

    @classmethod
    def fitted(cls, own: Float, noise: Float, chance: Float) -> Self:
        """Average each variance with that of two parts, fitted to all of them.

        own: (slices, r) variances from the documents alone.
        noise: (slices, r) N. chance: (slices, r) theta (1 - theta).
        """
        # Shares that come out at 0 have nothing but noise.
        absent = chance == 0.0
        clusters = float(own[absent].sum()) / max(float(noise[absent].sum()), _TINY)
        clustered = max(1.0, clusters) * noise
        mixing = np.maximum((own - clustered).sum(axis=1, keepdims=True), 0.0)
        mixing /= np.maximum(chance.sum(axis=1, keepdims=True), _TINY)
        whole = (own + clustered + mixing * chance) / 2
        # At the ends of the simplex the documents say nothing about the spread, so the slice has to.
        certain = chance > _END
        rest = np.maximum(whole - clustered, 0.0) / np.maximum(chance, _END)
        return cls(
            whole=whole,
            noise=np.where(certain, np.minimum(clustered, whole), clustered),
            spread=np.where(certain, rest, mixing),
        )

    def ends(self, free: Float, m: Float) -> tuple[Float, Float]:
        """Return both ends of the 95 % intervals, (slices, r) each.

        free: (slices, r) shares without bounds. m: (slices,) effective documents.
        """
        t2 = stdtrit(m - 1, _UPPER)[:, None] ** 2
        share = np.clip(free, 0.0, 1.0)
        # (share - theta)^2 = t^2 (noise + spread theta (1 - theta)), solved for theta.
        scale = 1 + t2 * self.spread
        middle = share + t2 * self.spread / 2
        inner = middle**2 - scale * (share**2 - t2 * self.noise)
        half = np.sqrt(np.maximum(inner, 0.0))
        low = np.maximum((middle - half) / scale, 0.0)
        high = np.minimum((middle + half) / scale, 1.0)
        return np.asarray(low), np.asarray(high)


def read_days(times: Any) -> Int64:
    """Return days since 1970 in UTC, (documents,) int64, the least int64 for a document without a time.

    times: dates, times, texts of ISO 8601, columns of these of numpy, pandas or polars, or whole numbers, which are
        milliseconds since 1970 as `ts` of an add. A time without a zone is taken as UTC. None, NaN, NaT and "" are
        documents without a time.
    Raises UsageError for other values.
    """
    try:
        given = np.asarray(times)
    except ValueError:
        # Lists of different lengths within a list.
        given = np.zeros((0, 0))
    if given.ndim != 1:
        raise UsageError("times must be a list with one for each document")
    if given.dtype.kind in "iu":
        given = given.astype("datetime64[ms]")
    if given.dtype.kind == "M":
        return given.astype("datetime64[D]").astype(np.int64)
    # One by one: numpy takes whole numbers among other objects for days, and knows neither zones nor all of ISO 8601.
    found = np.full(len(given), _NO_TIME, np.int64)
    for row, value in enumerate(given.tolist()):
        if not _is_missing(value):
            found[row] = _day(value, row)
    return found


def _is_missing(value: object) -> bool:
    """Return whether a document has no time: None, NaN or NaT, of whatever package, or an empty text."""
    # The missing value of pandas has no truth value, so its type is asked first.
    if value is None or type(value).__name__ == "NAType":
        return True
    return value == "" or bool(value != value)  # noqa: PLR0124  NaN differs from itself


def _day(value: object, row: int) -> int:
    """Return the day of a time, since 1970 in UTC. row: of the document. Raises UsageError for what is not a time."""
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[D]").astype(np.int64))
    if isinstance(value, float) and value.is_integer():
        # A column of whole numbers in which some are missing.
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value // _DAY_MS
    if isinstance(value, str):
        value = _moment(value)
    if isinstance(value, datetime):
        value = _utc_date(value)
    if not isinstance(value, date):
        raise UsageError(
            f"the time of document {row} cannot be read: give a date, a text of ISO 8601 such as 1987-02-26, or whole "
            "milliseconds since 1970"
        )
    return value.toordinal() - _EPOCH


def _utc_date(moment: datetime) -> date | None:
    """Return the date of a time in UTC, None if the calendar of Python does not reach so far."""
    try:
        return moment.date() if moment.tzinfo is None else moment.astimezone(UTC).date()
    except OverflowError:
        return None


def _moment(text: str) -> datetime | None:
    """Return the time that a text of ISO 8601 names, None for other texts. A year or a month is its first day."""
    whole = text + "-01-01"[len(text) - 4 :] if _YEAR_OR_MONTH.fullmatch(text) else text
    try:
        return datetime.fromisoformat(whole)
    except ValueError:
        return None


def periods(days: Int64, unit: Unit) -> list[str]:
    """Return the period of each day as text that sorts by time; "" for a day that is missing.

    days: (documents,) days since 1970, as `read_days`.
    unit: 2026-01-31, 2026-W05, 2026-01, 2026-Q1 or 2026.
    Raises UsageError for another unit.
    """
    if unit not in UNITS:
        raise UsageError(f"there is no period {unit}: take {', '.join(UNITS)}")
    # Many documents share a day.
    different, where = np.unique(days, return_inverse=True)
    of_different = [_period(int(day), unit) for day in different.tolist()]
    names = np.array(of_different, dtype=object)
    found: list[str] = names[where].tolist()
    return found


def _period(number: int, unit: Unit) -> str:
    """Return the period of a day."""
    day = np.datetime64(number, "D")
    if np.isnat(day):
        return ""
    if unit == "day":
        return str(day)
    if unit == "week":
        # 1970 began on a Thursday. A week belongs to the year that its Thursday is in.
        monday = number - (number + _THURSDAY) % 7
        thursday = np.datetime64(monday + _THURSDAY, "D")
        its_year = thursday.astype("datetime64[Y]")
        since = thursday - its_year.astype("datetime64[D]")
        week = int(since.astype(int)) // 7 + 1
        return f"{its_year}-W{week:02d}"
    year = str(day.astype("datetime64[Y]"))
    if unit == "year":
        return year
    month = str(day.astype("datetime64[M]"))
    if unit == "month":
        return month
    quarter = (int(month[-2:]) + 2) // 3
    return f"{year}-Q{quarter}"
