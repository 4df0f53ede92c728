"""A release as files that other programs read: the model as published, its proof, its words, and a card about it.

The model's bytes are those whose digest the ledger holds, so whoever has the folder and the public key can check it.
"""

from datetime import UTC, datetime
from pathlib import Path

from streamtopic.errors import UsageError
from streamtopic.signed.entries import Envelope
from streamtopic.signed.release import HELPS, Release

__all__ = ["release_card", "write_release"]

_MODEL = "model.safetensors"


def write_release(release: Release, folder: Path) -> None:
    """Write a verified release to a folder, in place of another one that it may hold.

    Raises UsageError for a folder that holds other files, OSError if it cannot be written, and as `Release.data`.
    """
    files = {
        _MODEL: release.data(),
        f"{_MODEL}.tlog-proof": release.proof.encode(),
        "words.txt": "".join(f"{word}\n" for word in release.words).encode(),
        "README.md": release_card(release).encode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    others = sorted({path.name for path in folder.iterdir()} - set(files))
    if others:
        raise UsageError(f"{folder} holds other files, such as {others[0]}: give a folder that is new or empty")
    for name, data in files.items():
        (folder / name).write_bytes(data)


def release_card(release: Release) -> str:
    """Return what a user should know of a release, in Markdown. It names no document."""
    facts = release.envelope
    made = datetime.fromtimestamp(facts.created / 1000, UTC)
    rows = {
        "Version": f"{facts.version}, made by {facts.kind}",
        "Date": f"{made:%Y-%m-%d %H:%M} UTC",
        "SHA-256 of the model": f"`{release.digest}`",
        "Documents, words, topics": f"{facts.m:,}, {facts.n:,}, {facts.r:,}",
        "Guarantee": facts.guarantee,
        **_spent(facts),
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


def _spent(facts: Envelope) -> dict[str, str]:
    """Return the rows of a card that say what versions reveal."""
    if facts.guarantee == "private":
        return {
            "Epsilon, delta of all versions of a period": f"{facts.epsilon:g}, {facts.delta:g}",
            "Epsilon of all periods so far": f"{facts.cumulative_epsilon:.3g}",
        }
    return {
        "Unlearning epsilon, delta": f"{facts.epsilon:g}, {facts.delta:g}",
        "Epsilon of all versions since the base": f"{facts.cumulative_epsilon:.3g}",
        "Documents forgotten since the base": f"{facts.forgotten:,}",
    }


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
