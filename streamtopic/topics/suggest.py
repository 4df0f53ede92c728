"""How many topics? Several numbers tried on the same counts, and one recommended with its reason.

For each number of topics

    coherence    mean NPMI of the ten top words, over documents
    diversity    share of distinct words among them
    kept         mean share of a topic's ten top words that its counterpart still has after 1 % of the documents, drawn
                 at random, were forgotten; counterparts are the assignment that keeps most
    steady       share of such forget sets that leave the anchor words as they are, so that an update serves them; the
                 others cost a retrain

The score is coherence times diversity, each topic's words together and the topics apart (Dieng, Ruiz and Blei 2020,
"Topic Modeling in Embedding Spaces", section 5). Few topics often score best, so the greatest number within a tenth of
the best score is taken, of those that keep four fifths of their words.

Every model here is the one that `learn` gives, to rounding. What does not depend on the number of topics is prepared
once for the whole and once for each forget set.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from streamtopic.counts import Counts, CountSource, CountsWithout, DocumentBatch, WordSets, count
from streamtopic.errors import CannotLearn, UsageError
from streamtopic.topics.display import diversity, npmi, top_words
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import Prepared, learn_prepared, prepare
from streamtopic.topics.options import LearnerOptions
from streamtopic.topics.recommend import Candidate, Suggestion, recommend
from streamtopic.topics.rows import as_documents
from streamtopic.topics.vocabulary import choose_words, thresholds

__all__ = ["TOPICS", "TrialPlan", "suggest_for", "suggest_topics"]

Int64 = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]

TOPICS = (5, 10, 15, 20, 30, 50)
"""Numbers of topics that are tried unless others are asked for."""

_TOP = 10
_SAMPLE = 20_000


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """What is tried: trials, how many forget sets, 0 for none; share, of the documents, that each holds; variants:
    whether half and twice of max_df and anchor_min_df are tried too, at the number of topics that was recommended.
    """

    trials: int = 5
    share: float = 0.01
    variants: bool = False

    def __post_init__(self) -> None:
        if self.trials < 0:
            raise UsageError(f"trials is {self.trials}: use 0 or more forget sets")
        if not 0 < self.share <= 0.5:
            raise UsageError(f"share is {self.share}: use a share of the documents above 0, at most 0.5")


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
    """Try numbers of topics and recommend one.

    source: counts made with `options.weighting`. documents: those that were counted, or some of them, their words
    positions in `source.words`; forget sets are drawn from them. topics: the numbers to try, in any order; `options`
    says all else. progress: told models made and models in all. A function of its arguments and the generator's state.
    Cost: for the whole and each forget set one pass over the counts, and a cold start for each number of topics.
    Raises UsageError for numbers or documents that cannot be, CannotLearn where these counts make no model at all.
    """
    plan = plan or TrialPlan()
    wanted = sorted(set(topics))
    if not wanted or wanted[0] < 1:
        raise UsageError("the numbers of topics to try are whole numbers of at least 1, one or more: such as 5,10,20")
    if documents.documents > source.documents or int(documents.words.max(initial=-1)) >= len(source.words):
        raise UsageError("the documents are not those that were counted: there are too many, or unknown words")
    search = _Search(source, documents, options, plan, generator, progress)
    candidates = tuple(search.candidates([replace(options, n_topics=r) for r in wanted]))
    found = recommend(candidates)
    if not plan.variants or found.recommended is None:
        return found
    variants = tuple(search.variants(replace(options, n_topics=found.recommended.topics)))
    return replace(found, variants=variants)


def suggest_for(
    X: csr_array,
    feature_names: Sequence[str] | None = None,
    options: LearnerOptions | None = None,
    *,
    topics: Sequence[int] = TOPICS,
    plan: TrialPlan | None = None,
    seed: int = 0,
) -> Suggestion:
    """Suggest for rows of word counts, as AnchorTopics is fitted on: X (documents, words), sparse or dense.

    feature_names: the words of its columns, distinct; by default their numbers. Raises UsageError as `suggest_topics`.
    """
    rows = csr_array(X)
    names = [f"x{k}" for k in range(rows.shape[1])] if feature_names is None else [str(name) for name in feature_names]
    if len(set(names)) < len(names) or len(names) != rows.shape[1]:
        raise UsageError(f"{len(names)} names for {rows.shape[1]} columns: give one for each, all different")
    if rows.nnz and rows.data.min() < 0:
        raise UsageError("a word's count is negative: give counts of words")
    # Counts are over words in order, so columns come into that order.
    order = np.array(sorted(range(len(names)), key=names.__getitem__), np.intp)
    rows = csr_array(rows[:, order])
    rows.sum_duplicates()
    options = options or LearnerOptions()
    documents = as_documents(rows)
    counted = Counts([names[k] for k in order.tolist()], count(documents, len(names), options.weighting))
    return suggest_topics(counted, documents, options, np.random.default_rng(seed), topics=topics, plan=plan)


class _Search:
    """Models of the whole and of what forget sets leave, for several options."""

    def __init__(
        self,
        source: CountSource,
        documents: DocumentBatch,
        options: LearnerOptions,
        plan: TrialPlan,
        generator: np.random.Generator,
        progress: Callable[[int, int], None],
    ) -> None:
        size = min(max(1, round(plan.share * source.documents)), documents.documents // 2)
        trials = plan.trials if size else 0
        self.gone = [np.sort(generator.permutation(documents.documents)[:size]) for _ in range(trials)]
        self.source, self.documents, self.options = source, documents, options
        self.held = _held(documents.take(np.arange(min(documents.documents, _SAMPLE))))
        self.progress, self.done, self.total = progress, 0, 0

    def candidates(self, wanted: Sequence[LearnerOptions]) -> list[Candidate]:
        """Return what came of each; their vocabularies are the same."""
        self.total += len(wanted) * (1 + len(self.gone))
        narrow = _narrowed(self.source, wanted[0], len(self.gone[0]) if self.gone else 0)
        whole = self._learned(narrow, wanted)
        trials = []
        for gone in self.gone:
            part = count(self.documents.take(gone), len(self.source.words), self.options.weighting)
            trials.append(
                self._learned(CountsWithout(narrow, part.restrict(_positions(self.source, narrow.words))), wanted)
            )
        return [self._candidate(options, whole[k], [trial[k] for trial in trials]) for k, options in enumerate(wanted)]

    def variants(self, options: LearnerOptions) -> list[Candidate]:
        """Return what comes of half and twice of each threshold, forgetting nothing."""
        changed = [
            replace(options, **{name: min(1.0, getattr(options, name) * factor)})
            for name in ("max_df", "anchor_min_df")
            for factor in (0.5, 2.0)
        ]
        self.total += len(changed)
        return [self._candidate(one, self._learned(_narrowed(self.source, one, 0), [one])[0], []) for one in changed]

    def _learned(self, source: CountSource, wanted: Sequence[LearnerOptions]) -> list["_Learned"]:
        """Learn each; one prepared for the fewest topics serves all."""
        try:
            most = max(options.n_topics for options in wanted)
            prepared = prepare(source, min(wanted, key=lambda options: options.n_topics)).sharing(most)
        except CannotLearn as error:
            self._advance(len(wanted))
            return [_Learned(reason=str(error))] * len(wanted)
        return [self._one(prepared, source, options) for options in wanted]

    def _one(self, prepared: Prepared, source: CountSource, options: LearnerOptions) -> "_Learned":
        self._advance(1)
        try:
            fit = learn_prepared(prepared, options)
        except CannotLearn as error:
            return _Learned(reason=str(error))
        at = _positions(source, fit.words)
        order = top_words(fit.A, source.frequency[at], source.documents, _TOP)
        return _Learned(fit, tuple(tuple(fit.words[k] for k in topic) for topic in order))

    def _advance(self, models: int) -> None:
        self.done += models
        self.progress(self.done, self.total)

    def _candidate(self, options: LearnerOptions, whole: "_Learned", trials: Sequence["_Learned"]) -> Candidate:
        if whole.fit is None:
            return Candidate(options.n_topics, options.max_df, options.anchor_min_df, reason=whole.reason)
        kept = [_kept(whole.top, trial.top) for trial in trials]
        place = {word: k for k, word in enumerate(self.source.words)}
        top = np.array([[place[word] for word in topic] for topic in whole.top], np.intp)
        return Candidate(
            options.n_topics,
            options.max_df,
            options.anchor_min_df,
            words=len(whole.fit.words),
            coherence=npmi(top, self.held),
            diversity=diversity(top),
            kept=float(np.mean(kept)) if kept else None,
            steady=float(np.mean([trial.anchors == whole.anchors for trial in trials])) if trials else None,
            least_share=float(whole.fit.topic_masses.min()),
            certificate=whole.fit.certificate.bound,
            top_words=whole.top,
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Learned:
    """A model and each topic's top words, or why there is none."""

    fit: TopicFit | None = None
    top: tuple[tuple[str, ...], ...] = ()
    reason: str = ""

    @property
    def anchors(self) -> tuple[str, ...]:
        return () if self.fit is None else self.fit.anchors


