"""Checks of a version that do not count or learn again: its bytes, its numbers, its record in Redis, and its chain.

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
from streamtopic.service.verify.finding import RENEW, Finding, fails, holds, not_checked
from streamtopic.service.verify.proof import ChainSummary, Proof, ReleasesTopic
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
Records = Mapping[int, Record]

_UNPROVEN = (
    "an older program made it, which bounded the error of its numbers and not that of its words and sets: its "
    "certificate was not a proof"
)
_READ_BACK = "the scheduler reads it back from the log before its next version"
_UNBOUND = "an older program made it: it names neither the version before it nor its counts, so it is not bound to them"
_NEXT = "the next version names this one by its digest"
_RIVAL = "find out who else holds the signing key; `streamtopic retrain` makes a version that withdraws these"
_FORGED = "do not rely on this file: ask the operator for the receipts themselves"

# Of a few double precision operations on the way from scale to epsilon and back.
_ROUNDING = 1e-9
# R is stored in single precision, so its smallest eigenvalue may fall below 0 by this share of its norm.
_FLOAT32 = 2.0**-22
# Sums of thousands of numbers in single precision.
_COLUMN_ERROR = 1e-4
# Fields of the record in Redis that must say the same as the envelope, and those that it calls by another name.
_SAME = (
    "kind",
    "base",
    "documents",
    "vocabulary",
    "topics",
    "forget_set",
    "capacity",
    "guarantee",
    "epsilon",
    "delta",
    "sigma",
    "ratio",
    "covered",
    "revision",
    "certificate",
    "cumulative_epsilon",
    "anchors",
    "withdrawn",
    "created",
    "previous",
    "commitment",
)
_RENAMED = {"documents": "m", "vocabulary": "n", "topics": "r", "forget_set": "forgotten"}


def check_release(
    topic: ReleasesTopic,
    payload: Payload,
    envelope: Envelope,
    proof: Proof,
    records: Records,
    ledger: Records,
) -> tuple[Finding, ...]:
    """Return the checks of a version against its own bytes, the other versions in the log and its records in Redis.

    topic: the versions in the log.
    payload, envelope, proof: of the version.
    records: version to its record in Redis.
    ledger: version to its scale and slack in Redis.
    """
    record = records.get(envelope.version)
    base = records.get(envelope.base)
    known = record or {}
    return (
        _signature(topic, envelope, proof),
        _form(payload, envelope),
        _record(envelope, proof, record),
        *certificate_findings(envelope),
        _noise(payload, envelope, known),
        *_conditions(envelope, known),
        *_anchors(envelope, base),
        _composition(envelope, records, ledger),
        *_withdrawal(topic, envelope),
    )


def _signature(topic: ReleasesTopic, envelope: Envelope, proof: Proof) -> Finding:
    """Whether the version is the only one with its number that was signed."""
    name = "signature"
    if envelope.version in topic.doubled:
        detail = f"version {envelope.version} was signed twice with two contents: subscribers hold the first of them"
        remedy = "the next version withdraws it; find out who else holds the signing key"
        return fails(name, detail, "log", remedy)
    detail = f"{proof.size} bytes of SHA-256 {proof.release}, signed as a whole, each word and number of them"
    return holds(name, detail, "signed")


def _form(payload: Payload, envelope: Envelope) -> Finding:
    """Whether the numbers are those of a model: finite, columns on the simplex, R symmetric positive semidefinite."""
    name = "form"
    arrays = {part: getattr(payload, part) for part in ("A", "R", "shares")}
    present = {part: array for part, array in arrays.items() if array is not None}
    problems = [part for part, array in present.items() if not np.isfinite(array).all()]
    # Eigenvalues of a matrix with a NaN cannot be computed, so these checks come second.
    problems = problems or list(_malformed(arrays))
    if problems:
        named = ", ".join(problems)
        detail = f"{named}: these numbers are not those of a model"
        return fails(name, detail, "signed", "do not use this version: `streamtopic retrain`")
    if payload.A is None:
        return holds(name, f"{envelope.n} words; topics are withheld", "signed")
    detail = f"{envelope.n} words, {envelope.r} topics, every number finite, columns on the simplex"
    return holds(name, detail, "signed")


def _malformed(arrays: Mapping[str, Any]) -> Iterator[str]:
    """Yield the properties of a model that these arrays (A, R, shares) do not have."""
    A, R, shares = (None if array is None else np.asarray(array, np.float64) for array in arrays.values())
    if A is not None:
        sums = A.sum(axis=0)
        excess = np.abs(sums - 1).max()
        if A.min() < 0 or excess > _COLUMN_ERROR:
            yield "columns of A off the simplex"
    if shares is not None:
        excess = abs(shares.sum() - 1)
        if shares.min() < 0 or excess > _COLUMN_ERROR:
            yield "shares that do not sum to 1"
    if R is not None:
        norm = float(np.linalg.norm(R))
        rounding = _FLOAT32 * len(R) * max(1.0, norm)
        asymmetry = np.abs(R - R.T).max()
        symmetric = (R + R.T) / 2
        least = np.linalg.eigvalsh(symmetric).min()
        if asymmetry > rounding or least < -rounding:
            yield "R not positive semidefinite"


def _record(envelope: Envelope, proof: Proof, record: Record | None) -> Finding:
    """Whether Redis says the same of a version as its signed envelope: the service acts on the record in Redis."""
    name = "record"
    if record is None:
        detail = f"Redis has no record of version {envelope.version}: it was set back"
        return not_checked(name, detail, "records", _READ_BACK)
    differing = []
    for name_in_record in _SAME:
        name_in_envelope = _RENAMED.get(name_in_record, name_in_record)
        if name_in_record in record and not _same(record[name_in_record], envelope, name_in_envelope):
            differing.append(name_in_record)
    # Records of an older program have no digest, or an empty one.
    if record.get("digest", proof.digest) not in {"", proof.digest}:
        differing.append("digest")
    if not differing:
        return holds(name, "Redis and the signed envelope say the same of it", "records")
    detail = f"Redis differs from the signed envelope in {', '.join(differing)}"
    return fails(name, detail, "records", "trust the envelope; `streamtopic retrain`")


def _same(value: object, envelope: Envelope, name: str) -> bool:
    """Whether a field of a record has the value that the envelope has under this name."""
    signed = getattr(envelope, name)
    # The record was JSON, which has lists and no tuples.
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value) == list(signed)
    return bool(value == signed)


def certificate_findings(envelope: Envelope) -> Iterator[Finding]:
    """Yield whether the model before noise is as near to the exact one as the noise is made for."""
    if envelope.guarantee != "certified":
        return
    name = "certificate"
    said = f"{envelope.certificate:.3g}"
    allowed = f"{envelope.tolerance:.3g}"
    lies = f"the model before noise lies within {said} of the exact one"
    if not envelope.certificate <= envelope.tolerance:
        detail = f"{lies}, more than the tolerance {allowed} that the noise is made for"
        yield fails(name, detail, "signed", "do not use it: `streamtopic retrain`")
    # An older program signed a bound that did not cover words and sets of words: neither proved nor refuted.
    elif envelope.unproven:
        yield not_checked(name, f"{said} is said, but {_UNPROVEN}", "signed", RENEW)
    else:
        yield holds(name, f"{lies}, at most the tolerance {allowed} that the noise is made for", "signed")


def own_check_findings(record: Record, version: int, refuted: Collection[int]) -> Iterator[Finding]:
    """Yield the outcome of the service's own check of a version, if there was one.

    record: of the version, in Redis.
    refuted: versions that failed.
    """
    name = "self check"
    found = record.get("self_check") or {}
    # A version may be refuted later than its record was written, by the check of an update that was made from it.
    if version in refuted:
        detail = "an update made from this version did not fit the counts, and this one was not checked before"
        remedy = "do not use it: the next version, learned from the counts, withdraws it"
        yield fails(name, detail, "records", remedy)
    elif found.get("passed"):
        yield holds(name, f"before it was published: {found['detail']}", "records")


def _noise(payload: Payload, envelope: Envelope, record: Record) -> Finding:
    """Whether the noise is as large as the claim needs (analytic Gaussian mechanism)."""
    name = "noise"
    scale = envelope.scale
    delta = envelope.delta
    if not scale > 0:
        detail = "an older program made it, which did not say its scale"
        return not_checked(name, detail, "signed", "`streamtopic retrain` makes a version that does")
    spent = Composition.of([(scale, envelope.slack)]).epsilon(delta)
    detail = f"of {scale:.6g} times the distance that two models may have, it makes ({spent:.6g}, {delta:g})"
    detail += f"; ({envelope.epsilon:g}, {delta:g}) is claimed"
    problem = _smaller_than_said(payload, envelope, record)
    if not spent <= envelope.epsilon * (1 + _ROUNDING):
        problem = "the claim is smaller than that"
    if problem is not None:
        return fails(name, f"{detail}; {problem}", "signed", "do not use this version: `streamtopic retrain`")
    return holds(name, detail, "signed")


def _smaller_than_said(payload: Payload, envelope: Envelope, record: Record) -> str | None:
    """Return why sigma is smaller than the scale times the distance of two models, None if it is not or is unknown."""
    if payload.A is None:
        return _heads_smaller_than_said(envelope, record)
    apart = 2 * envelope.tolerance
    scale = envelope.scale
    if envelope.guarantee == "theorem":
        constants = record.get("constants") or {}
        # A record that was read back from the log has no constants of the paper.
        if not constants.get("delta_A"):
            return None
        apart = constants["delta_A"]
        scale = theorem_sigma(1.0, constants["epsilon_each"], envelope.delta)
    needed = apart * scale
    if envelope.sigma >= needed * (1 - _ROUNDING):
        return None
    return f"sigma is {envelope.sigma:.6g}, and should be {needed:.6g} for models {apart:.3g} apart"


def _heads_smaller_than_said(envelope: Envelope, record: Record) -> str | None:
    """Return why the noise of the heads together is smaller than the scale says, None if it is not or is unknown."""
    heads = record.get("heads") or {}
    # A record that was read back from the log does not have the noise of each head.
    if not heads:
        return None
    # Each head has its own noise, and all of them together must be enough.
    noise = [(head["sigma"] / head["sensitivity"], 0.0) for head in heads.values()]
    mu = Composition.of(noise).mu
    if mu * envelope.scale <= 1 + _ROUNDING:
        return None
    return "the noise of the heads is smaller than that"


def _conditions(envelope: Envelope, record: Record) -> Iterator[Finding]:
    """Yield whether every condition of the paper's proof held."""
    name = "conditions"
    if envelope.covered is None:
        return
    if envelope.covered:
        yield holds(name, "every condition of the paper's proof held", "signed")
        return
    checks = record.get("checks") or []
    failing = sum(not check["holds"] for check in checks)
    many = f"{failing} of {len(checks)}" if checks else "some"
    detail = f"{many} conditions of the paper's proof do not hold, so its promise is not proved for this version"
    # Not a failure: without its conditions the claim is neither proved nor refuted.
    yield not_checked(name, detail, "signed", "the certified mode (setting `guarantee`) rests on no such condition")


