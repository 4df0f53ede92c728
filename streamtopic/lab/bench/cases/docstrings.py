"""Reading the demo's documents: docstrings of installed packages, and a JSONL file."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

from streamtopic.lab.bench.figures import Figure, timed

__all__ = ["CASES"]


def parse() -> list[Figure]:
    """All docstrings, from source."""
    from streamtopic.documents.corpus import load_docstrings

    seconds, corpus = timed(load_docstrings)
    return [Figure("documents", len(corpus.documents), "documents"), Figure("time", seconds, "s")]


def jsonl() -> list[Figure]:
    """A packed file of 20,000 short documents."""
    from streamtopic.documents.corpus import load_jsonl

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "documents.jsonl.gz"
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.writelines(
                json.dumps({"id": k, "text": f"some words about number {k} " * 20}) + "\n" for k in range(20_000)
            )
        seconds, corpus = timed(lambda: load_jsonl(path))
    return [Figure("speed", len(corpus.documents) / seconds, "documents/s")]


CASES = {"parse": parse, "jsonl": jsonl}
