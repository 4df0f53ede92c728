"""The options of each part of the service, from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.errors import SettingsError
from streamtopic.service.paper_mode.deletion_capacity import CapacityRule
from streamtopic.service.paper_mode.theorem_modeller import TheoremModeller, TheoremRule
from streamtopic.service.private_mode import PrivateModeller, PrivateRule
from streamtopic.service.schedule.decide import Policy
from streamtopic.service.schedule.modeller import CertifiedModeller
from streamtopic.service.schedule.payload import Guarded, TaskOptions
from streamtopic.service.schedule.scheduler import SchedulerOptions
from streamtopic.topics.heads import HeadTask
from streamtopic.topics.learner_options import GuidedTopic, LearnerOptions, words_given
from streamtopic.words.text import tokenize

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamtopic.service.private_mode import Series
    from streamtopic.service.publish.witnesses import Witnesses
    from streamtopic.service.schedule.modeller import MeasureCapacity, Modeller
    from streamtopic.settings import Settings
    from streamtopic.state import StoredBase
    from streamtopic.state.stored_counts import StoredCounts
    from streamtopic.streams.kafka_options import KafkaOptions

__all__ = [
    "LEAST_COMPACTION_LAG_MS",
    "capacity_measure",
    "capacity_rule",
    "cosigner",
    "guarded",
    "kafka_options",
    "learner_options",
    "modeller",
    "private_rule",
    "scheduler_options",
    "self_check_interval",
    "task_options",
    "theorem_rule",
]

LEAST_COMPACTION_LAG_MS = 3_600_000
"""A broker that compacts the log more often than each hour would rewrite it all day."""


def learner_options(settings: Settings) -> LearnerOptions:
    """Return the learner's part of the settings."""
    return LearnerOptions(
        n_topics=settings.topics,
        learner=settings.learner,
        min_df=settings.min_df,
        min_share=settings.min_share,
        max_df=settings.max_df,
        anchor_min_df=settings.anchor_min_df,
        max_words=settings.max_words,
        tolerance=settings.tolerance,
        guided=tuple(GuidedTopic(name, seeds) for name, seeds in settings.guided.items()),
        exclude_words=words_given(settings.exclude_words),
    )


def scheduler_options(settings: Settings) -> SchedulerOptions:
    """Return the scheduler's part of the settings."""
    return SchedulerOptions(
        model=settings.model,
        policy=Policy(
            max_forget_lag_ms=int(settings.max_forget_lag * 1000),
            update_after=settings.update_after,
            epsilon_budget=settings.epsilon_budget,
        ),
        capacity_rule=settings.capacity.rule,
        tasks=task_options(settings),
        delta=settings.delta,
        keep_versions=settings.keep_versions,
        self_check_ms=self_check_interval(settings),
        tokeniser=settings.tokeniser,
        excluded=learner_options(settings).excluded_digest,
    )


def self_check_interval(settings: Settings) -> int | None:
    """Return the milliseconds from one check of an update to the next; None if updates are not checked."""
    return None if settings.self_check == "off" else int(settings.self_check * 1000)


def modeller(
    settings: Settings,
    stored: Callable[[], StoredBase | None],
    sums: Callable[[], StoredCounts | None],
    series: Callable[[int, int], Series],
) -> Modeller:
    """Return the modeller of the mode that `guarantee` names.

    stored: reads the kept base model.
    sums: reads the co-occurrence counts in Redis.
    series: returns the versions of a period before a version, given both numbers.
    """
    rule = theorem_rule(settings)
    if rule is not None:
        return TheoremModeller(learner_options(settings), rule, stored)
    private = private_rule(settings)
    if private is not None:
        return PrivateModeller(learner_options(settings), private, stored, series)
    return CertifiedModeller(learner_options(settings), guarded(settings), stored=sums)


def guarded(settings: Settings) -> Guarded:
    """Return the guarantee that the noise of certified mode is calibrated to."""
    return Guarded(settings.epsilon, settings.delta, settings.tolerance)