def _anchors(envelope: Envelope, base: Record | None) -> Iterator[Finding]:
    """Yield how many anchor words an update kept of its base."""
    if envelope.kind != "unlearn":
        return
    name, lead = "anchors", f"the least lead of an anchor is {envelope.margin:.3g}"
    if base is None:
        detail = f"Redis has no record of the base, version {envelope.base}; {lead}"
        yield not_checked(name, detail, "records", "compare with the base's own report, if you have one")
        return
    new = set(envelope.anchors) - set(base["anchors"])
    others = len(new)
    detail = f"{others} of {len(envelope.anchors)} anchor words are not those of the base, version {envelope.base}"
    detail += f"; {lead}"
    # Under the theorem an update keeps all anchors of its base; in certified mode the counts decide.
    if envelope.guarantee == "theorem" and others:
        yield fails(name, detail, "records", "`streamtopic retrain` begins a new base")
    else:
        yield holds(name, detail, "records")


def _composition(envelope: Envelope, records: Records, ledger: Records) -> Finding:
    """Whether all versions of the base add up to the epsilon that was signed."""
    name = "composition"
    versions = []
    for version, record in records.items():
        if record["base"] == envelope.base and version <= envelope.version:
            versions.append(version)
    missing = [version for version in versions if version not in ledger]
    if not versions or missing:
        lacking = f"version {missing[0]}" if missing else "the base"
        return not_checked(name, f"the ledger of epsilon in Redis lacks {lacking}", "records", _READ_BACK)
    older = [version for version in versions if unproven(records[version])]
    proved = envelope.guarantee == "certified" and not envelope.unproven
    # An older certificate was not a proof, so the sum that contains its epsilon is not proved either.
    if older and proved:
        detail = f"epsilon of version {older[0]}, of the same base, is in the sum, but {_UNPROVEN}"
        return not_checked(name, detail, "records", RENEW)
    entries = [ledger[version] for version in versions]
    noise = [(entry["scale"], entry["slack"]) for entry in entries]
    spent = Composition.of(noise).epsilon(envelope.delta)
    signed = envelope.cumulative_epsilon
    detail = f"{len(versions)} versions of base {envelope.base} together are ({spent:.4g}, {envelope.delta:g})"
    if not math.isclose(signed, spent, rel_tol=1e-6):
        detail += f"; the envelope says {signed:.4g}"
    # More was signed where a version was published with two contents: both were seen.
    if signed >= spent * (1 - _ROUNDING):
        return holds(name, detail, "records")
    return fails(name, detail, "records", "trust the larger; `streamtopic retrain`")


