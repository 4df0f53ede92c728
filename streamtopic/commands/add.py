"""`streamtopic add`: send documents to an instance."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.commands.common_arguments import command, instance_settings
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from streamtopic.commands.common_arguments import Subparsers

__all__ = ["register", "run"]


def register(subparsers: Subparsers) -> None:
    """Add the command's arguments."""
    parser = command(subparsers, "add", run, "add documents from JSON lines files (id, text; gzip too)")
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help='lines such as {"id": "a", "text": "words"}'
    )


def run(args: argparse.Namespace) -> int:
    """Write add events, then bring the model up to date unless another process is doing so."""
    from streamtopic.commands.outcome import finish, report_problems
    from streamtopic.console import progress, warn
    from streamtopic.corpus import load_jsonl
    from streamtopic.service.app import Service

    settings = instance_settings(args, must_exist=False)
    corpora = [load_jsonl(path) for path in args.files]
    for path, corpus in zip(args.files, corpora, strict=True):
        report_problems(path, corpus)
    documents = [document for corpus in corpora for document in corpus.documents]
    if not documents:
        raise UsageError("nothing to add")
    skipped = sum(len(corpus.problems) for corpus in corpora)
    with Service(settings) as service:
        with progress("adding", "documents", quiet=args.json) as update:
            sent = service.add(documents, update)
        for document, reason in sent.refused:
            warn(f"document {document}: {reason}; skipped")
        report = {"sent": sent.documents, "skipped": skipped + len(sent.refused)}
        return finish(service, report, as_json=args.json)
