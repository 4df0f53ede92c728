"""How many topics? Several numbers tried on the same counts, and one recommended with its reason.

For each number of topics

    coherence    mean NPMI of the ten top words, over documents
    diversity    share of distinct words among them
    kept         mean share of a topic's ten top words that its counterpart still has after 1 % of the documents, drawn
                 at random, were forgotten; counterparts are the assignment that keeps most
    steady       share of such forget sets that leave the anchor words as they are; the update of the others has other
                 anchors

The score is coherence times diversity, each topic's words together and the topics apart (Dieng, Ruiz and Blei 2020,
"Topic Modeling in Embedding Spaces", section 5). Few topics often score best, so the greatest number within a tenth of
the best score is taken, of those that keep four fifths of their words.

Every model here is the one that `learn` gives, to rounding. The part that does not depend on the number of topics is
prepared once for the whole and once for each forget set.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from streamtopic.counts import Counts, CountSource, CountsWithout, DocumentBatch, WordSets, count
from streamtopic.errors import CannotLearn, UsageError
from streamtopic.topics.display import WordEvidence, diversity, named, npmi, top_words
from streamtopic.topics.document_rows import as_documents
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner import Prepared, learn_prepared, prepare
from streamtopic.topics.learner_options import LearnerOptions
from streamtopic.topics.working_vocabulary import choose_words, thresholds

__all__ = ["TOPICS", "Candidate", "Suggestion", "TrialPlan", "recommend", "suggest_for", "suggest_topics"]

Int64 = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]

TOPICS = (5, 10, 15, 20, 30, 50)
"""Numbers of topics that are tried unless others are asked for."""

_TOP = 10
# Documents on which coherence is measured: more would not move its second digit.
_SAMPLE = 20_000

NEAR = 0.1
"""A score within this share of the best is as good: measures of topics are not sharper than that."""

LASTING = 0.8
"""Least share of top words that must outlast a forget set."""


_LIMITS = ("topics", "max_df", "anchor_min_df")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A number of topics under two thresholds (see LearnerOptions), and how its model turned out.

    words: of the vocabulary.
    coherence: mean NPMI, from -1 to 1.
    diversity, kept, steady: shares, see the module; the last two None where nothing was forgotten.
    least_share: of the smallest topic.
    certificate: bound on the distance to the exact optimum.
    top_words: ten of each topic.
    reason: why there is no model; then everything else is empty.
    """

    topics: int
    max_df: float
    anchor_min_df: float
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
        """Coherence times diversity; coherence alone where it is negative, which being all alike would improve."""
        return self.coherence * self.diversity if self.coherence > 0 else self.coherence

    @property
    def lasting(self) -> bool:
        """Whether enough of its words outlast a forget set; also where that was not tried."""
        return self.kept is None or self.kept >= LASTING

    def as_json(self) -> dict[str, Any]:
        """Return the measurements for JSON, without the words."""
        fields = {name: value for name, value in asdict(self).items() if name != "top_words"}
        return {**fields, "score": self.score} if not self.reason else {k: fields[k] for k in (*_LIMITS, "reason")}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """All candidates by number of topics, the recommended one, or None, and the reason in words.

    variants: the recommended number under other thresholds, where they were tried.
    """

    candidates: tuple[Candidate, ...]
    recommended: Candidate | None
    reason: str
    variants: tuple[Candidate, ...] = ()

    def as_json(self) -> Mapping[str, Any]:
        """Return everything as `suggest --json` prints it."""
        best = self.recommended
        return {
            "recommended": None if best is None else best.topics,
            "reason": self.reason,
            "candidates": [candidate.as_json() for candidate in self.candidates],
            "variants": [variant.as_json() for variant in self.variants],
            "topics": [] if best is None else [list(words) for words in best.top_words],
        }


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """How numbers of topics are tried.

    trials: forget sets, 0 to forget nothing.
    share: of the documents in each forget set.
    variants: whether half and twice of max_df and anchor_min_df are tried too, at the recommended number of topics.
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
        size = min(max(1, round(plan.share * source.documents)), documents.documents // 2)
        trials = plan.trials if size else 0
        self.gone = [np.sort(generator.permutation(documents.documents)[:size]) for _ in range(trials)]
        self.source, self.documents, self.options = source, documents, options
        self.held = _held(documents.take(np.arange(min(documents.documents, _SAMPLE))))
        self.progress, self.done, self.total = progress, 0, 0

    def candidates(self, wanted: Sequence[LearnerOptions]) -> list[Candidate]:
        """Return the candidate of each; their vocabularies are the same."""
        self.total += len(wanted) * (1 + len(self.gone))
        narrow = _narrowed(self.source, wanted[0], len(self.gone[0]) if self.gone else 0)
        whole = self._learned(narrow, wanted)
        trials = []
        for gone in self.gone:
            part = count(self.documents.take(gone), len(self.source.words), self.options.weighting)
            left = CountsWithout(narrow, part.restrict(_positions(self.source, narrow.words)))
            trials.append(self._learned(left, wanted))
        found = []
        for k, options in enumerate(wanted):
            after = [trial[k] for trial in trials]
            found.append(self._candidate(options, whole[k], after))
        return found

    def variants(self, options: LearnerOptions) -> list[Candidate]:
        """Return the candidates of half and twice of each threshold, forgetting nothing."""
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
            prepared = prepare(source, wanted[0])
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
        order = top_words(fit.A, WordEvidence.of(fit, source.frequency[at]), _TOP)
        return _Learned(fit, named(order, fit.words))

    def _advance(self, models: int) -> None:
        self.done += models
        self.progress(self.done, self.total)

    def _candidate(self, options: LearnerOptions, whole: "_Learned", trials: Sequence["_Learned"]) -> Candidate:
        if whole.fit is None:
            return Candidate(options.n_topics, options.max_df, options.anchor_min_df, reason=whole.reason)
        kept = [_kept(whole.top, trial.top) for trial in trials]
        place = {word: k for k, word in enumerate(self.source.words)}
        top = np.array([_at(place, topic) for topic in whole.top], np.intp)
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
    """A model and each topic's top words, or the reason why no model can be made."""

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
    chosen, _ = choose_words(source, options)
    keep = np.union1d(keep, chosen)
    return Counts([source.words[k] for k in keep.tolist()], source.restrict(keep))


