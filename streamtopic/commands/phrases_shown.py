"""The arguments of commands for phrases of topics, and the table that shows these phrases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamtopic.console import progress, table

if TYPE_CHECKING:
    import argparse

    from streamtopic.service.app import Service
    from streamtopic.topics.phrases import PhraseReport

__all__ = ["add_phrases", "count_phrases", "phrases_block", "phrases_facts"]


def add_phrases(parser: argparse.ArgumentParser) -> None:
    """Add the argument that asks for phrases."""
    parser.add_argument(
        "--phrases",
        action="store_true",
        help="phrases of each topic, such as `interest rates`: two of its words that stand side by side in 20 or more "
        "of the documents that are there now; they are counted from the log",
    )


def count_phrases(service: Service, version: int | None, *, quiet: bool) -> PhraseReport:
    """Return the phrases of a version's topics, with a bar at a terminal. version: None for the newest."""
    with progress("counting phrases", "records", quiet=quiet) as update:
        return service.phrases(version, update)


def phrases_facts(found: PhraseReport) -> dict[str, Any]:
    """Return the fields of JSON about all phrases; each topic has its own phrases beside its words."""
    from streamtopic.topics.phrases import FLOOR

    return {"floor": FLOOR, "whole": found.whole}


def phrases_block(found: PhraseReport) -> str:
    """Lay out phrases for a person, a line for each topic with phrases."""
    from streamtopic.topics.phrases import FLOOR

    rows = []
    for topic, phrases in enumerate(found.topics):
        named = [f"{phrase} ({phrase.documents})" for phrase in phrases]
        if named:
            rows.append([topic, ", ".join(named)])
    notes = [f"in brackets: documents with the phrase, {FLOOR} at least, exact and without noise"]
    if not found.whole:
        notes.append("documents came or went while these were read: ask again for one point in time")
    shown = table(["topic", "phrases"], rows) if rows else "no topic has a phrase that enough documents hold"
    return "\n\n".join([shown, "\n".join(notes)])
