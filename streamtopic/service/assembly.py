"""From settings to the parts of the service: options, keys, paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.errors import SettingsError
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.service.decide import Policy
from streamtopic.service.options import CapacityRule, SchedulerOptions
from streamtopic.service.tasks import TaskOptions
from streamtopic.service.theorem_base import TheoremRule
from streamtopic.settings import refuse_conflicts
from streamtopic.signing import PublicKey, SigningKey, load_secret, new_secret, new_signing_key
from streamtopic.topics.options import LearnerOptions
from streamtopic.topics.tasks import HeadTask

if TYPE_CHECKING:
    from pathlib import Path

    from streamtopic.service.instance import Layout
    from streamtopic.settings import Settings
    from streamtopic.streams.kafka import KafkaOptions

__all__ = [
    "NoiseKey",
    "kafka_options",
    "learner_options",
    "noise_key",
    "public_key",
    "receipt_secret",
    "scheduler_options",
    "signing_key",
    "task_options",
    "theorem_rule",
]


def learner_options(settings: Settings) -> LearnerOptions:
    """Return the learner's part of the settings."""
    return LearnerOptions(
        n_topics=settings.topics,
        learner=settings.learner,
        min_df=settings.min_df,
        max_df=settings.max_df,
        anchor_min_df=settings.anchor_min_df,
        max_words=settings.max_words,
        tolerance=settings.tolerance,
    )


def scheduler_options(settings: Settings) -> SchedulerOptions:
    """Return the scheduler's part of the settings. Raises SettingsError where they contradict each other."""
    refuse_conflicts(settings)
    return SchedulerOptions(
        model=settings.model,
        learner=learner_options(settings),
        policy=Policy(
            unlearn_at=settings.unlearn_at,
            batch=settings.batch,
            max_forget_lag_ms=int(settings.max_forget_lag * 1000),
            update_after=settings.update_after,
            epsilon_budget=settings.epsilon_budget,
        ),
        capacity=CapacityRule(
            rule=settings.capacity,
            share=settings.capacity_share,
            number=settings.capacity_fixed,
            constant=settings.capacity_constant,
            forget_sets=settings.capacity_forget_sets,
            updates=settings.capacity_updates,
        ),
        tasks=task_options(settings),
        epsilon=settings.epsilon,
        delta=settings.delta,
        keep_versions=settings.keep_versions,
        theorem=theorem_rule(settings),
    )


def theorem_rule(settings: Settings) -> TheoremRule | None:
    """Return what theorem mode is told, None in certified mode."""
    if settings.guarantee != "theorem":
        return None
    set_by_hand = {
        "a": settings.imbalance,
        "p_sep": settings.separability,
        "gamma": settings.conditioning,
        "eps0": settings.accuracy,
    }
    known = {name: value for name, value in set_by_hand.items() if value is not None}
    return TheoremRule(settings.epsilon, settings.delta, settings.theorem_constant, known)


def task_options(settings: Settings) -> TaskOptions:
    """Return what the settings ask of heads."""
    tasks = {name: HeadTask(**task.model_dump()) for name, task in settings.tasks.items()}
    return TaskOptions(tasks, withheld=settings.publish == "tasks")


def kafka_options(settings: Settings) -> KafkaOptions:
    """Return how to reach Kafka. Raises SettingsError where no servers are set."""
    from streamtopic.streams.kafka import KafkaOptions

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
        ssl_keyfile=path(settings.kafka_ssl_keyfile),
    )


def signing_key(settings: Settings, layout: Layout | None) -> SigningKey:
    """Load the signing key; an instance's own is made on first use. Raises SettingsError where there is none."""
    if settings.signing_key is not None:
        return SigningKey.load(settings.signing_key)
    if layout is None:
        raise _missing("signing_key")
    if not layout.signing_key.exists():
        _refuse_second(layout, layout.signing_key)
        new_signing_key(layout.signing_key, layout.public_key)
    return SigningKey.load(layout.signing_key)


def public_key(settings: Settings) -> PublicKey | None:
    """Load the public key where settings name one."""
    return None if settings.public_key is None else PublicKey.load(settings.public_key)


def noise_key(settings: Settings, layout: Layout | None) -> NoiseKey:
    """Load the secret that noise is drawn from; an instance's own is made on first use."""
    return NoiseKey(_secret("noise_key", settings.noise_key, layout))


def receipt_secret(settings: Settings, layout: Layout | None) -> bytes:
    """Load the secret that receipts digest document ids with; an instance's own is made on first use."""
    return _secret("receipt_key", settings.receipt_key, layout)


def _secret(name: str, named: Path | None, layout: Layout | None) -> bytes:
    if named is not None:
        return load_secret(named)
    if layout is None:
        raise _missing(name)
    own: Path = getattr(layout, name)
    if own.exists():
        return load_secret(own)
    _refuse_second(layout, own)
    return new_secret(own)


def _missing(name: str) -> SettingsError:
    return SettingsError(f"setting `{name}` is not set: `streamtopic keys new` makes the keys; name the file")


def _refuse_second(layout: Layout, path: Path) -> None:
    """A key that vanished must not be replaced in silence: subscribers would refuse what a new one signs."""
    if layout.initialised.exists():
        raise SettingsError(f"{path} is missing from an instance that had it: restore it from your backup")
