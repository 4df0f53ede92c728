"""How many topics? Several numbers are tried on the same counts, and one is recommended with its reason.

For each number of topics

    coherence    mean NPMI of the ten top words, over documents
    diversity    share of distinct words among them
    kept         mean share of a topic's ten top words that its counterpart still has after 1 % of the documents, drawn
                 at random, were forgotten; counterparts are the assignment that keeps most
    steady       share of such forget sets that leave the anchor words as they are

The score is coherence times diversity: words of a topic belong together, and topics are apart (Dieng, Ruiz and Blei
2020, "Topic Modeling in Embedding Spaces", section 5). Few topics often score best. So of the numbers that keep four
fifths of their words, the greatest within a tenth of the best score is taken.

Every model here is the one that `learn` gives, to rounding. The part that does not depend on the number of topics is
prepared once for all documents, and once for each forget set.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from streamtopic.counts import Counts, CountSource, DocumentBatch, count
from streamtopic.counts.arrays import Positions
from streamtopic.counts.matrices import as_documents
from streamtopic.errors import CannotLearn, UsageError
from streamtopic.topics.display import WordEvidence, diversity, named, npmi, top_words
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import Prepared, choose_words, learn_prepared, prepare, thresholds
from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["TOPICS", "Candidate", "Suggestion", "TrialPlan", "recommend", "suggest_for", "suggest_topics"]


TOPICS = (5, 10, 15, 20, 30, 50)
"""The numbers of topics that are tried by default."""

_TOP = 10
# Documents on which coherence is measured. More would not move its second digit.
_SAMPLE = 20_000

NEAR = 0.1
"""A score within this share of the best counts as equally good: measures of topics are not sharper than that."""

LASTING = 0.8
"""The least share of top words that must outlast a forget set."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A number of topics, and the measurements of its model.

    topics: how many.
    words: words of the vocabulary.
    coherence: mean NPMI, from -1 to 1.
    diversity: share of distinct words among the top words.
    kept, steady: shares; see the module. None if nothing was forgotten.
    least_share: share of the smallest topic.
    certificate: bound on the distance to the exact optimum.
    top_words: ten of each topic.
    reason: why there is no model. All measurements are empty then.
    """

    topics: int
    words: int = 0
    coherence: float = 0.0
    diversity: float = 0.0
    kept: float | None = None
    steady: float | None = None
    least_share: float = 0.0
    certificate: float = 0.0
    top_words: tuple[tuple[str, ...], ...] = ()
    reason: str = ""

    @property
    def score(self) -> float:
        """Coherence times diversity, or coherence alone if it is negative."""
        # A negative coherence times a small diversity would be a better score.
        if self.coherence <= 0:
            return self.coherence
        return self.coherence * self.diversity

    @property
    def lasting(self) -> bool:
        """Whether enough of its words outlast a forget set. True if no forget set was tried."""
        return self.kept is None or self.kept >= LASTING

    def as_json(self) -> dict[str, Any]:
        """Return the measurements for JSON, without the words."""
        if self.reason:
            return {"topics": self.topics, "reason": self.reason}
        fields = asdict(self)
        del fields["top_words"]
        return {**fields, "score": self.score}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The recommended number of topics, and the others that were tried.

    candidates: all of them, by number of topics.
    recommended: one of them, or None if there is no model.
    reason: of the recommendation, in words.
    """

    candidates: tuple[Candidate, ...]
    recommended: Candidate | None
    reason: str

    def as_json(self) -> Mapping[str, Any]:
        """Return everything as `suggest --json` prints it."""
        best = self.recommended
        number = None
        topics: list[list[str]] = []
        if best is not None:
            number = best.topics
            topics = [list(words) for words in best.top_words]
        return {
            "recommended": number,
            "reason": self.reason,
            "candidates": [candidate.as_json() for candidate in self.candidates],
            "topics": topics,
        }


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """How numbers of topics are tried.

    trials: how many forget sets; 0 to forget nothing.
    share: the share of the documents that is in each forget set.
    """

    trials: int = 5
    share: float = 0.01

    def __post_init__(self) -> None:
        if self.trials < 0:
            raise UsageError(f"trials is {self.trials}: use 0 or more forget sets")
        if not 0 < self.share <= 0.5:
            raise UsageError(f"share is {self.share}: use a share of the documents above 0 and at most 0.5")


