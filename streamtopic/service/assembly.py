"""The options of each part of the service, from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.errors import SettingsError
from streamtopic.paper.theorem import TheoremOptions
from streamtopic.service.private_mode import PrivateModeller, PrivateRule
from streamtopic.service.schedule.modeller import CertifiedModeller
from streamtopic.service.schedule.payload import Guarded
from streamtopic.service.theorem_mode import TheoremModeller
from streamtopic.topics.learner_options import GuidedTopic, LearnerOptions, words_given
from streamtopic.words.text import tokenize

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamtopic.service.private_mode import Series
    from streamtopic.service.publish.witnesses import Witnesses
    from streamtopic.service.schedule.modeller import Modeller
    from streamtopic.settings import Settings
    from streamtopic.state import StoredBase
    from streamtopic.state.stored_counts import StoredCounts
    from streamtopic.streams.kafka_options import KafkaOptions
    from streamtopic.topics.fit import TopicFit

__all__ = [
    "LEAST_COMPACTION_LAG_MS",
    "capacity_limit",
    "kafka_options",
    "learner_options",
    "modeller",
    "witnesses",
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
    learner = learner_options(settings)
    if settings.guarantee == "theorem":
        return TheoremModeller(learner, _theorem_options(settings), stored)
    if settings.guarantee == "private":
        return PrivateModeller(learner, _private_rule(settings), stored, series)
    return CertifiedModeller(learner, Guarded(settings.epsilon, settings.delta, settings.tolerance), stored=sums)


def capacity_limit(settings: Settings, fit: TopicFit) -> int:
    """Return how many deletions a base model bears."""
    found = settings.capacity
    # With a capacity of 0, each deletion from a small corpus would be a retrain.
    return found.documents if found.rule == "fixed" else max(1, int(found.share * fit.documents))


def _theorem_options(settings: Settings) -> TheoremOptions:
    """Return the settings of theorem mode."""
    found = settings.theorem
    set_by_hand = {
        "a": found.topic_imbalance,
        "p_sep": found.separability,
        "gamma": found.topic_condition,
        "eps0": found.base_error,
    }
    # A constant that is not set is estimated from the model.
    known = {name: value for name, value in set_by_hand.items() if value is not None}
    return TheoremOptions(1, settings.epsilon, settings.delta, found.constant, known=known)


def _private_rule(settings: Settings) -> PrivateRule:
    """Return the settings of private mode. Raises SettingsError for a file without words."""
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


def witnesses(settings: Settings) -> Witnesses | None:
    """Return what asks the witnesses of the settings, None if none are named. Raises SettingsError."""
    if settings.witnesses is None:
        return None
    # Imported here: most services have no witnesses, and need no client of HTTP.
    from streamtopic.service.publish.witnesses import Witnesses

    return Witnesses.load(settings.witnesses, required=settings.require_witnesses)


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