def _withdrawal(topic: ReleasesTopic, envelope: Envelope) -> Iterator[Finding]:
    """Yield whether versions that hold forgotten documents have left the log."""
    if not envelope.withdrawn:
        return
    name = "withdrawal"
    named = ", ".join(map(str, envelope.withdrawn))
    left = [str(version) for version in envelope.withdrawn if version in topic.standing]
    detail = f"withdrawn with it, since they hold forgotten documents or break their promise: {named}; "
    if left:
        detail += f"not yet erased: {', '.join(left)}"
        yield fails(name, detail, "log", "`streamtopic publish` erases them")
    else:
        yield holds(name, detail + "their bytes are tombstoned", "log")


def chain_finding(topic: ReleasesTopic) -> Finding:
    """Return whether each version in the log names the version before it as it is there."""
    name = "chain"
    broken = list[str]()
    gone = list[str]()
    for version, links in sorted(topic.links.items()):
        named = {link.previous for link in links} - {""}
        earlier = topic.links.get(version - 1, ())
        before = {link.digest for link in earlier}
        if named and not before:
            gone.append(str(version - 1))
        if before and not named <= before:
            broken.append(f"version {version} names another version {version - 1} than the one in the log")
    if broken:
        return fails(name, "; ".join(broken), "log", _RIVAL)
    own = topic.links[topic.wanted][0] if topic.wanted in topic.links else None
    if own is None or not own.commitment:
        return not_checked(name, _UNBOUND, "signed", _NEXT)
    detail = f"digest {own.digest}; each of {len(topic.links)} versions in the log names the one before by its digest"
    # The chain outlives what it names: a version that was compacted away is still known by its digest.
    if gone:
        detail += f"; not available any more, their digests are known from the chain: {', '.join(gone)}"
    return holds(name, detail, "log")