def capacity_rule(settings: Settings) -> CapacityRule:
    """Return the rule that sets the deletion capacity."""
    found = settings.capacity
    return CapacityRule(rule=found.rule, share=found.share, number=found.documents, constant=found.constant)


def capacity_measure(settings: Settings) -> MeasureCapacity:
    """Return the function that measures the capacity of a new base model."""
    rule = capacity_rule(settings)
    tasks = task_options(settings)
    # Heads have a formula of their own if they are published in place of topics; next to topics they cost nothing.
    alone = tuple(tasks.tasks.values()) if tasks.withheld else ()

    return lambda fit: rule.limit(fit, settings.epsilon, settings.delta, alone)


def theorem_rule(settings: Settings) -> TheoremRule | None:
    """Return the settings of theorem mode, None in certified mode."""
    if settings.guarantee != "theorem":
        return None
    found = settings.theorem
    set_by_hand = {
        "a": found.topic_imbalance,
        "p_sep": found.separability,
        "gamma": found.topic_condition,
        "eps0": found.base_error,
    }
    # A constant that is not set is estimated from the model.
    known = {name: value for name, value in set_by_hand.items() if value is not None}
    return TheoremRule(settings.epsilon, settings.delta, found.constant, known)


def private_rule(settings: Settings) -> PrivateRule | None:
    """Return the settings of private mode, None in another mode. Raises SettingsError for a file without words."""
    if settings.guarantee != "private":
        return None
    found = settings.private
    words = None if found.words is None else _vocabulary(found.words, found.size)
    return PrivateRule(found.epsilon, found.delta, found.versions, words, found.size, settings.max_df)


def _vocabulary(file: Path, most: int) -> tuple[str, ...]:
    """Return the words of a file, ascending. Raises SettingsError."""
    try:
        lines = file.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"setting `private.words`: {file} cannot be read: {error}") from None
    found = sorted({line.strip() for line in lines} - {""})
    for word in found:
        if tokenize(word) != [word]:
            raise SettingsError(
                f"setting `private.words`: {word!r} in {file} is not a word as the service reads texts: correct it"
            )
    if not 0 < len(found) <= most:
        raise SettingsError(
            f"setting `private.words`: {file} has {len(found)} words, and `private.size` allows 1 to {most}: shorten "
            "the file or raise the size"
        )
    return tuple(found)


def cosigner(settings: Settings) -> Witnesses | None:
    """Return what asks the witnesses of the settings, None if none are named. Raises SettingsError."""
    if settings.witnesses is None:
        return None
    # Imported here: most services have no witnesses, and need no client of HTTP.
    from streamtopic.service.publish.witnesses import Witnesses

    return Witnesses.load(settings.witnesses, required=settings.require_witnesses)


def task_options(settings: Settings) -> TaskOptions:
    """Return the downstream tasks of the settings."""
    tasks = {name: HeadTask(**task.model_dump()) for name, task in settings.tasks.items()}
    return TaskOptions(tasks, withheld=settings.publish == "tasks")


def kafka_options(settings: Settings) -> KafkaOptions:
    """Return the options by which Kafka is reached. Raises SettingsError if no servers are set."""
    # Imported here: an instance without Kafka must not load its client.
    from streamtopic.streams.kafka_options import KafkaOptions

    if settings.kafka is None:
        raise SettingsError("setting `kafka` is not set: give Kafka's servers, host:port,host:port")
    password = settings.kafka_sasl_password

    def path(name: Path | None) -> str | None:
        return None if name is None else str(name)

    return KafkaOptions(
        servers=settings.kafka,
        security_protocol=settings.kafka_security_protocol,
        sasl_mechanism=settings.kafka_sasl_mechanism,
        sasl_username=settings.kafka_sasl_username,
        sasl_password=None if password is None else password.get_secret_value(),
        ssl_cafile=path(settings.kafka_ssl_cafile),
        ssl_certfile=path(settings.kafka_ssl_certfile),
    )
