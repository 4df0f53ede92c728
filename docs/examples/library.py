"""The library alone: topics of the docstrings of installed packages, and a model that forgets some of them.

python docs/examples/library.py
"""

import importlib
import inspect

import numpy as np
from sklearn.pipeline import make_pipeline

from streamtopic import AnchorTopics, TextCounts

MODULES = (
    *("numpy", "numpy.linalg", "numpy.random", "scipy.optimize", "scipy.signal", "scipy.sparse", "scipy.stats"),
    *("sklearn.cluster", "sklearn.decomposition", "sklearn.ensemble", "sklearn.linear_model", "sklearn.metrics"),
    *("argparse", "asyncio", "collections", "email", "json", "logging", "os", "pathlib", "subprocess", "unittest"),
)
FORGOTTEN = "sklearn.ensemble"


def docstrings() -> dict[str, str]:
    """Public functions and classes of the modules: name to docstring, each text once."""
    found: dict[str, str] = {}
    for module in MODULES:
        for name, value in inspect.getmembers(importlib.import_module(module)):
            text = inspect.getdoc(value) or ""
            if callable(value) and not name.startswith("_") and len(text.split()) >= 10:
                found.setdefault(text, f"{module}.{name}")
    return {name: text for text, name in found.items()}


def main() -> None:
    """Learn, show, forget, and compare with a model that never saw the forgotten documents."""
    texts = docstrings()
    model = make_pipeline(TextCounts(), AnchorTopics(n_topics=8, max_df=0.3)).fit(list(texts.values()))
    counts, topics = model[0], model[1]
    print(f"{topics.n_documents_} docstrings, {len(topics.anchors_)} topics")
    for words in topics.topics(counts.words_, top=6):
        print("  ", *words)

    gone = [text for name, text in texts.items() if name.startswith(FORGOTTEN)]
    topics.unlearn(counts.transform(gone))
    print(f"{len(gone)} docstrings of {FORGOTTEN} forgotten, {topics.n_documents_} remain")

    rest = [text for name, text in texts.items() if not name.startswith(FORGOTTEN)]
    never = AnchorTopics(n_topics=8, max_df=0.3).fit(counts.transform(rest))
    difference = np.linalg.norm(topics.components_ - never.components_)
    print(f"difference from a model that never saw them: {difference:.1e}")
    print(f"proven bound: {topics.certificate_ + never.certificate_:.1e}")


if __name__ == "__main__":
    main()
