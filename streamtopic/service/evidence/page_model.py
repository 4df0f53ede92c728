"""Parts of the page about the version itself: its envelope, its signature, topics and tasks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamtopic.service.evidence.markup import Markup, element, facts, join, shown, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["about", "genuine", "moment", "tasks", "topics"]

_PARTITIONS = 8
_KINDS = {"retrain": "a retraining, which begins a new base", "unlearn": "an update of its base"}


def moment(milliseconds: int | None) -> str:
    """Write a time, given in milliseconds since 1970, to the second."""
    if not milliseconds:
        return "-"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def about(evidence: Mapping[str, Any]) -> Markup:
    """Say what the version is; everything signed, but for the reason."""
    envelope, record = evidence["envelope"], evidence["record"]
    newest = evidence["newest"]
    standing = "the newest version" if newest == evidence["version"] else f"version {newest} is the newest"
    rows = [
        ("model", envelope["model"]),
        ("version", f"{evidence['version']} ({standing})"),
        ("made by", f"{_KINDS[envelope['kind']]} (version {envelope['base']})"),
        ("made at", moment(envelope["created"])),
        ("guarantee", envelope["guarantee"]),
        ("documents in it", shown(envelope["m"])),
        ("documents of its base forgotten", shown(envelope["forgotten"])),
        ("vocabulary", f"{envelope['n']} words"),
        ("topics", shown(envelope["r"])),
        ("anchor words", _words(envelope["anchors"])),
        ("withdraws", shown(envelope["withdrawn"])),
        ("reflects the log up to", _places(envelope["cut"])),
    ]
    said = [("why it was made", shown(record["reason"])), ("time to make it", f"{shown(record['seconds'])} s")]
    return join(
        [
            element("p", "These facts are in the signed envelope.", class_="soft"),
            facts(rows),
            element("p", "The service's own record adds:", class_="soft"),
            facts(said),
        ]
    )


def _places(cut: Mapping[str, int]) -> str:
    listed = [f"partition {partition}: {offset}" for partition, offset in list(cut.items())[:_PARTITIONS]]
    more = [f"{len(cut) - _PARTITIONS} more in the page's data"] if len(cut) > _PARTITIONS else []
    return "; ".join([*listed, *more])


def genuine(evidence: Mapping[str, Any]) -> Markup:
    """Say how to tell that the service signed this."""
    proof = evidence["proof"]
    rows = [
        ("public key", element("code", proof["public_key"])),
        ("its fingerprint, SHA-256", element("code", proof["fingerprint"])),
        ("key id", element("code", proof["key_id"])),
        ("release, SHA-256", element("code", proof["release_sha256"])),
        ("payload, SHA-256", element("code", proof["payload_sha256"])),
        ("signature, Ed25519", element("code", proof["signature"])),
        ("size", f"{proof['bytes']} bytes"),
    ]
    told = (
        "The signature is over the digests of payload and envelope, so the envelope can be checked without the model. "
        "Compare the fingerprint with one that the operator gave you by another way: whoever makes a page can put any "
        "key into it. Then check this very file:"
    )
    command = "streamtopic report --check THIS_FILE --public-key signing.pub"
    return join([element("p", told), element("p", element("code", command)), facts(rows)])


def tasks(evidence: Mapping[str, Any]) -> Markup | None:
    """List heads, and tasks without one; nothing where the version has neither."""
    heads, unfitted = evidence["tasks"]["heads"], evidence["tasks"]["unfitted"]
    if not heads and not unfitted:
        return None
    withheld = evidence["claim"]["published"] == "tasks"
    how = (
        "The topics are withheld. Noise is on the weights of all tasks together, so each task adds to it."
        if withheld
        else "Each head was fitted on the published topics and on the labelled documents that are left: "
        "it adds nothing to epsilon."
    )
    rows = [
        [
            _words([head["task"]]),
            _words(head["classes"]),
            _words(head["topics"]),
            shown(head["documents"]),
            *((shown(head["sigma"]), shown(head["ratio"])) if withheld else ()),
        ]
        for head in heads
    ]
    parts = [element("p", how)]
    if evidence["tasks"]["labelled_whole"] is False:
        late = "Some labelled documents were deleted while the heads were fitted; the heads are of those still there."
        parts.append(element("p", late))
    if rows:
        own = ["sigma", "noise over weights"] if withheld else []
        parts.append(table(["task", "classes", "topics, by anchor word", "labelled documents", *own], rows))
    if unfitted:
        without = [[_words([task]), str(reason)] for task, reason in unfitted.items()]
        parts.append(table(["task without a head", "why"], without))
    return join(parts)


def topics(evidence: Mapping[str, Any]) -> Markup | None:
    """List the topics by their top words; nothing where they are withheld."""
    if not evidence["topics"]:
        return None
    rows = [
        [shown(one["topic"]), element("span", f"{one['share']:.1%}", class_="name"), _words(one["words"])]
        for one in evidence["topics"]
    ]
    quality = [(name, shown(value)) for name, value in evidence["quality"].items()]
    return join([table(["topic", "share", "top words, after noise"], rows), facts(quality)])


def _words(words: Iterable[str]) -> Markup:
    """Return words of the corpus, each kept from turning its neighbours around."""
    parts: list[object] = []
    for word in words:
        parts += [", "] if parts else []
        parts.append(element("bdi", word))
    return element("span", *(parts or ["-"]))
