"""Topic models over streams of documents that can forget.

`AnchorTopics` is the library alone, a scikit-learn estimator, and `TextCounts` the vectoriser that goes with it;
`TextTopics` is both in one, for texts.
`SyntheticTopics` draws corpora whose topics are known, and `plots` draws figures for notebooks.
Other services import `streamtopic.client`; `streamtopic.cli` is the program. All of them load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamtopic.report import plots
    from streamtopic.synthetic import SyntheticTopics
    from streamtopic.text_counts import TextCounts
    from streamtopic.text_topics import TextTopics
    from streamtopic.topics.estimator import AnchorTopics

# All lazy, see __getattr__.
__all__ = ["AnchorTopics", "SyntheticTopics", "TextCounts", "TextTopics", "__version__", "plots"]


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562), so that `import streamtopic` and `--help` stay quick."""
    if name == "AnchorTopics":
        from streamtopic.topics.estimator import AnchorTopics

        return AnchorTopics
    if name == "SyntheticTopics":
        from streamtopic.synthetic import SyntheticTopics

        return SyntheticTopics
    if name == "TextCounts":
        from streamtopic.text_counts import TextCounts

        return TextCounts
    if name == "TextTopics":
        from streamtopic.text_topics import TextTopics

        return TextTopics
    if name == "plots":
        from streamtopic.report import plots

        return plots
    if name == "__version__":
        from importlib.metadata import version

        return version("streamtopic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