def _at(place: Mapping[str, int], words: Sequence[str]) -> list[int]:
    return [place[word] for word in words]


def _positions(source: CountSource, words: Sequence[str]) -> Positions:
    place = {word: k for k, word in enumerate(source.words)}
    return np.array(_at(place, words), np.intp)


def _held(documents: DocumentBatch) -> WordSets:
    sizes = np.bincount(documents.owners, np.diff(documents.indptr), documents.documents).astype(np.int64)
    return WordSets(np.concatenate([[0], np.cumsum(sizes)]), documents.words.astype(np.int64))


def _kept(before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> float:
    """Return the mean share of top words that stay, 0 where no model is left."""
    if not after:
        return 0.0
    shared = np.zeros((len(before), len(after)), np.int64)
    for i, one in enumerate(before):
        shared[i] = [len({*one} & {*other}) for other in after]
    rows, columns = linear_sum_assignment(shared, maximize=True)
    return float(np.mean([shared[i, j] / len(before[i]) for i, j in zip(rows, columns, strict=True)]))


def recommend(candidates: Sequence[Candidate]) -> Suggestion:
    """Take the greatest number of topics whose score is within a tenth of the best, among lasting candidates.

    Where no candidate lasts, the one that keeps most words.
    """
    made = [candidate for candidate in candidates if not candidate.reason]
    if not made:
        why = candidates[0].reason if candidates else "no number of topics was tried"
        return Suggestion(tuple(candidates), None, f"no model can be made: {why}")
    lasting = [candidate for candidate in made if candidate.lasting]
    if not lasting:
        most = max(made, key=lambda candidate: (candidate.kept or 0.0, candidate.score))
        return Suggestion(tuple(candidates), most, _fleeting(most))
    best = max(lasting, key=lambda candidate: candidate.score)
    near = [candidate for candidate in lasting if candidate.score >= (1 - NEAR) * best.score]
    chosen = max(near, key=lambda candidate: candidate.topics) if best.score > 0 else best
    return Suggestion(tuple(candidates), chosen, _reason(chosen, best, made))


def _reason(chosen: Candidate, best: Candidate, made: Sequence[Candidate]) -> str:
    if chosen is best:
        said = [f"{_topics(chosen)}: the best score, {chosen.score:.2f} (coherence times diversity)"]
    else:
        near = f"is within a tenth of the best, {best.score:.2f} at {best.topics}"
        said = [f"{_topics(chosen)}: the most whose score, {chosen.score:.2f} (coherence times diversity), {near}"]
    better = [candidate for candidate in made if not candidate.lasting and candidate.score > best.score]
    if better:
        said.append(f"{_listed(better)} scored higher, but too few of the top words outlast the forget sets")
    if chosen.kept is not None and chosen.steady is not None:
        said.append(f"after a forget set {chosen.kept:.0%} of the top words are still there")
        said.append(_retrains(chosen.steady))
    return "; ".join(said)


def _fleeting(most: Candidate) -> str:
    return (
        f"{_topics(most)} keep the most top words, {most.kept or 0.0:.0%}, after a forget set; none of the numbers "
        "tried keeps four fifths: add documents or ask fewer topics"
    )


def _retrains(steady: float) -> str:
    if steady == 1:
        return "no forget set tried changes the anchors, so an update serves them all"
    if steady == 0:
        return "each forget set tried changes an anchor, so expect a retrain for a deletion of that size"
    return f"{steady:.0%} of the forget sets leave the anchors in place, the others change some"


def _topics(candidate: Candidate) -> str:
    return "1 topic" if candidate.topics == 1 else f"{candidate.topics} topics"


def _listed(candidates: Sequence[Candidate]) -> str:
    return ", ".join(str(candidate.topics) for candidate in candidates)
