"""What can be checked about a version at once: its bytes, its numbers, and what Redis says of it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from streamtopic.privacy.accounting import Composition
from streamtopic.privacy.capacity import theorem_sigma
from streamtopic.release import Envelope, Payload
from streamtopic.service.evidence.finding import Finding
from streamtopic.service.evidence.sealed import Proof, Shelf

__all__ = ["check_release"]

Record = Mapping[str, Any]

_ROUNDING = 1e-9
_FLOAT32 = 2.0**-22
_COLUMN_ERROR = 1e-4  # float32, a thousand words and more a column
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
    "certificate": "certificate",
    "cumulative_epsilon": "cumulative_epsilon",
    "anchors": "anchors",
    "withdrawn": "withdrawn",
    "created": "created",
}
"""Fields of the release record, and of the envelope, that say the same."""


def check_release(
    shelf: Shelf,
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
        _signature(shelf, envelope, proof),
        _form(payload, envelope),
        _record(envelope, records.get(envelope.version)),
        *_certificate(envelope),
        _noise(payload, envelope, records.get(envelope.version, {})),
        *_conditions(envelope, records.get(envelope.version, {})),
        *_anchors(envelope, records.get(envelope.base)),
        _composition(envelope, records, ledger),
        *_withdrawal(shelf, envelope),
    )


def _signature(shelf: Shelf, envelope: Envelope, proof: Proof) -> Finding:
    name = "signature"
    if envelope.version in shelf.doubled:
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
        yield "shares that are none"
    if R is not None:
        rounding = _FLOAT32 * len(R) * max(1.0, float(np.linalg.norm(R)))
        if np.abs(R - R.T).max() > rounding or np.linalg.eigvalsh((R + R.T) / 2).min() < -rounding:
            yield "R not positive semidefinite"


def _record(envelope: Envelope, record: Record | None) -> Finding:
    """Whether what the service acts on is what it signed."""
    name = "record"
    if record is None:
        detail = f"Redis has no record of version {envelope.version}: it was set back"
        remedy = "the scheduler reads it back from the log before its next version"
        return Finding(name, None, detail, "records", remedy)
    differing = [ours for ours, theirs in _SAME.items() if ours in record and not _same(record[ours], envelope, theirs)]
    if not differing:
        return Finding(name, passed=True, detail="Redis says of it what the signed envelope says", source="records")
    detail = f"Redis differs from the signed envelope in {', '.join(differing)}"
    return Finding(
        name, passed=False, detail=detail, source="records", remedy="trust the envelope; `streamtopic retrain`"
    )


def _same(value: object, envelope: Envelope, name: str) -> bool:
    signed = getattr(envelope, name)
    return (
        list(value) == list(signed) if isinstance(value, Sequence) and not isinstance(value, str) else value == signed
    )


def _certificate(envelope: Envelope) -> Iterator[Finding]:
    """Whether the model before noise is as near to the exact one as the noise is made for."""
    if envelope.guarantee != "certified":
        return
    reached = envelope.certificate <= envelope.tolerance
    detail = (
        f"the model before noise lies within {envelope.certificate:.3g} of the exact one, "
        f"{'at most' if reached else 'more than'} the tolerance {envelope.tolerance:.3g} that the noise is made for"
    )
    yield Finding("certificate", reached, detail, "signed", "" if reached else "do not use it: `streamtopic retrain`")


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
    """Return why sigma is not the scale times how far apart two models may lie; None if it is, or cannot be told."""
    if payload.A is None:
        heads = [(head["sigma"], head["sensitivity"]) for head in (record.get("heads") or {}).values()]
        if not heads:
            return None
        mu = Composition.of((sigma / sensitivity, 0.0) for sigma, sensitivity in heads).mu
        return None if mu * envelope.scale <= 1 + _ROUNDING else "the noise of the heads is smaller than that"
    apart, scale = 2 * envelope.tolerance, envelope.scale
    if envelope.guarantee == "theorem":
        constants = record.get("constants") or {}
        if not constants.get("delta_A"):
            return None
        apart, scale = constants["delta_A"], theorem_sigma(1.0, constants["epsilon_each"], envelope.delta)
    if envelope.sigma >= apart * scale * (1 - _ROUNDING):
        return None
    return f"sigma is {envelope.sigma:.6g}, and should be {apart * scale:.6g} for models {apart:.3g} apart"


def _conditions(envelope: Envelope, record: Record) -> Iterator[Finding]:
    """Whether every condition of the paper's proof held; where one does not, the claim is not proved, nor refuted."""
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
    """Whether an update kept the anchor words of its base, as it must."""
    if envelope.kind != "unlearn":
        return
    name, lead = "anchors", f"the least lead of an anchor is {envelope.margin:.3g}"
    if base is None:
        detail = f"Redis has no record of the base, version {envelope.base}; {lead}"
        yield Finding(name, None, detail, "records", "compare with the base's own report, if you have one")
        return
    kept = tuple(base["anchors"]) == envelope.anchors
    detail = f"{'the' if kept else 'not the'} {len(envelope.anchors)} anchor words of the base, version {envelope.base}"
    yield Finding(name, kept, f"{detail}; {lead}", "records", "" if kept else "`streamtopic retrain` begins a new base")


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
    # More was signed where a version was published with two contents: both were seen.
    enough = signed >= spent * (1 - _ROUNDING)
    detail = (
        f"{len(versions)} versions of base {envelope.base} together are ({spent:.4g}, {envelope.delta:g})"
        f"{'' if math.isclose(signed, spent, rel_tol=1e-6) else f'; the envelope says {signed:.4g}'}"
    )
    return Finding(name, enough, detail, "records", "" if enough else "trust the larger; `streamtopic retrain`")


def _withdrawal(shelf: Shelf, envelope: Envelope) -> Iterator[Finding]:
    """Whether versions that hold what was forgotten have left the log."""
    if not envelope.withdrawn:
        return
    named = ", ".join(map(str, envelope.withdrawn))
    left = [version for version in envelope.withdrawn if version in shelf.standing]
    detail = f"withdrawn with it, for what they hold: {named}; "
    detail += f"not yet erased: {', '.join(map(str, left))}" if left else "their bytes are tombstoned"
    remedy = "`streamtopic publish` erases what is staged" if left else ""
    yield Finding("withdrawal", passed=not left, detail=detail, source="log", remedy=remedy)
