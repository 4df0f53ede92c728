"""From settings to the parts of the service: options, keys, paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.errors import SettingsError
from streamtopic.privacy.keystream import NoiseKey
from streamtopic.service.decide import Policy
from streamtopic.service.scheduler import CapacityRule, SchedulerOptions
from streamtopic.signing import SigningKey, load_secret, new_secret, new_signing_key
from streamtopic.topics.options import LearnerOptions

if TYPE_CHECKING:
    from pathlib import Path

    from streamtopic.service.instance import Layout
    from streamtopic.settings import Settings

__all__ = ["learner_options", "noise_key", "receipt_secret", "scheduler_options", "signing_key"]


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
    """Return the scheduler's part of the settings."""
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
        ),
        epsilon=settings.epsilon,
        delta=settings.delta,
    )


def signing_key(settings: Settings, layout: Layout) -> SigningKey:
    """Load the signing key; the instance's own is made on first use. Raises SettingsError where a file is missing."""
    if settings.signing_key is not None:
        return SigningKey.load(settings.signing_key)
    if not layout.signing_key.exists():
        _refuse_second(layout, layout.signing_key)
        new_signing_key(layout.signing_key, layout.public_key)
    return SigningKey.load(layout.signing_key)


def noise_key(settings: Settings, layout: Layout) -> NoiseKey:
    """Load the secret that noise is drawn from; the instance's own is made on first use."""
    return NoiseKey(_secret(settings.noise_key, layout.noise_key, layout))


def receipt_secret(layout: Layout) -> bytes:
    """Load the secret that receipts digest document ids with; made on first use."""
    return _secret(None, layout.receipt_key, layout)


def _secret(named: Path | None, own: Path, layout: Layout) -> bytes:
    if named is not None:
        return load_secret(named)
    if own.exists():
        return load_secret(own)
    _refuse_second(layout, own)
    return new_secret(own)


def _refuse_second(layout: Layout, path: Path) -> None:
    """A key that vanished must not be replaced in silence: subscribers would refuse what a new one signs."""
    if layout.initialised.exists():
        raise SettingsError(f"{path} is missing from an instance that had it: restore it from your backup")
