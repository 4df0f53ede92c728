"""A process of the service with its metrics and health: made once, whatever is opened anew while it runs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streamtopic.service.watching import Watch, Watching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamtopic.settings import Settings

__all__ = ["watched"]


@contextmanager
def watched(settings: Settings, role: str, say: Callable[[dict[str, Any]], None]) -> Iterator[Watch]:
    """Answer at `metrics_address` as long as the block runs; without that setting nobody watches.

    role: `run`, `ingest`, `schedule` or `publish`. say: is told the address. Raises SettingsError where it is taken.
    """
    if settings.metrics_address is None:
        yield Watch()
        return
    # Here, since a process that nobody watches does without the server and the package of metrics.
    from streamtopic import __version__
    from streamtopic.endpoint import serving
    from streamtopic.health import Health
    from streamtopic.metrics import Metrics

    health = Health(settings.stalled_after, (role,))
    watching = Watching(role, settings.model, Metrics(role, str(__version__)), health)
    with serving(settings.metrics_address, watching) as address:
        say({"event": "metrics", "address": address})
        yield watching