def named_finding(receipts: ChainSummary, topic: ReleasesTopic, records: Records) -> Finding:
    """Return whether receipts name the very bytes of their version.

    receipts: of the model's chain.
    topic: the versions in the log.
    records: version to its record in Redis.
    """
    name = "bound receipts"
    wrong = list[str]()
    alone = list[str]()
    gone = list[str]()
    for version, names in sorted(receipts.names.items()):
        record = records.get(version, {})
        recorded = str(record.get("digest", ""))
        known = topic.named(version) or {recorded} - {""}
        digests = {digest for digest, _ in names}
        if version in topic.links:
            signed = {(link.digest, link.commitment) for link in topic.links[version]}
            fits = names <= signed
        elif known:
            gone.append(str(version))
            fits = digests <= known
        else:
            # Nothing else names the version any more, so its receipts can only be held against each other.
            alone.append(str(version))
            fits = len(digests) == 1
        if not fits:
            wrong.append(str(version))
    if wrong:
        detail = f"receipts name other bytes, or other counts, than there are of version {', '.join(wrong)}"
        return fails(name, detail, "log", _RIVAL)
    detail = f"receipts of {len(receipts.names)} versions name their very bytes"
    if gone:
        detail += f"; not available any more, digest known from the chain: {', '.join(gone)}"
    if alone:
        detail += f"; not available any more, digest known from receipts alone: {', '.join(alone)}"
    if receipts.unbound:
        detail += f"; {receipts.unbound} receipts of an older program name a number only"
    return holds(name, detail, "log")


