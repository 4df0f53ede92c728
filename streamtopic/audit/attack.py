"""Auditing the promise: repeated draws of unlearned and retrained versions, and lower bounds on epsilon from them.

    documents   made to be hard to forget; each is learned, unlearned, and compared with a retraining
    exact       everything that is published without noise must be the same bits; one difference is certainty
    games       draws under fresh keys, of the worst pair found and of pairs at the edge of the certificate
    controls    the same games with a fault built in, each of which must be found, or the audit shows nothing

A lower bound above the claim refutes it; one below does not prove it. All bounds of the games together hold with the
plan's confidence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamtopic.audit.chosen_documents import MOST_SETS, Forgotten, hardest
from streamtopic.audit.games import (
    Game,
    GameFinding,
    NoiseClaim,
    broken,
    certified,
    edges,
    heads_game,
    least_draws,
    play,
    theorem_game,
)
from streamtopic.counts import Counts
from streamtopic.errors import UsageError
from streamtopic.privacy.accounting import gaussian_scale
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["AuditPlan", "AuditResult", "Played", "audit"]

# Games whose bounds share the error: one whole model, three edges, heads and theorem mode.
_GAMES = 6
_LEAST_DRAWS = 600
# More than the last take hours, and are drawn only for a plan that asks for them.
_USUAL_DRAWS, _CONTROL_DRAWS, _MOST_DRAWS = 4_000, 2_000, 100_000
_WHOLE_DRAWS = 100


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """How much is drawn.

    draws: releases of each run in each game; None for 4,000, or more where so many could not show a fault.
    whole: releases of each run at full size, of the worst pair found.
    seed: of all random numbers.
    confidence: probability that no bound of a game is wrong.
    """

    draws: int | None = None
    whole: int = _WHOLE_DRAWS
    seed: int = 0
    confidence: float = 0.95

    def __post_init__(self) -> None:
        for name, value, least in (
            ("draws", self.draws, _LEAST_DRAWS),
            ("whole", self.whole, 8),
            ("seed", self.seed, 0),
        ):
            if value is not None and value < least:
                raise UsageError(f"{name} is {value}: use at least {least}")
        if not 0.5 <= self.confidence < 1:
            raise UsageError(f"confidence is {self.confidence}: use at least 0.5 and less than 1")

    @property
    def error(self) -> float:
        """Probability that the bounds of one game are wrong; over all games they add up to 1 - confidence."""
        return (1 - self.confidence) / _GAMES

    def enough(self, guarantee: NoiseClaim) -> int:
        """Return the draws of each run in each game. Raises UsageError for fewer than can show a fault."""
        least = self._least(guarantee)
        if self.draws is not None and self.draws < least:
            raise UsageError(
                f"{self.draws} draws cannot show a fault at epsilon {guarantee.epsilon}: give at least {least}"
            )
        if self.draws is None and least > _MOST_DRAWS:
            raise UsageError(f"to audit epsilon {guarantee.epsilon} takes {least} draws a game: give so many yourself")
        return self.draws or max(_USUAL_DRAWS, least)

    def controls(self, guarantee: NoiseClaim) -> int:
        """Return the draws of each run in each control: enough for its fault, and at most those of a game."""
        return min(self.enough(guarantee), max(_CONTROL_DRAWS, self._least(guarantee)))

    def _least(self, guarantee: NoiseClaim) -> int:
        mu = 1 / gaussian_scale(guarantee.epsilon, guarantee.delta)
        return max(least_draws(mu, self.error), _LEAST_DRAWS)


@dataclass(frozen=True, slots=True)
class Played:
    """A game and its finding."""

    name: str
    claim: float
    distance: float
    finding: GameFinding

    @property
    def within(self) -> bool:
        """Whether no bound exceeds the claim."""
        return self.finding.bound <= self.claim

    def as_json(self) -> dict[str, Any]:
        """Return it as `audit --json` prints it."""
        found = self.finding
        return {
            "name": self.name,
            "claim": self.claim,
            "epsilon_lower": found.bound,
            "by_rates": found.epsilon,
            "by_curve": found.gaussian,
            "distance": self.distance,
            "distinguisher": found.distinguisher,
            "true_rate": found.rates.true / found.rates.draws,
            "false_rate": found.rates.false / found.rates.draws,
            "draws": found.draws,
        }


@dataclass(frozen=True, slots=True, eq=False)
class AuditResult:
    """The findings of an audit.

    m, n, r: documents, words and topics of the model.
    documents: forget sets, hardest first.
    games: of the real noise.
    controls: of broken noise.
    """

    guarantee: NoiseClaim
    plan: AuditPlan
    m: int
    n: int
    r: int
    documents: tuple[Forgotten, ...]
    games: tuple[Played, ...]
    controls: tuple[Played, ...]

    @property
    def different(self) -> tuple[str, ...]:
        """Parts that are published without noise and differed from a retraining, over all documents."""
        names: set[str] = set()
        for one in self.documents:
            names.update(one.different)
        return tuple(sorted(names))

    @property
    def missed(self) -> tuple[str, ...]:
        """Faults that were built in and not found."""
        found = bool(self.documents) and all(one.kept for one in self.documents)
        games = [played.name for played in self.controls if played.within]
        return tuple(games if found else ["a document not subtracted", *games])

    @property
    def passed(self) -> bool:
        """Whether nothing was told apart better than claimed, and every fault that was built in was."""
        return not self.different and not self.missed and all(played.within for played in self.games)

    def as_json(self) -> dict[str, Any]:
        """Return the object that `audit --json` prints; numbers are finite."""
        guarantee = self.guarantee
        scale = gaussian_scale(guarantee.epsilon, guarantee.delta)
        return {
            "passed": self.passed,
            "claim": {
                "epsilon": guarantee.epsilon,
                "delta": guarantee.delta,
                "tolerance": guarantee.tolerance,
                "sigma": scale * 2 * guarantee.tolerance,
            },
            "epsilon_lower": max(played.finding.bound for played in self.games),
            "confidence": self.plan.confidence,
            "seed": self.plan.seed,
            "model": {"documents": self.m, "vocabulary": self.n, "topics": self.r},
            "different": list(self.different),
            "documents": [one.as_json() for one in self.documents],
            "games": [played.as_json() | {"passed": played.within} for played in self.games],
            "controls": [played.as_json() | {"caught": not played.within} for played in self.controls],
            "missed": list(self.missed),
        }


def audit(
    counts: Counts,
    options: LearnerOptions,
    guarantee: NoiseClaim,
    plan: AuditPlan | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> AuditResult:
    """AuditResult certified mode on a corpus, and with it the noise of heads and of theorem mode.

    counts: of the documents that are kept, made with `options.weighting`. A function of its arguments. progress: called
    with steps done and in all. Raises CannotLearn where these counts make no model, UsageError for too few draws.
    """
    plan = plan or AuditPlan()
    draws, few = plan.enough(guarantee), plan.controls(guarantee)
    generator = np.random.default_rng(plan.seed)
    # A draw at full size and a document to forget are about as long as so many small draws.
    sets = MOST_SETS * 2_000
    steps = _Steps(progress, sets + 40 * 2 * plan.whole + 10 * draws + 8 * few)
    retrained, documents = hardest(counts, options, lambda: steps.done(2_000))
    # Some corpora give fewer forget sets.
    steps.done(sets - steps.made)
    whole = _whole(documents[0], retrained, guarantee)
    small = edges(retrained.A, guarantee, generator)
    others = (*small, heads_game(guarantee, generator), theorem_game(guarantee, generator))
    games = [
        _played(whole, plan.whole, plan, generator, lambda: steps.done(40)),
        *(_played(game, draws, plan, generator, lambda: steps.done(1)) for game in others),
    ]
    controls = [_played(game, few, plan, generator, lambda: steps.done(1)) for game in broken(small, guarantee)]
    n, r = retrained.A.shape
    return AuditResult(guarantee, plan, counts.documents, n, r, documents, tuple(games), tuple(controls))


class _Steps:
    def __init__(self, progress: Callable[[int, int], None], total: int) -> None:
        self._progress, self._total, self.made = progress, total, 0

    def done(self, steps: int) -> None:
        before, self.made = self.made, min(self.made + steps, self._total)
        if before // 100 < self.made // 100 or self.made == self._total:
            self._progress(self.made, self._total)


def _whole(hardest: Forgotten, retrained: TopicFit, guarantee: NoiseClaim) -> Game:
    """Return the game of a whole model, unlearned or retrained; of the retrained one alone where words differ."""
    unlearned = hardest.model.A if hardest.model.A.shape == retrained.A.shape else retrained.A
    return Game(
        "unlearned or retrained, whole model",
        (retrained.A,),
        (unlearned,),
        (certified(guarantee),),
        guarantee.epsilon,
        guarantee.delta,
    )


def _played(
    game: Game, draws: int, plan: AuditPlan, generator: np.random.Generator, step: Callable[[], None]
) -> Played:
    finding = play(game, draws, plan.error, generator, step)
    return Played(game.name, game.epsilon, game.distance, finding)
