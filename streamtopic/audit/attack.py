"""Auditing the promise: repeated draws of unlearned and retrained versions, and lower bounds on epsilon from them.

    documents   made to be hard to forget; each is learned, unlearned, and compared with a retraining
    exact       parts that are published without noise must be the same bits; one difference is certainty
    games       draws under fresh keys, of the worst pair found and of pairs at the edge of the certificate
    controls    the same games with a fault built in; an audit that misses one of them shows nothing

A lower bound above the claim refutes the claim; a lower bound below it does not prove it. All bounds of the games
together hold with 95 % confidence.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from streamtopic.audit.chosen_documents import MOST_SETS, Forgotten, hardest
from streamtopic.audit.games import (
    Game,
    GameFinding,
    broken,
    certified,
    edges,
    heads_game,
    least_draws,
    play,
    private_game,
    theorem_game,
)
from streamtopic.counts import Counts
from streamtopic.errors import UsageError
from streamtopic.privacy.accounting import gaussian_scale
from streamtopic.privacy.noise import CalibratedGuarantee
from streamtopic.topics.fit import TopicFit
from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["CONFIDENCE", "AuditPlan", "AuditResult", "GameResult", "audit"]

# Games whose bounds share the error: one whole model, three edges, heads, theorem mode and private mode.
_GAMES = 7
_CONTROLS = 4
CONFIDENCE = 0.95
"""Probability that all bounds of the games hold."""
_LEAST_DRAWS = 600
_USUAL_DRAWS = 4_000
# More draws take hours, and only a plan that asks for them gets them.
_MOST_DRAWS = 100_000
_WHOLE_DRAWS = 100


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The number of draws.

    draws: releases of each run in each game; None for 4,000, or more if 4,000 could not show a fault.
    whole: releases of each run at full size, of the worst pair found.
    seed: of all random numbers.
    Raises UsageError for values out of range.
    """

    draws: int | None = None
    whole: int = _WHOLE_DRAWS
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"draws": _LEAST_DRAWS, "whole": 8, "seed": 0}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and value < smallest:
                raise UsageError(f"{name} is {value}: use at least {smallest}")

    @property
    def error(self) -> float:
        """Probability that the bounds of one game are wrong; over all games it adds up to 1 - CONFIDENCE."""
        return (1 - CONFIDENCE) / _GAMES

    def enough(self, guarantee: CalibratedGuarantee) -> int:
        """Return the draws of each run in each game.

        Raises UsageError if the plan's draws cannot show a fault, or if the usual draws would take hours.
        """
        least = self.controls(guarantee)
        if self.draws is not None and self.draws < least:
            raise UsageError(
                f"{self.draws} draws cannot show a fault at epsilon {guarantee.epsilon}: give at least {least}"
            )
        if self.draws is None and least > _MOST_DRAWS:
            raise UsageError(
                f"an audit of epsilon {guarantee.epsilon} takes {least} draws a game, which is hours: give so many "
                "yourself"
            )
        return self.draws or max(_USUAL_DRAWS, least)

    def controls(self, guarantee: CalibratedGuarantee) -> int:
        """Return the draws of each run in each control, which show its fault at this claim."""
        mu = 1 / gaussian_scale(guarantee.epsilon, guarantee.delta)
        return max(least_draws(mu, self.error), _LEAST_DRAWS)


@dataclass(frozen=True, slots=True)
class GameResult:
    """A game and its finding.

    claim: epsilon of the game's claim.
    distance: L2 distance of the two runs before noise.
    """

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
        about = {"name": self.name, "claim": self.claim, "distance": self.distance, "within": self.within}
        return about | {"epsilon_lower": self.finding.bound, **asdict(self.finding)}