def suggest_topics(
    source: CountSource,
    documents: DocumentBatch,
    options: LearnerOptions,
    generator: np.random.Generator,
    *,
    topics: Sequence[int] = TOPICS,
    plan: TrialPlan | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Suggestion:
    """Try numbers of topics and recommend one. The result is a function of the arguments and the generator's state.

    source: counts made with `options.weighting`.
    documents: the counted documents, or some of them; their words are positions in `source.words`. Forget sets are
        drawn from them.
    options: of the learner; their number of topics does not count.
    generator: draws the forget sets.
    topics: the numbers to try, in any order.
    plan: how they are tried; None for the default.
    progress: is called with the models that are done and all models.

    Cost: for all documents and for each forget set a pass over the counts, and a cold start for each number of topics.
    Raises UsageError for numbers of topics or documents that are not possible, CannotLearn if these counts make no
    model at all.
    """
    plan = plan or TrialPlan()
    wanted = sorted(set(topics))
    if not wanted or wanted[0] < 1:
        raise UsageError("numbers of topics to try are whole numbers from 1 on: give one or more, such as 5,10,20")
    last_word = int(documents.words.max(initial=-1))
    if documents.documents > source.documents or last_word >= len(source.words):
        raise UsageError(
            "the documents are not those that were counted, since there are more of them or other words in them: "
            "give documents that the counts were made of"
        )
    search = _Search(source, documents, options, plan, generator, progress)
    return recommend(search.candidates([replace(options, n_topics=r) for r in wanted]))


def suggest_for(
    X: csr_array,
    feature_names: Sequence[str] | None = None,
    options: LearnerOptions | None = None,
    *,
    topics: Sequence[int] = TOPICS,
    plan: TrialPlan | None = None,
    seed: int = 0,
) -> Suggestion:
    """Suggest a number of topics for rows of word counts, such as AnchorTopics is fitted on.

    X: (documents, words) sparse or dense.
    feature_names: the words of its columns, all different; by default their numbers.
    options, topics, plan: as in `suggest_topics`.
    seed: of the random forget sets.
    Raises UsageError as `suggest_topics`, and for names that do not fit the columns.
    """
    rows = csr_array(X)
    columns = rows.shape[1]
    names = [f"x{k}" for k in range(columns)]
    if feature_names is not None:
        names = [str(name) for name in feature_names]
    if len(set(names)) < len(names) or len(names) != columns:
        raise UsageError(f"{len(names)} names for {columns} columns: give one for each, all different")
    if rows.nnz and rows.data.min() < 0:
        raise UsageError("a word's count is negative: give counts of words")
    # Counts are over words in order, so columns come into that order.
    order = np.array(sorted(range(columns), key=names.__getitem__), np.intp)
    rows = csr_array(rows[:, order])
    rows.sum_duplicates()
    options = options or LearnerOptions()
    documents = as_documents(rows)
    words = [names[k] for k in order.tolist()]
    counted = Counts(words, count(documents, columns, options.weighting))
    generator = np.random.default_rng(seed)
    return suggest_topics(counted, documents, options, generator, topics=topics, plan=plan)


class _Search:
    """Models of the whole corpus and of the documents that forget sets leave, for several options."""

    def __init__(
        self,
        source: CountSource,
        documents: DocumentBatch,
        options: LearnerOptions,
        plan: TrialPlan,
        generator: np.random.Generator,
        progress: Callable[[int, int], None],
    ) -> None:
        self.source = source
        self.documents = documents
        self.options = options
        self.progress = progress
        self.done = 0
        here = documents.documents
        # At most half of the documents at hand, which may be fewer than were counted.
        wanted = max(1, round(plan.share * source.documents))
        size = min(wanted, here // 2)
        self.gone = []
        if size:
            for _ in range(plan.trials):
                drawn = generator.permutation(here)[:size]
                self.gone.append(np.sort(drawn))
        self.sample = documents.take(np.arange(min(here, _SAMPLE)))

    def candidates(self, wanted: Sequence[LearnerOptions]) -> list[Candidate]:
        """Return the candidate of each. They differ in the number of topics only, so their vocabulary is the same."""
        self.total = len(wanted) * (1 + len(self.gone))
        forgotten = len(self.gone[0]) if self.gone else 0
        narrow = _narrowed(self.source, wanted[0], forgotten)
        narrow_words = _positions(self.source, narrow.words)
        whole = self._learned(narrow, wanted)
        trials = []
        for gone in self.gone:
            lost = self.documents.take(gone)
            part = count(lost, len(self.source.words), self.options.weighting)
            left = Counts(narrow.words, narrow.cooccurrence - part.restrict(narrow_words))
            trials.append(self._learned(left, wanted))
        found = []
        for k, options in enumerate(wanted):
            after = [trial[k] for trial in trials]
            found.append(self._candidate(options, whole[k], after))
        return found

    def _learned(self, source: CountSource, wanted: Sequence[LearnerOptions]) -> list["_Learned"]:
        """Learn with each of some options, which ascend by their numbers of topics."""
        try:
            # Counts that suffice for the fewest topics are prepared, and serve the other numbers too.
            prepared = prepare(source, wanted[0])
        except CannotLearn as error:
            self._advance(len(wanted))
            return [_Learned(reason=str(error))] * len(wanted)
        return [self._one(prepared, source, options) for options in wanted]

    def _one(self, prepared: Prepared, source: CountSource, options: LearnerOptions) -> "_Learned":
        """Learn once."""
        self._advance(1)
        try:
            fit = learn_prepared(prepared, options)
        except CannotLearn as error:
            return _Learned(reason=str(error))
        at = _positions(source, fit.words)
        evidence = WordEvidence.of(fit, source.frequency[at])
        order = top_words(fit.A, evidence, _TOP)
        return _Learned(fit, named(order, fit.words))

    def _advance(self, models: int) -> None:
        """Report that some models are done."""
        self.done += models
        self.progress(self.done, self.total)

    def _candidate(self, options: LearnerOptions, whole: "_Learned", trials: Sequence["_Learned"]) -> Candidate:
        """Measure a model, given also the models of the same options after each forget set."""
        fit = whole.fit
        if fit is None:
            return Candidate(options.n_topics, reason=whole.reason)
        place = {word: k for k, word in enumerate(self.source.words)}
        top = np.array([_at(place, topic) for topic in whole.top], np.intp)
        kept = None
        steady = None
        if trials:
            shares = [_kept(whole.top, trial.top) for trial in trials]
            kept = float(np.mean(shares))
            same = [trial.anchors == whole.anchors for trial in trials]
            steady = float(np.mean(same))
        coherence = npmi(top, self.sample)
        least_share = float(fit.topic_masses.min())
        return Candidate(
            options.n_topics,
            words=len(fit.words),
            coherence=coherence,
            diversity=diversity(top),
            kept=kept,
            steady=steady,
            least_share=least_share,
            certificate=fit.certificate.bound,
            top_words=whole.top,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Learned:
    """A model and each topic's top words, or the reason why no model can be made."""

    fit: TopicFit | None = None
    top: tuple[tuple[str, ...], ...] = ()
    reason: str = ""

    @property
    def anchors(self) -> tuple[str, ...]:
        """The anchor words, () without a model."""
        return () if self.fit is None else self.fit.anchors


def _narrowed(source: CountSource, options: LearnerOptions, gone: int) -> Counts:
    """Return the counts of the words that can be in the vocabulary, also when `gone` documents go."""
    # Most words of a corpus cannot, and nearly all pairs have such a word.
    left = thresholds(source.documents - gone, options)
    most = max(left.most, thresholds(source.documents, options).most)
    enough = source.frequency >= max(left.least, 1)
    not_too_many = source.frequency - gone <= most
    keep = np.flatnonzero(enough & not_too_many)
    chosen, _ = choose_words(source, options)
    keep = np.union1d(keep, chosen)
    words = [source.words[k] for k in keep.tolist()]
    return Counts(words, source.restrict(keep))


def _at(place: Mapping[str, int], words: Sequence[str]) -> list[int]:
    """Look up words that are all there."""
    return [place[word] for word in words]


def _positions(source: CountSource, words: Sequence[str]) -> Positions:
    """Return where some words of a source are."""
    place = {word: k for k, word in enumerate(source.words)}
    return np.array(_at(place, words), np.intp)


def _kept(before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> float:
    """Return the mean share of each topic's top words that its counterpart still has, 0 without a model after."""
    if not after:
        return 0.0
    shared = np.zeros((len(before), len(after)), np.int64)
    for i, one in enumerate(before):
        shared[i] = [len({*one} & {*other}) for other in after]
    rows, columns = linear_sum_assignment(shared, maximize=True)
    sizes = np.array([len(before[i]) for i in rows])
    shares = shared[rows, columns] / sizes
    return float(np.mean(shares))


def recommend(candidates: Sequence[Candidate]) -> Suggestion:
    """Take the greatest number of topics whose score is within a tenth of the best, among lasting candidates.

    If no candidate lasts, take the one that keeps most words.
    """
    everything = tuple(candidates)
    made = [candidate for candidate in candidates if not candidate.reason]
    if not made:
        why = candidates[0].reason if candidates else "no number of topics was tried"
        return Suggestion(everything, None, f"no model can be made: {why}")
    lasting = [candidate for candidate in made if candidate.lasting]
    if not lasting:
        most = max(made, key=lambda candidate: (candidate.kept or 0.0, candidate.score))
        return Suggestion(everything, most, _fleeting(most))
    best = max(lasting, key=lambda candidate: candidate.score)
    chosen = best
    # Nine tenths of a negative score would be a better score than the best.
    if best.score > 0:
        enough = (1 - NEAR) * best.score
        near = [candidate for candidate in lasting if candidate.score >= enough]
        chosen = max(near, key=lambda candidate: candidate.topics)
    return Suggestion(everything, chosen, _reason(chosen, best, made))


def _reason(chosen: Candidate, best: Candidate, made: Sequence[Candidate]) -> str:
    """Say why a number of topics is recommended."""
    if chosen is best:
        said = [f"{_topics(chosen)}: the best score, {chosen.score:.2f} (coherence times diversity)"]
    else:
        near = f"is within a tenth of the best, {best.score:.2f} at {best.topics}"
        said = [f"{_topics(chosen)}: the most whose score, {chosen.score:.2f} (coherence times diversity), {near}"]
    fleeting = [candidate for candidate in made if not candidate.lasting]
    better = [candidate for candidate in fleeting if candidate.score > best.score]
    if better:
        said.append(f"{_listed(better)} scored higher, but too few of the top words outlast the forget sets")
    if chosen.kept is not None and chosen.steady is not None:
        said.append(f"after a forget set {chosen.kept:.0%} of the top words are still there")
        said.append(_retrains(chosen.steady))
    return "; ".join(said)


def _fleeting(most: Candidate) -> str:
    """Say that too few words outlast the forget sets at any number of topics."""
    return (
        f"{_topics(most)} keep the most top words, {most.kept or 0.0:.0%}, after a forget set; no number of topics "
        "that was tried keeps four fifths: add documents or ask fewer topics"
    )


def _retrains(steady: float) -> str:
    """Say what deletions of that size do to the anchors."""
    if steady == 1:
        return "no forget set tried changes the anchors, so an update serves them all"
    if steady == 0:
        return "each forget set tried changes an anchor, so expect a retrain for a deletion of that size"
    return f"{steady:.0%} of the forget sets leave the anchors in place, the others change some of them"


def _topics(candidate: Candidate) -> str:
    return "1 topic" if candidate.topics == 1 else f"{candidate.topics} topics"


def _listed(candidates: Sequence[Candidate]) -> str:
    return ", ".join(str(candidate.topics) for candidate in candidates)
