"""Compile the functions that the first run on a machine needs, before they are needed.

Compiling holds the interpreter's lock, so a thread would not help. Two processes share the work: one of them runs a
small service, the other learns a small model. What they compile stays in the cache that every later process reads.
"""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.compiled import remember_answers
from streamtopic.documents.corpus import Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamtopic.counts import SymmetricCounts

__all__ = ["cache_folder", "compiling_ahead", "learn_model", "only_compile", "run_service"]

_PARTS = ("service", "learning")
_TOPICS = 3
# As the demo learns. An update goes another way if many topics change.
_MANY_TOPICS = 20
_SETTINGS = {"topics": _TOPICS, "max_df": 1.0}
_WORDS = 30
_DOCUMENTS = 240
# In all documents together more words than a new table of words holds.
_OWN_WORDS = 20


def cache_folder() -> Path | None:
    """Return where machine code will be kept, None if it is there already or nothing will be compiled."""
    from streamtopic.words import lexicon

    # Any: numba has no types, and where its compiler is switched off this is a plain function.
    counting: Any = lexicon.count_texts
    if not hasattr(counting, "stats"):
        return None
    folder = Path(counting.stats.cache_path)
    compiled = any(folder.glob("lexicon.count_texts-*.nbi"))
    return None if compiled else folder


@contextmanager
def compiling_ahead() -> Iterator[Callable[[Callable[[int, int | None], None]], None]]:
    """Compile in two processes as long as the block runs; yield a function that waits for them.

    It tells its argument how many have ended, of how many. One that fails does no harm: a missing function is compiled
    where it is used.
    """
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    # -P: code is compiled for each copy of the program, and the current folder may hold one, such as a clone.
    program = [sys.executable, "-P", "-m", "streamtopic.service.first_run"]
    running = [subprocess.Popen([*program, part], **quiet) for part in _PARTS]  # type: ignore[call-overload]  # noqa: S603  this very program

    def wait(update: Callable[[int, int | None], None]) -> None:
        for ended, process in enumerate(running):
            update(ended, len(running))
            process.wait()

    try:
        yield wait
    finally:
        for process in running:
            # Not killed: its service ends its own server and removes its folder.
            process.terminate()
            process.wait()


def _documents() -> list[Document]:
    """Return documents about a few things each, so that a model of them has topics."""
    found = []
    for k in range(_DOCUMENTS):
        topic = k % _TOPICS
        words = [f"word{chr(97 + topic)}{chr(97 + (k * j) % _WORDS % 26)}" for j in range(1, _WORDS)]
        # A word that all share, and one that is not ASCII: both take ways of their own.
        words += ["common", "größe", f"other{chr(97 + (topic + 1) % _TOPICS)}"]
        # The vocabulary and the pairs of a real corpus change with each document that comes or goes.
        words += [f"own{k}and{j}" for j in range(_OWN_WORDS)]
        found.append(Document(f"document-{k}", " ".join(words)))
    return found


def run_service() -> None:
    """Take a small corpus through a service: counted, learned, updated, learned again."""
    from streamtopic.service.leading import embedded
    from streamtopic.service.opened import opened
    from streamtopic.service.sending import add, delete
    from streamtopic.settings import Settings

    documents = _documents()
    with tempfile.TemporaryDirectory(prefix="streamtopic-first-run-") as folder:
        settings = Settings.model_validate({**_SETTINGS, "dir": Path(folder), "max_forget_lag": 0.0})
        with opened(settings, kept=False) as service, embedded(service) as work:
            add(service, documents)
            work.settle()
            for some in (documents[:1], documents[1:40]):
                delete(service, [document.id for document in some])
                work.settle()


def learn_model() -> None:
    """Learn a model of the same corpus without a service, and change its counts as updates do."""
    import numpy as np

    from streamtopic.service.assembly import learner_options
    from streamtopic.service.verify.recount import recount
    from streamtopic.settings import Settings
    from streamtopic.topics.learner import learn_prepared, prepare

    options = learner_options(Settings.model_validate(_SETTINGS))
    texts = (document.passages for document in _documents())
    counts = recount(texts, options.weighting)
    prepared = prepare(counts, options)
    learn_prepared(prepared, options)
    _change(prepared.q)
    # What an update reads of a word that enters the vocabulary.
    counts.touching(np.arange(1), np.ones(1, bool))


def _change(q: SymmetricCounts) -> None:
    """Do what an update needs where words come or go, and where a row changes for many topics."""
    import numpy as np

    from streamtopic.topics.products import product_shift, times

    q.plus(q)
    thin = np.ones((q.n, _MANY_TOPICS))
    rows = np.zeros(1, np.intp)
    product_shift(q, q, thin, rows, thin[rows])
    # A product is made another way for one column, for few, and for many.
    for columns in (1, 4, _MANY_TOPICS):
        times(q, np.ones((q.n, columns)))


def only_compile() -> None:
    """Prepare this process for compiling, and for nothing else: it must end soon."""
    # The compiler holds millions of objects, and each look for garbage goes through them.
    gc.disable()
    remember_answers()


def _main(part: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    only_compile()
    {"service": run_service, "learning": learn_model}[part]()


if __name__ == "__main__":
    _main(sys.argv[1])
