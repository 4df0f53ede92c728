"""Topic models over streams of documents that can forget.

`AnchorTopics` is the library alone, a scikit-learn estimator, and `TextCounts` the vectoriser that goes with it;
`TextTopics` is both in one, for texts.
`SyntheticTopics` draws corpora whose topics are known, and `plots` draws figures for notebooks.
Other services import `streamtopic.client`; `streamtopic.cli` is the program. All of them load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamtopic.pages import plots
    from streamtopic.synthetic import SyntheticTopics
    from streamtopic.text_counts import TextCounts
    from streamtopic.text_topics import TextTopics
    from streamtopic.topics.estimator import AnchorTopics

__all__ = ["AnchorTopics", "SyntheticTopics", "TextCounts", "TextTopics", "__version__", "plots"]


def lazily(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return a package's `__getattr__` and `__dir__` (PEP 562), which load a module at the first use of its names.

    package: its dotted name.
    homes: public names by the module that defines them.
    """
    modules: dict[str, str] = {}
    for module, names in homes.items():
        modules |= dict.fromkeys(names, f"{package}.{module}")

    def load(name: str) -> object:
        # Import machinery and tools ask for names that do not exist, and expect this error.
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(modules[name])
        return getattr(module, name)

    def listed() -> list[str]:
        present = vars(import_module(package))
        return sorted({*present, *modules})

    return load, listed


_load, _listed = lazily(
    __name__,
    {
        "synthetic": ["SyntheticTopics"],
        "text_counts": ["TextCounts"],
        "text_topics": ["TextTopics"],
        "topics.estimator": ["AnchorTopics"],
    },
)


def __getattr__(name: str) -> object:
    if name == "plots":
        return import_module("streamtopic.pages.plots")
    if name == "__version__":
        from importlib.metadata import version

        return version("streamtopic")
    return _load(name)


def __dir__() -> list[str]:
    return sorted({*_listed(), *__all__})
