"""Topic models over streams of documents that can forget.

`AnchorTopics` is the library alone, a scikit-learn estimator, and `TextCounts` the vectoriser that goes with it;
`TextTopics` is both in one, for texts.
`plots` draws figures for notebooks.
Other services import `streamtopic.client`; `streamtopic.cli` is the program. All of them load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamtopic.pages import plots
    from streamtopic.texts import TextCounts, TextTopics
    from streamtopic.topics.estimator import AnchorTopics

__all__ = ["AnchorTopics", "TextCounts", "TextTopics", "__version__", "plots"]


_HOMES = {
    "AnchorTopics": "streamtopic.topics.estimator",
    "TextCounts": "streamtopic.texts",
    "TextTopics": "streamtopic.texts",
}


def __getattr__(name: str) -> object:
    """Load the module of a name at its first use (PEP 562)."""
    if name == "plots":
        return import_module("streamtopic.pages.plots")
    if name == "__version__":
        from importlib.metadata import version

        return version("streamtopic")
    # Import machinery and tools ask for names that do not exist, and expect this error.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
