"""Settings that are right one by one and wrong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.errors import SettingsError

if TYPE_CHECKING:
    from streamtopic.settings.fields import Settings

__all__ = ["refuse_conflicts"]


def refuse_conflicts(settings: Settings) -> None:
    """Raise SettingsError where settings contradict each other."""
    if settings.publish == "tasks" and not settings.tasks:
        raise SettingsError(
            "setting `publish`: there are no tasks to publish: name one, `[tasks.NAME]`, or publish topics"
        )
    if settings.guarantee == "theorem":
        _refuse_unproved(settings)


def _refuse_unproved(settings: Settings) -> None:
    """Refuse what the paper's proof does not speak of."""
    name = "setting `guarantee`: the theorem"
    if settings.learner != "paper":
        raise SettingsError(f'{name} is about the paper\'s learner: set `learner` to "paper" when the model is created')
    if not settings.epsilon < 1:
        raise SettingsError(
            f"{name}'s noise is proved for epsilon below 1, and `epsilon` is {settings.epsilon:g}: lower it, to 0.5 say"
        )
    if settings.publish != "topics":
        raise SettingsError(f'{name} releases topics: set `publish` to "topics", or `guarantee` to "certified"')
