"""What can be checked about a version at once: its bytes, its numbers, its record in Redis, and the chain it stands in.

Versions are chained: each names the one before by its digest, and a receipt names its version in the same way.
"""

import base64
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamtopic.errors import InvalidRelease
from streamtopic.paper.capacity_formulas import theorem_sigma
from streamtopic.privacy.accounting import Composition
from streamtopic.service.schedule.situation import unproven
from streamtopic.service.verify.finding import RENEW, Finding
from streamtopic.service.verify.forgotten import ChainSummary
from streamtopic.service.verify.proof import Proof, ReleasesTopic
from streamtopic.signed import Envelope, Payload, Verifier, digest_of, open_receipt

__all__ = [
    "certificate_findings",
    "chain_finding",
    "check_release",
    "named_finding",
    "own_check_findings",
    "reopened_finding",
]

Record = Mapping[str, Any]

_UNPROVEN = (
    "an older program made it, which bounded the error of its numbers and not that of its words and sets: its "
    "certificate was not a proof"
)

_UNBOUND = "an older program made it: it names neither the version before it nor its counts, so it is not bound to them"
_NEXT = "the next version names this one by its digest"
_RIVAL = "find out who else holds the signing key; `streamtopic retrain` makes a version that withdraws these"
_FORGED = "do not rely on this file: ask the operator for the receipts themselves"

_ROUNDING = 1e-9
# R is stored in single precision, so its smallest eigenvalue may fall below 0 by this share of its norm.
_FLOAT32 = 2.0**-22
# Sums of thousands of numbers in single precision.
_COLUMN_ERROR = 1e-4
_SAME = {
    "kind": "kind",
    "base": "base",
    "documents": "m",
    "vocabulary": "n",
    "topics": "r",
    "forget_set": "forgotten",
    "capacity": "capacity",
    "guarantee": "guarantee",
    "epsilon": "epsilon",
    "delta": "delta",
    "sigma": "sigma",
    "ratio": "ratio",
    "covered": "covered",
    "revision": "revision",
    "certificate": "certificate",
    "cumulative_epsilon": "cumulative_epsilon",
    "anchors": "anchors",
    "withdrawn": "withdrawn",
    "created": "created",
    "previous": "previous",
    "commitment": "commitment",
}
"""Fields of the release record, and of the envelope, that say the same."""


def check_release(
    topic: ReleasesTopic,
    payload: Payload,
    envelope: Envelope,
    proof: Proof,
    records: Mapping[int, Record],
    ledger: Mapping[int, Record],
) -> tuple[Finding, ...]:
    """Check a version against its own bytes, the other versions in the log and what Redis keeps of them.

    records: of all versions, by number; ledger: version to its scale and slack.
    """
    return (
        _signature(topic, envelope, proof),
        _form(payload, envelope),
        _record(envelope, proof, records.get(envelope.version)),
        *certificate_findings(envelope),
        _noise(payload, envelope, records.get(envelope.version, {})),
        *_conditions(envelope, records.get(envelope.version, {})),
        *_anchors(envelope, records.get(envelope.base)),
        _composition(envelope, records, ledger),
        *_withdrawal(topic, envelope),
    )


def _signature(topic: ReleasesTopic, envelope: Envelope, proof: Proof) -> Finding:
    name = "signature"
    if envelope.version in topic.doubled:
        detail = f"version {envelope.version} was signed twice with two contents: subscribers hold the first of them"
        remedy = "the next version withdraws it; find out who else holds the signing key"
        return Finding(name, passed=False, detail=detail, source="log", remedy=remedy)
    detail = f"{proof.size} bytes of SHA-256 {proof.release}, signed as a whole, each word and number of them"
    return Finding(name, passed=True, detail=detail, source="signed")


def _form(payload: Payload, envelope: Envelope) -> Finding:
    """Whether a model is one: finite, columns on the simplex, R symmetric and positive semidefinite."""
    arrays = {name: getattr(payload, name) for name in ("A", "R", "shares")}
    problems = [name for name, array in arrays.items() if array is not None and not np.isfinite(array).all()]
    if not problems:
        problems = list(_malformed(arrays))
    detail = f"{envelope.n} words, {envelope.r} topics, every number finite, columns on the simplex"
    if arrays["A"] is None:
        detail = f"{envelope.n} words; topics are withheld"
    if problems:
        detail = f"{', '.join(problems)}: not what a release of topics holds"
    remedy = "do not use this version: `streamtopic retrain`" if problems else ""
    return Finding("form", not problems, detail, "signed", remedy)


