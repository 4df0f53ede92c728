"""From documents to counts in Redis: tokenising, the event log, ingest with a real Redis."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure, timed

if TYPE_CHECKING:
    from streamtopic.documents.corpus import Document
    from streamtopic.service.app import Service

__all__ = ["CASES"]

DOCUMENTS = 10_000
WORDS = 20_000
TOKENS = 120


def _documents() -> list[Document]:
    """Return documents of 120 tokens, about 90 distinct, from 20,000 words with Zipf's frequencies."""
    from streamtopic.documents.corpus import Document

    rng = random.Random(7)
    words = ["".join(chr(97 + (k // 26**place + 7 * place) % 26) for place in range(4)) for k in range(WORDS)]
    weights = [1 / (3 + k) for k in range(WORDS)]
    return [Document(str(k), " ".join(rng.choices(words, weights, k=TOKENS))) for k in range(DOCUMENTS)]


def tokenise() -> list[Figure]:
    """Text to passages."""
    from streamtopic.words.text import passages

    documents = _documents()
    seconds, found = timed(lambda: [passages(document.text) for document in documents])
    distinct = sum(len(counts) for document in found for _, counts in document) / DOCUMENTS
    return [
        Figure("speed", DOCUMENTS / seconds, "documents/s"),
        Figure("distinct words", distinct, "a document"),
    ]


def whole() -> list[Figure]:
    """Log, count and commit, then delete a tenth again."""
    from streamtopic.service.app import Service
    from streamtopic.settings import load

    documents = _documents()
    with tempfile.TemporaryDirectory() as folder:
        settings = load({"dir": Path(folder)})
        with Service(settings, kept=False) as service:
            service.add(documents[:10])
            _drain(service)  # compiles the kernel
            sent, _ = timed(lambda: service.add(documents))
            counted, _ = timed(lambda: _drain(service))
            gone = [document.id for document in documents[::10]]
            service.delete(gone)
            deleted, _ = timed(lambda: _drain(service))
            memory = int(service.connection.information()["used_memory"])
    return [
        Figure("log", DOCUMENTS / sent, "documents/s"),
        Figure("count and commit", DOCUMENTS / counted, "documents/s"),
        Figure("delete", len(gone) / deleted, "documents/s"),
        Figure("Redis memory", memory / (DOCUMENTS - len(gone)), "bytes a document"),
    ]


def _drain(service: Service) -> int:
    return sum(progress.records for ingest in service.ingests for progress in ingest.drain())


CASES = {"tokenise": tokenise, "whole": whole}