def _narrowed(source: CountSource, options: LearnerOptions, gone: int) -> Counts:
    """Leave out words that cannot come into the vocabulary when `gone` documents go: most words of a corpus."""
    left = thresholds(source.documents - gone, options)
    most = max(left.most, thresholds(source.documents, options).most)
    keep = np.flatnonzero((source.frequency >= max(left.least, 1)) & (source.frequency - gone <= most))
    chosen, _ = choose_words(source.frequency, source.documents, options)
    keep = np.union1d(keep, chosen)
    return Counts([source.words[k] for k in keep.tolist()], source.restrict(keep))


def _positions(source: CountSource, words: Sequence[str]) -> Positions:
    place = {word: k for k, word in enumerate(source.words)}
    return np.array([place[word] for word in words], np.intp)


def _held(documents: DocumentBatch) -> WordSets:
    sizes = np.bincount(documents.owners, np.diff(documents.indptr), documents.documents).astype(np.int64)
    return WordSets(np.concatenate([[0], np.cumsum(sizes)]), documents.words.astype(np.int64))


def _kept(before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> float:
    """Return the mean share of top words that stay, 0 where there is no model any more."""
    if not after:
        return 0.0
    shared = np.array([[len({*one} & {*other}) for other in after] for one in before])
    rows, columns = linear_sum_assignment(shared, maximize=True)
    return float(np.mean([shared[i, j] / len(before[i]) for i, j in zip(rows, columns, strict=True)]))
