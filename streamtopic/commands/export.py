"""`streamtopic export`: write a published model, or a page about it."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopic.commands.checking import finding_lines
from streamtopic.commands.common_arguments import (
    answer,
    command,
    file_errors,
    open_instance,
    option,
    whole_number,
)
from streamtopic.console import aligned, progress
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from streamtopic.service.opened import Opened
    from streamtopic.signed import Release

__all__ = ["COMMANDS"]

_MODEL = "model.safetensors"


@command(
    option("VERSION", "which version (default: the newest)", nargs="?", type=whole_number(1), dest="number"),
    option(
        "--to DIR|FILE", "a folder for the model, its proof, words and card; or a page, a name in .html", required=True
    ),
    option("--verify", "page: count and learn again and add the findings, with figures that are for auditors only"),
)
def _export(args: argparse.Namespace) -> int:
    """Write a published model, or a page about it.

    A model is that of a verified release, noised as published. Status 1 if a check on the page failed.
    """
    from streamtopic.service.assembly import release_of

    page = args.to.suffix == ".html"
    if args.verify and not page:
        raise UsageError("--verify is about a page: give --to a name that ends in .html")
    with open_instance(args) as service:
        release = release_of(service, args.number)
        if page:
            # Its number is fixed now: a version that is published while this one is verified must not take its place.
            return _write_page(args, service, release.version)
    with file_errors("write", args.to):
        _write_model(release, args.to)
    topics = 0 if release.payload.A is None else release.envelope.r
    told = {
        "version": release.version,
        "to": str(args.to),
        "words": len(release.words),
        "topics": topics,
        "heads": list(release.heads),
    }
    return answer(args, told, *aligned(told))


def _write_page(args: argparse.Namespace, service: Opened, number: int) -> int:
    """Write the page of a version; return 1 if a check on it failed."""
    from streamtopic.pages.version_page import version_facts, version_page
    from streamtopic.service.verify import Finding

    with progress("verifying", "records", quiet=args.json or not args.verify) as update:
        facts = version_facts(service, number, update=update if args.verify else None, public=not args.verify)
    # Written if a check failed as well: that is what an auditor needs most.
    with file_errors("write", args.to):
        args.to.write_text(version_page(facts), encoding="utf-8")
    findings = finding_lines(Finding(**finding) for finding in facts["findings"])
    told = {name: facts[name] for name in ("version", "passed", "complete", "findings")}
    answer(args, {"to": str(args.to), **told}, *findings, f"version {number}: written to {args.to}")
    return 0 if facts["passed"] else 1


def _write_model(release: Release, folder: Path) -> None:
    """Write a verified release to a folder, in place of another one that it may hold.

    Raises UsageError for a folder that holds other files, OSError if it cannot be written, and as `Release.data`.
    """
    files = {
        _MODEL: release.data(),
        f"{_MODEL}.tlog-proof": release.proof.encode(),
        "words.txt": "".join(f"{word}\n" for word in release.words).encode(),
        "README.md": _card(release).encode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    others = sorted({path.name for path in folder.iterdir()} - set(files))
    if others:
        raise UsageError(f"{folder} holds other files, such as {others[0]}: give a folder that is new or empty")
    for name, data in files.items():
        (folder / name).write_bytes(data)


def _card(release: Release) -> str:
    """Return what a user should know of a release, in Markdown. It names no document."""
    from streamtopic.signed.release import HELPS

    facts = release.envelope
    made = datetime.fromtimestamp(facts.created / 1000, UTC)
    rows = {
        "Version": f"{facts.version}, made by {facts.kind}",
        "Date": f"{made:%Y-%m-%d %H:%M} UTC",
        "SHA-256 of the model": f"`{release.digest}`",
        "Documents, words, topics": f"{facts.m:,}, {facts.n:,}, {facts.r:,}",
        "Versions that it withdraws": ", ".join(map(str, facts.withdrawn)) or "none",
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    topics = "They are withheld."
    if release.payload.A is not None:
        shown = [f"| {topic.share:.1%} | {' '.join(topic.words)} |" for topic in release.topics()]
        topics = "\n".join(["| share | words |", "|---|---|", *shown])
    helps = "" if facts.guarantee == "private" else f"What helps against this: {HELPS}. "
    named = {"model": facts.model, "version": facts.version, "guarantee": release.guarantee, "helps": helps}
    return _CARD.format(**named, table=table, topics=topics)


_CARD = """# Topic model {model}, version {version}

| | |
|---|---|
{table}

## What it promises, and what it does not

{guarantee}.

{helps}A later version may have withdrawn this one: the ledger's newest entries say so.
The model holds counts of words with noise, as topics, and no document.

## Files

- `model.safetensors`: `A` (words, topics), the share of each word in a topic; `R` (topics, topics), their covariance;
  `shares` of topics; `heads/TASK/w` (topics, classes) of each task, or `heads/TASK/B` (words, classes) if topics are
  withheld. All have noise. Its metadata has words, topics and heads in JSON.
- `model.safetensors.tlog-proof`: the proof that the ledger names the model by its SHA-256.
- `words.txt`: the word of each row, one a line.

## Topics

{topics}
"""


COMMANDS = (_export,)