def _malformed(arrays: Mapping[str, Any]) -> Iterator[str]:
    A, R, shares = (None if array is None else np.asarray(array, np.float64) for array in arrays.values())
    if A is not None and (A.min() < 0 or np.abs(A.sum(axis=0) - 1).max() > _COLUMN_ERROR):
        yield "columns of A off the simplex"
    if shares is not None and (shares.min() < 0 or abs(shares.sum() - 1) > _COLUMN_ERROR):
        yield "shares that do not sum to 1"
    if R is not None:
        rounding = _FLOAT32 * len(R) * max(1.0, float(np.linalg.norm(R)))
        if np.abs(R - R.T).max() > rounding or np.linalg.eigvalsh((R + R.T) / 2).min() < -rounding:
            yield "R not positive semidefinite"


def _record(envelope: Envelope, proof: Proof, record: Record | None) -> Finding:
    """Whether the record that the service acts on says the same as the signed envelope."""
    name = "record"
    if record is None:
        detail = f"Redis has no record of version {envelope.version}: it was set back"
        remedy = "the scheduler reads it back from the log before its next version"
        return Finding(name, None, detail, "records", remedy)
    differing = [ours for ours, theirs in _SAME.items() if ours in record and not _same(record[ours], envelope, theirs)]
    differing += ["digest"] if record.get("digest", proof.digest) not in {"", proof.digest} else []
    if not differing:
        return Finding(name, passed=True, detail="Redis says of it what the signed envelope says", source="records")
    detail = f"Redis differs from the signed envelope in {', '.join(differing)}"
    return Finding(
        name, passed=False, detail=detail, source="records", remedy="trust the envelope; `streamtopic retrain`"
    )


def _same(value: object, envelope: Envelope, name: str) -> bool:
    signed = getattr(envelope, name)
    # JSON, which the record was, knows lists and no tuples.
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value) == list(signed)
    return bool(value == signed)


def certificate_findings(envelope: Envelope) -> Iterator[Finding]:
    """Whether the model before noise is as near to the exact one as the noise is made for."""
    if envelope.guarantee != "certified":
        return
    reached = envelope.certificate <= envelope.tolerance
    # An older program signed a bound that did not cover words and sets of words: neither proved nor refuted.
    if reached and envelope.unproven:
        yield Finding("certificate", None, f"{envelope.certificate:.3g} is said, but {_UNPROVEN}", "signed", RENEW)
        return
    detail = (
        f"the model before noise lies within {envelope.certificate:.3g} of the exact one, "
        f"{'at most' if reached else 'more than'} the tolerance {envelope.tolerance:.3g} that the noise is made for"
    )
    yield Finding("certificate", reached, detail, "signed", "" if reached else "do not use it: `streamtopic retrain`")


def own_check_findings(record: Record, version: int, refuted: Collection[int]) -> Iterator[Finding]:
    """Yield the outcome of the service's own check of a version, where it made one. refuted: versions that failed."""
    name, found = "self check", record.get("self_check") or {}
    if version in refuted:
        detail = "an update made from this version was not what the counts give, and this one was not checked before"
        remedy = "do not use it: the next version, learned from the counts, withdraws it"
        yield Finding(name, passed=False, detail=detail, source="records", remedy=remedy)
    elif found.get("passed"):
        yield Finding(name, passed=True, detail=f"before it was published: {found['detail']}", source="records")


def _noise(payload: Payload, envelope: Envelope, record: Record) -> Finding:
    """Whether the noise is as large as the claim needs (analytic Gaussian mechanism)."""
    name, scale = "noise", envelope.scale
    if not scale > 0:
        remedy = "`streamtopic retrain` makes a version that does"
        return Finding(name, None, "an older program made it, which did not say its scale", "signed", remedy)
    spent = Composition.of([(scale, envelope.slack)]).epsilon(envelope.delta)
    detail = (
        f"of {scale:.6g} times what two models may lie apart, it makes ({spent:.6g}, {envelope.delta:g}); "
        f"({envelope.epsilon:g}, {envelope.delta:g}) is claimed"
    )
    problem = None if spent <= envelope.epsilon * (1 + _ROUNDING) else "the claim is smaller than that"
    problem = problem or _smaller_than_said(payload, envelope, record)
    remedy = "do not use this version: `streamtopic retrain`" if problem else ""
    return Finding(name, problem is None, f"{detail}; {problem}" if problem else detail, "signed", remedy)