def reopened_finding(evidence: Record, proof: Proof, envelope: Envelope, key: Verifier) -> Finding:
    """Return whether the receipts in the file of a report are signed and name the version of the report.

    evidence: content of the file.
    proof, envelope: of the version, verified.
    key: verifies the receipts.
    """
    name = "bound"
    if not envelope.bound:
        return not_checked(name, _UNBOUND, "signed", _NEXT)
    try:
        problems = list(_problems(evidence, proof, envelope, key))
        listed = len(evidence["forgotten"]["receipts"])
    # Anybody may have written the file, so any part of it may be missing or of another type.
    except (KeyError, TypeError, AttributeError):
        problems, listed = ["the file does not list receipts in the form of this program"], 0
    if problems:
        return fails(name, "; ".join(problems[:3]), "signed", _FORGED)
    before = f"names version {envelope.parent} by its digest" if envelope.previous else "names no version before"
    detail = f"digest {proof.digest}; it {before}; {listed} receipts in the file are signed and name these very bytes"
    return holds(name, detail, "signed")


def _problems(evidence: Record, proof: Proof, envelope: Envelope, key: Verifier) -> Iterator[str]:
    """Yield how the file of a report contradicts the signed envelope or the signed receipts in it."""
    if evidence["proof"]["digest"] != proof.digest:
        yield "the digest in the file is not the digest of the signed bytes"
    for listed in evidence["forgotten"]["receipts"]:
        number = str(listed["sequence"])[:20]
        try:
            data = base64.b64decode(listed["signed"], validate=True)
            receipt = open_receipt(data, key)
        except (InvalidRelease, ValueError) as error:
            yield f"receipt {number} in the file: {error}"
            continue
        is_signed = listed["sequence"] == receipt.sequence and listed["sha256"] == digest_of(data)
        if not is_signed:
            yield f"receipt {number} in the file is not the one that was signed"
        of_version = receipt.model == envelope.model and receipt.version == envelope.version
        if not of_version:
            yield f"receipt {number} in the file is of another version"
        names_others = receipt.release != proof.digest or receipt.commitment != envelope.commitment
        # A receipt of an older program names its version by the number alone.
        if receipt.release and names_others:
            yield f"receipt {number} in the file names other bytes, or other counts, than this version"
