"""Forget a person: one request for all documents of a subject, in three partitions, until one receipt covers them."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.bench.figures import Figure, timed

if TYPE_CHECKING:
    from streamtopic.documents.corpus import Document

__all__ = ["CASES", "OPTIONS"]

OPTIONS = {"documents": 10_000}
PARTITIONS = 3
TOKENS = 30


def _documents(number: int, prefix: str, subjects: tuple[str, ...]) -> list[Document]:
    """Return documents of 30 tokens, each of one of six themes of 40 words."""
    from streamtopic.documents.corpus import Document

    rng = random.Random(prefix)
    made = []
    for k in range(number):
        theme = k % 6
        numbers = rng.choices(range(40), k=TOKENS)
        text = " ".join(f"t{theme}w{word}" for word in numbers)
        made.append(Document(f"{prefix}{k}", text, subjects=subjects))
    return made


def forget(documents: int) -> list[Figure]:
    """Forget a subject with so many documents, among as many of others."""
    from streamtopic.client import Receipts
    from streamtopic.service.app import Service
    from streamtopic.settings import load

    chosen = {"topics": 6, "partitions": PARTITIONS, "min_df": 1, "max_df": 1.0, "max_forget_lag": 0}
    with tempfile.TemporaryDirectory() as folder:
        settings = load({"dir": Path(folder), **chosen})
        with Service(settings, kept=False) as service:
            service.add(_documents(documents, "other-", ()))
            service.settle()
            plain = int(service.connection.information()["used_memory"])
            service.add(_documents(documents, "own-", ("person",)))
            service.settle()
            named = int(service.connection.information()["used_memory"])
            before = len(service.versions())
            (request,) = service.delete_subjects(["person"])
            seconds, settled = timed(service.settle)
            receipts = Receipts(service.log, model=settings.model, public_key=service.keys)
            covering = receipts.covering(request)
            versions = len(service.versions()) - before
    covered = 0 if covering is None else covering.documents
    return [
        Figure("versions", versions, "versions", "== 1"),
        Figure("receipts", settled.receipts, "receipts", f"== {documents}"),
        Figure("covered by one receipt", covered, "documents", f"== {documents}"),
        Figure("deleted and counted out", settled.seconds["count"], "s"),
        Figure("from the request to its receipt", seconds, "s"),
        Figure("Redis memory", (named - plain) / documents, "bytes a document with a subject"),
    ]


CASES = {"forget": forget}