def _smaller_than_said(payload: Payload, envelope: Envelope, record: Record) -> str | None:
    """Return why sigma is smaller than the scale times the distance of two models; None if it is not, or is unknown."""
    # Where topics are withheld, each head has its own noise, and all of them together must be enough.
    if payload.A is None:
        heads = [(head["sigma"], head["sensitivity"]) for head in (record.get("heads") or {}).values()]
        if not heads:
            return None
        mu = Composition.of((sigma / sensitivity, 0.0) for sigma, sensitivity in heads).mu
        return None if mu * envelope.scale <= 1 + _ROUNDING else "the noise of the heads is smaller than that"
    apart, scale = 2 * envelope.tolerance, envelope.scale
    if envelope.guarantee == "theorem":
        constants = record.get("constants") or {}
        # A record that was read back from the log has no constants of the paper.
        if not constants.get("delta_A"):
            return None
        apart, scale = constants["delta_A"], theorem_sigma(1.0, constants["epsilon_each"], envelope.delta)
    if envelope.sigma >= apart * scale * (1 - _ROUNDING):
        return None
    return f"sigma is {envelope.sigma:.6g}, and should be {apart * scale:.6g} for models {apart:.3g} apart"


def _conditions(envelope: Envelope, record: Record) -> Iterator[Finding]:
    """Whether every condition of the paper's proof held; where one fails, the claim is neither proved nor refuted."""
    if envelope.covered is None:
        return
    checks = record.get("checks") or []
    if envelope.covered:
        yield Finding("conditions", passed=True, detail="every condition of the paper's proof held", source="signed")
        return
    failing = sum(not check["holds"] for check in checks)
    many = f"{failing} of {len(checks)}" if checks else "some"
    detail = f"{many} conditions of the paper's proof do not hold, so its promise is not proved for this version"
    remedy = "the certified mode (setting `guarantee`) rests on no such condition"
    yield Finding("conditions", None, detail, "signed", remedy)


def _anchors(envelope: Envelope, base: Record | None) -> Iterator[Finding]:
    """Say which anchor words an update kept: all of its base's under the theorem, else those that the counts decide."""
    if envelope.kind != "unlearn":
        return
    name, lead = "anchors", f"the least lead of an anchor is {envelope.margin:.3g}"
    if base is None:
        detail = f"Redis has no record of the base, version {envelope.base}; {lead}"
        yield Finding(name, None, detail, "records", "compare with the base's own report, if you have one")
        return
    others = len({*envelope.anchors} - {*base["anchors"]})
    said = (
        f"{others} of {len(envelope.anchors)} anchor words are not those of the base, version {envelope.base}; {lead}"
    )
    if envelope.guarantee == "theorem" and others:
        yield Finding(
            name, passed=False, detail=said, source="records", remedy="`streamtopic retrain` begins a new base"
        )
    else:
        yield Finding(name, passed=True, detail=said, source="records")


def _composition(envelope: Envelope, records: Mapping[int, Record], ledger: Mapping[int, Record]) -> Finding:
    """Whether all versions of the base add up to the epsilon that was signed."""
    name = "composition"
    versions = [v for v, record in records.items() if record["base"] == envelope.base and v <= envelope.version]
    missing = [version for version in versions if version not in ledger]
    if not versions or missing:
        detail = f"the ledger of epsilon in Redis lacks {f'version {missing[0]}' if missing else 'the base'}"
        return Finding(
            name, None, detail, "records", "the scheduler reads it back from the log before its next version"
        )
    spent = Composition.of((ledger[v]["scale"], ledger[v]["slack"]) for v in versions).epsilon(envelope.delta)
    signed = envelope.cumulative_epsilon
    older = [version for version in versions if unproven(records[version])]
    if older and not envelope.unproven and envelope.guarantee == "certified":
        detail = f"version {older[0]}, of the same base, adds what it says, but {_UNPROVEN}"
        return Finding(name, None, detail, "records", RENEW)
    # More was signed where a version was published with two contents: both were seen.
    enough = signed >= spent * (1 - _ROUNDING)
    detail = (
        f"{len(versions)} versions of base {envelope.base} together are ({spent:.4g}, {envelope.delta:g})"
        f"{'' if math.isclose(signed, spent, rel_tol=1e-6) else f'; the envelope says {signed:.4g}'}"
    )
    return Finding(name, enough, detail, "records", "" if enough else "trust the larger; `streamtopic retrain`")


def _withdrawal(topic: ReleasesTopic, envelope: Envelope) -> Iterator[Finding]:
    """Whether versions that hold forgotten documents have left the log."""
    if not envelope.withdrawn:
        return
    named = ", ".join(map(str, envelope.withdrawn))
    left = [version for version in envelope.withdrawn if version in topic.standing]
    detail = f"withdrawn with it, since they do not keep what is promised: {named}; "
    detail += f"not yet erased: {', '.join(map(str, left))}" if left else "their bytes are tombstoned"
    remedy = "`streamtopic publish` erases what is staged" if left else ""
    yield Finding("withdrawal", passed=not left, detail=detail, source="log", remedy=remedy)


