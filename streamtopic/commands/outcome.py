"""What `add` and `delete` print when they are done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamtopic.console import doing, progress, say, say_json, warn

if TYPE_CHECKING:
    from pathlib import Path

    from streamtopic.corpus import Corpus
    from streamtopic.service.app import Service

__all__ = ["finish", "report_problems"]

SHOWN = 5


def report_problems(path: Path, corpus: Corpus) -> None:
    """Say on standard error which lines were skipped, the first few one by one."""
    for problem in corpus.problems[:SHOWN]:
        warn(f"{path}, line {problem.line}: {problem.reason}; skipped")
    if (more := len(corpus.problems) - SHOWN) > 0:
        warn(f"{path}: {more} more lines skipped")
    if corpus.replaced:
        warn(f"{path}: {corpus.replaced} ids occur more than once; the last document of each counts")


def finish(service: Service, report: dict[str, Any], *, as_json: bool) -> int:
    """Settle the instance, unless another process runs it, and print what came of it."""
    if not service.leads:
        report["running"] = True
        if as_json:
            say_json(report)
        else:
            say(f"{report['sent']} events sent to the running service")
        return 0
    from streamtopic.service.app import silent

    with progress("settling", "documents", quiet=as_json) as update:
        settled = service.settle(update, announce=silent if as_json else doing)
    report |= settled.as_json()
    if as_json:
        say_json(report)
        return 0
    counted = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in settled.ingested.items() if count)
    say(f"{report['sent']} events sent: {counted or 'nothing changed'}")
    for version in settled.versions:
        say(f"version {version['version']} published: {version['kind']}, {version['documents']} documents")
    say(f"last decision: {settled.decision}")
    return 0
