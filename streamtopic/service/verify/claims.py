"""The promise of a version in words: its claim, its assumptions, its limits, and the steps to check it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtopic.signed.release import GIVEN_AWAY, HELPS

if TYPE_CHECKING:
    from streamtopic.signed import Envelope

__all__ = ["LIMITS", "assumptions_of", "statement_of", "steps_of"]

LIMITS = (
    (
        f"Unlearning is not privacy: {GIVEN_AWAY}. What helps: {HELPS}. To hide the difference takes differentially "
        "private training."
    ),
    "The ledger is outside the claim: it says that documents were forgotten, how many, and when.",
    (
        "The event log, snapshots of Redis and backups hold a deleted document until the log is compacted, the "
        "snapshot is replaced and the backup expires."
    ),
    (
        "Copies that subscribers made of versions withdrawn since cannot be called back. They are told, and the client "
        "refuses to serve them."
    ),
    "The claim is about documents given to this model. It says nothing of what was made from a version elsewhere.",
    "Quality is not promised: a version is as good or as bad as the retraining that it cannot be told from.",
)

_KEYS = (
    "The noise key is secret and random. Whoever holds it can take the noise off, and tell the two apart.",
    (
        "HMAC-SHA-256 and ChaCha20 under that key look like true randomness; SHA-256 has no collisions, and Ed25519 "
        "signatures cannot be forged."
    ),
    "Nobody chooses deletions by means of the noise key.",
    "Logarithm, sine and cosine are right to 4 units in the last place: then noised numbers are rounded exactly.",
)
_CERTIFIED = (
    "The counts are exactly those of the documents that remain. `verify` counts the log again, bit for bit.",
    "Floating point keeps its stated rounding bounds (IEEE 754), from which the certificate is computed.",
    *_KEYS,
    (
        "Nothing is assumed of the corpus. Words, anchors and sets of words are decided by exact or reproducible "
        "arithmetic, alike for both; the certificate is a proven bound on every other number before noise."
    ),
)
_THEOREM = (
    "The proof of Wei et al. (2025), theorem 1: every condition below holds, with the constant c as set.",
    "The paper gives c no value; a, gamma and p are estimated from the data unless the operator sets them.",
    *_KEYS,
)
_WITHHELD = (
    (
        "The weights of each task lie within the bound that their noise is made for, which follows from the "
        "certificate of the topics and from how closely each head was solved."
    ),
)


def statement_of(published: str, envelope: Envelope) -> str:
    """Return the claim of a version in words.

    published: `topics`, or `tasks` if the topics are withheld.
    """
    held = "words and task weights" if published == "tasks" else "words, topics, shares, top words, quality, heads"
    never = f"one that was trained on the {envelope.m} that remain and never saw the others"
    # The paper compares with a retraining that runs its update on an empty forget set.
    if envelope.guarantee == "theorem":
        never += ", and then ran the same update with nothing to forget"
    forgot = f"a service that learned from {_documents(envelope.forgotten)} deleted since and forgot them"
    # The claim of a retrain is about any documents deleted before it.
    if not envelope.forgotten:
        forgot = "a service that learned from documents deleted by now and forgot them"
    return (
        f"Whoever sees the payload of version {envelope.version} ({held}) cannot tell whether it comes from {forgot}, "
        f"or from {never}, better than (unlearning epsilon, delta) = ({envelope.epsilon:g}, {envelope.delta:g}): for "
        "every set T of payloads, Pr[unlearned in T] <= e^epsilon Pr[retrained in T] + delta, and the other way round."
    )


def assumptions_of(published: str, envelope: Envelope) -> tuple[str, ...]:
    """Return the assumptions of a version's claim.

    published: `topics`, or `tasks` if the topics are withheld.
    """
    own: tuple[str, ...] = _CERTIFIED if envelope.guarantee == "certified" else _THEOREM
    return (*own, *_WITHHELD) if published == "tasks" else own


def steps_of(version: int) -> tuple[tuple[str, str, str], ...]:
    """Return the steps by which a stranger checks a version: (fact that it shows, command, needs)."""
    return (
        (
            "these facts are in the ledger, and this page says what is there",
            "streamtopic verify report.json --key signing.pub",
            "this report as .json or .html, and the public key of the ledger",
        ),
        (
            "the model itself is the one that the ledger names",
            f"streamtopic export {version} --to model.release --config streamtopic.toml",
            "access to the releases topic and the ledger",
        ),
        (
            "a deletion has its receipt",
            "streamtopic verify receipt.tlog-proof --key signing.pub",
            "the file of `streamtopic receipt ID --proof`, and the public key; any program for tlog-proof reads it too",
        ),
        (
            (
                "the ledger is one tree, every deletion has its receipt, the counts are those of the documents that "
                "remain, and a model learned from them alone is this one"
            ),
            "streamtopic verify --config streamtopic.toml",
            "access to log and Redis; for the published noise, the noise key",
        ),
        (
            "the noise hides what it claims to hide",
            "streamtopic audit --json",
            "nothing but this program",
        ),
        (
            "how many deletions this base bears",
            "streamtopic capacity --config streamtopic.toml",
            "access to Redis",
        ),
    )


def _documents(number: int) -> str:
    return "1 document" if number == 1 else f"{number} documents"