@dataclass(frozen=True, slots=True, eq=False)
class AuditResult:
    """The findings of an audit.

    guarantee: the claim.
    m, n, r: documents, words and topics of the model.
    documents: forget sets, hardest first.
    games: of the real noise.
    controls: of broken noise.
    """

    guarantee: CalibratedGuarantee
    plan: AuditPlan
    m: int
    n: int
    r: int
    documents: tuple[Forgotten, ...]
    games: tuple[GameResult, ...]
    controls: tuple[GameResult, ...]

    @property
    def different(self) -> tuple[str, ...]:
        """Parts that are published without noise and differed from a retraining, over all forget sets."""
        names: set[str] = set()
        for one in self.documents:
            names.update(one.different)
        return tuple(sorted(names))

    @property
    def missed(self) -> tuple[str, ...]:
        """Faults that were built in and that the audit did not find."""
        missed = [played.name for played in self.controls if played.within]
        seen = bool(self.documents) and all(one.kept for one in self.documents)
        if not seen:
            missed.insert(0, "a document not subtracted")
        return tuple(missed)

    @property
    def passed(self) -> bool:
        """Whether all games stayed within their claims, and the audit found every fault that was built in."""
        within = all(played.within for played in self.games)
        return within and not self.different and not self.missed

    def as_json(self) -> dict[str, Any]:
        """Return the object that `audit --json` prints; numbers are finite."""
        scale = gaussian_scale(self.guarantee.epsilon, self.guarantee.delta)
        return {
            "passed": self.passed,
            "claim": asdict(self.guarantee) | {"sigma": scale * 2 * self.guarantee.tolerance},
            "epsilon_lower": max(played.finding.bound for played in self.games),
            "plan": asdict(self.plan),
            "model": {"documents": self.m, "vocabulary": self.n, "topics": self.r},
            "different": self.different,
            "documents": [one.as_json() for one in self.documents],
            "games": [played.as_json() for played in self.games],
            "controls": [played.as_json() for played in self.controls],
            "missed": self.missed,
        }


def audit(
    counts: Counts,
    options: LearnerOptions,
    guarantee: CalibratedGuarantee,
    plan: AuditPlan | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> AuditResult:
    """Audit certified mode on a corpus, and the noise of heads and of the other modes: a function of its arguments.

    counts: of the documents that are kept, made with `options.weighting`.
    options: of the learner.
    guarantee: the claim to attack.
    plan: None for `AuditPlan()`.
    progress: called with steps done and steps in all.
    Raises CannotLearn if these counts make no model, UsageError for too few draws.
    """
    plan = plan or AuditPlan()
    draws = plan.enough(guarantee)
    few = plan.controls(guarantee)
    generator = np.random.default_rng(plan.seed)
    steps = 0

    def done() -> None:
        nonlocal steps
        steps += 1
        progress(steps, MOST_SETS + _GAMES + _CONTROLS)

    def played(game: Game, times: int) -> GameResult:
        finding = play(game, times, plan.error, generator)
        done()
        return GameResult(game.name, game.epsilon, game.distance, finding)

    retrained, documents = hardest(counts, options, done)
    # Some corpora give fewer forget sets.
    steps = MOST_SETS
    # All share one generator, so another order would give other draws for the same seed.
    small = edges(retrained.A, guarantee, generator)
    heads = heads_game(guarantee, generator)
    theorem = theorem_game(guarantee, generator)
    games = [played(_whole(documents[0], retrained, guarantee), plan.whole)]
    games += [played(game, draws) for game in (*small, heads, theorem, private_game(guarantee))]
    controls = [played(game, few) for game in broken(small, guarantee)]
    n, r = retrained.A.shape
    return AuditResult(guarantee, plan, counts.documents, n, r, documents, tuple(games), tuple(controls))


def _whole(hardest: Forgotten, retrained: TopicFit, guarantee: CalibratedGuarantee) -> Game:
    """Return the game of a whole model, unlearned or retrained."""
    unlearned = hardest.model.A
    # Models over other words differ for certain, and the exact comparison has said so: the retrained one plays alone.
    if unlearned.shape != retrained.A.shape:
        unlearned = retrained.A
    noise = (certified(guarantee),)
    name = "unlearned or retrained, whole model"
    return Game(name, (retrained.A,), (unlearned,), noise, guarantee.epsilon, guarantee.delta)