def chain_finding(topic: ReleasesTopic) -> Finding:
    """Say whether each version in the log names the version before it as it is there."""
    name, broken, gone = "chain", list[str](), list[int]()
    for version, links in sorted(topic.links.items()):
        named = {link.previous for link in links} - {""}
        before = {link.digest for link in topic.links.get(version - 1, ())}
        if named and not before:
            gone.append(version - 1)
        if before and not named <= before:
            broken.append(f"version {version} names another version {version - 1} than the one in the log")
    if broken:
        return Finding(name, passed=False, detail="; ".join(broken), source="log", remedy=_RIVAL)
    own = topic.links[topic.wanted][0] if topic.wanted in topic.links else None
    if own is None or not own.commitment:
        return Finding(name, None, _UNBOUND, "signed", _NEXT)
    detail = f"digest {own.digest}; each of {len(topic.links)} versions in the log names the one before by its digest"
    if gone:
        detail += f"; not available any more, their digests are known from the chain: {', '.join(map(str, gone))}"
    return Finding(name, passed=True, detail=detail, source="log")


def named_finding(receipts: ChainSummary, topic: ReleasesTopic, records: Mapping[int, Mapping[str, Any]]) -> Finding:
    """Say whether receipts name the very bytes of their version. records: what Redis keeps of versions."""
    name, wrong, alone, gone = "bound receipts", list[int](), list[int](), list[int]()
    for version, names in sorted(receipts.names.items()):
        known = topic.named(version) or {str(records.get(version, {}).get("digest", ""))} - {""}
        digests = {digest for digest, _ in names}
        if version in topic.links:
            signed = {(link.digest, link.commitment) for link in topic.links[version]}
            fits = names <= signed
        else:
            (gone if known else alone).append(version)
            fits = digests <= known if known else len(digests) == 1
        if not fits:
            wrong.append(version)
    if wrong:
        listed = ", ".join(map(str, wrong))
        detail = f"receipts name other bytes, or other counts, than there are of version {listed}"
        return Finding(name, passed=False, detail=detail, source="log", remedy=_RIVAL)
    detail = f"receipts of {len(receipts.names)} versions name their very bytes"
    if gone:
        detail += f"; not available any more, digest known from the chain: {', '.join(map(str, gone))}"
    if alone:
        detail += f"; not available any more, digest known from receipts alone: {', '.join(map(str, alone))}"
    if receipts.unbound:
        detail += f"; {receipts.unbound} receipts of an older program name a number only"
    return Finding(name, passed=True, detail=detail, source="log")


def reopened_finding(evidence: Mapping[str, Any], proof: Proof, envelope: Envelope, key: Verifier) -> Finding:
    """Say whether the receipts in a report's file are signed and name the version that the file is about."""
    name = "bound"
    if not envelope.bound:
        return Finding(name, None, _UNBOUND, "signed", _NEXT)
    try:
        problems = list(_problems(evidence, proof, envelope, key))
        listed = len(evidence["forgotten"]["receipts"])
    except (KeyError, TypeError, AttributeError):
        problems, listed = ["the file lists no receipts as this program does"], 0
    if problems:
        return Finding(name, passed=False, detail="; ".join(problems[:3]), source="signed", remedy=_FORGED)
    before = f"names version {envelope.parent} by its digest" if envelope.previous else "names no version before"
    detail = f"digest {proof.digest}; it {before}; {listed} receipts in the file are signed and name these very bytes"
    return Finding(name, passed=True, detail=detail, source="signed")


def _problems(evidence: Mapping[str, Any], proof: Proof, envelope: Envelope, key: Verifier) -> Iterator[str]:
    if evidence["proof"]["digest"] != proof.digest:
        yield "the digest in the file is not that of what was signed"
    for listed in evidence["forgotten"]["receipts"]:
        number = str(listed["sequence"])[:20]
        try:
            data = base64.b64decode(listed["signed"], validate=True)
            receipt = open_receipt(data, key)
        except (InvalidRelease, ValueError) as error:
            yield f"receipt {number} in the file: {error}"
            continue
        if (listed["sequence"], listed["sha256"]) != (receipt.sequence, digest_of(data)):
            yield f"receipt {number} in the file is not the one that was signed"
        if (receipt.model, receipt.version) != (envelope.model, envelope.version):
            yield f"receipt {number} in the file is of another version"
        if receipt.release and (receipt.release, receipt.commitment) != (proof.digest, envelope.commitment):
            yield f"receipt {number} in the file names other bytes, or other counts, than this version"
