"""Checks of one version that do not count or learn again: its bytes, its numbers, its noise, the log around it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamtopic.errors import CheckFailed, UsageError
from streamtopic.paper.capacity_formulas import theorem_sigma
from streamtopic.privacy.accounting import Composition
from streamtopic.service.verify.finding import Finding, doubt, fails, holds
from streamtopic.signed import LedgerProof, Refused, Release, ReleaseReader, line_of
from streamtopic.signed.releases_topic import PROOF, SentRelease, sent_releases

if TYPE_CHECKING:
    from streamtopic.service.verify.finding import Sources
    from streamtopic.service.verify.ledger_checks import WholeLedger
    from streamtopic.signed import Envelope, Payload

__all__ = ["InLog", "Waiting", "entry_facts", "plain", "read_waiting", "release_findings", "version_in_log"]

Record = Mapping[str, Any]
"""What Redis keeps of a version besides its release."""

_UNUSABLE = "do not use this version: `streamtopic unlearn --retrain`"
_STILL_THERE = "`streamtopic run` erases them; if they come again, see who may write to the releases topic"

# Of a few double precision operations on the way from scale to epsilon and back.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class InLog:
    """A version that verifies, and what else log and Redis hold of it.

    release: the version.
    size: of its bytes.
    standing: versions of which a part is in the releases topic.
    whole: the ledger.
    record: of the version in Redis; empty if Redis was set back to before it.
    refuted: whether it failed the service's own check.
    """

    release: Release
    size: int
    standing: frozenset[int]
    whole: WholeLedger
    record: Record = field(default_factory=dict)
    refuted: bool = False

    @property
    def envelope(self) -> Envelope:
        """The facts of the version."""
        return self.release.envelope


def version_in_log(sources: Sources, whole: WholeLedger, version: int) -> InLog:
    """Return a version from the log, which is read up to its end.

    whole: the ledger.

    Raises UsageError if there is no such version to examine, CheckFailed if its bytes are not as the ledger says,
    ComponentUnreachable.
    """
    found: Release | None = None
    refused = ""
    for news in ReleaseReader(whole.ledger).read(sources.log):
        if news.version != version:
            continue
        if isinstance(news, Refused):
            refused = str(news.reason)
        else:
            found = news
    records = dict(sources.state.releases())
    # First, since nobody should use a withdrawn version, whether or not its bytes are still in the log.
    if version in whole.ledger.withdrawn or version in sources.state.withdrawn():
        raise UsageError(f"version {version} is withdrawn: it holds documents deleted since; report on a later one")
    sent = sent_releases(sources.log, sources.model)
    # The same bytes may have been sent again after a tombstone.
    if found is None or version not in sent or not sent[version].complete:
        aged = version in whole.versions and version not in sent and version < whole.newest
        raise _missing(version, whole, records, refused, aged=aged)
    record, refuted = records.get(version, {}), version in sources.refuted
    # A single chunk may hold words of forgotten documents.
    standing = frozenset(number for number, one in sent.items() if _has_chunks(one))
    return InLog(found, len(found.data()), standing, whole, record, refuted)


def _has_chunks(sent: SentRelease) -> bool:
    return any(PROOF not in key for key in sent.keys)


def _missing(version: int, whole: WholeLedger, records: Mapping[int, Record], refused: str, *, aged: bool) -> Exception:
    """Return why a version cannot be examined."""
    if aged and not refused:
        return UsageError(f"version {version} was erased, as for its age (`keep_versions`): report on a later one")
    if version in whole.versions:
        reason = refused or "they are missing, and nobody has withdrawn it"
        return CheckFailed(
            f"the bytes of version {version} in the log are not those that the ledger names: {reason}; see who may "
            "write to the releases topic"
        )
    if version in records:
        return UsageError(f"version {version} is made but not in the log: `streamtopic status` says what is waiting")
    return UsageError(f"there is no version {version}: `streamtopic versions` lists them")


def release_findings(known: InLog) -> Iterator[Finding]:
    """Yield the checks of a version against its own bytes, the ledger, and the other versions in the log."""
    envelope, payload = known.envelope, known.release.payload
    yield _bytes(known)
    yield _noise(payload, envelope, known.record)
    yield from _conditions(envelope, known.record)
    yield _composition(envelope, known.whole)
    yield from _withdrawal(known)
    yield from _self_check(known)


def _bytes(known: InLog) -> Finding:
    """Say which bytes these are: only bytes that the ledger names, and that make a model, are read as a version."""
    index, envelope = LedgerProof.parse(known.release.proof).index, known.envelope
    topics = "topics are withheld" if known.release.payload.A is None else f"{envelope.r} topics"
    detail = f"{known.size} bytes of SHA-256 {known.release.digest}, as entry {index} of the ledger says"
    return holds("release", f"{detail}: a model of {envelope.n} words, {topics}")


def _noise(payload: Payload, envelope: Envelope, record: Record) -> Finding:
    """Whether the noise is as large as the claim needs (analytic Gaussian mechanism)."""
    name, scale, delta = "noise", envelope.scale, envelope.delta
    if not _noised(envelope):
        return fails(name, f"its scale is {scale:g} and its slack {envelope.slack:g}: that is no noise", _UNUSABLE)
    spent = Composition.of([(scale, envelope.slack)]).epsilon(delta)
    detail = f"of {scale:.6g} times the distance that two models may have, it makes ({spent:.6g}, {delta:g})"
    detail += f"; ({envelope.epsilon:g}, {delta:g}) is claimed"
    problem = _smaller_than_said(payload, envelope, record)
    if not spent <= envelope.epsilon * (1 + _ROUNDING):
        problem = "the claim is smaller than that"
    return holds(name, detail) if problem is None else fails(name, f"{detail}; {problem}", _UNUSABLE)


def _noised(envelope: Envelope) -> bool:
    return envelope.scale > 0 and envelope.slack >= 0


def _smaller_than_said(payload: Payload, envelope: Envelope, record: Record) -> str | None:
    """Return why sigma is smaller than the scale times the distance of two models, None if it is not or is unknown."""
    # A record that was made from the ledger has neither the noise of each head nor the constants of the paper.
    if payload.A is None:
        heads = (record.get("heads") or {}).values()
        # Each head has its own noise, and all of them together must be enough.
        mu = Composition.of([(head["sigma"] / head["sensitivity"], 0.0) for head in heads]).mu
        return "the noise of the heads is smaller than that" if mu * envelope.scale > 1 + _ROUNDING else None
    apart, scale = 2 * envelope.tolerance, envelope.scale
    if envelope.guarantee == "theorem":
        constants = record.get("constants") or {}
        if not constants.get("delta_A"):
            return None
        apart = constants["delta_A"]
        scale = theorem_sigma(1.0, constants["epsilon_each"], envelope.delta)
    needed = apart * scale
    if envelope.sigma >= needed * (1 - _ROUNDING):
        return None
    return f"sigma is {envelope.sigma:.6g}, and should be {needed:.6g} for models {apart:.3g} apart"


def _conditions(envelope: Envelope, record: Record) -> Iterator[Finding]:
    """Yield whether every condition of the paper's proof held."""
    name = "conditions"
    if envelope.covered:
        yield holds(name, "every condition of the paper's proof held")
    elif envelope.covered is False:
        checks = record.get("checks") or []
        failing = sum(not check["holds"] for check in checks)
        many = f"{failing} of {len(checks)}" if checks else "some"
        detail = f"{many} conditions of the paper's proof do not hold, so its promise is not proved for this version"
        # Not a failure: without its conditions the claim is neither proved nor refuted.
        yield doubt(name, detail, "the certified mode (setting `guarantee`) rests on no such condition")


def _composition(envelope: Envelope, whole: WholeLedger) -> Finding:
    """Whether all versions of the base add up to the epsilon that the version says."""
    name = "composition"
    # Withdrawn versions as well: they were seen, so their epsilon is spent.
    versions = [one for one in whole.versions.values() if one.base == envelope.base and one.version <= envelope.version]
    noise = [(one.scale, one.slack) for one in versions if _noised(one)]
    what = f"{len(versions)} versions of base {envelope.base}"
    if envelope.guarantee == "private":
        # Each version's noise is that of its whole period.
        before = [one for one in whole.versions.values() if one.version <= envelope.version]
        periods = {one.base: (one.scale, one.slack) for one in before if one.guarantee == "private" and _noised(one)}
        noise, what = list(periods.values()), f"{len(periods)} periods"
    spent = Composition.of(noise).epsilon(envelope.delta)
    said = envelope.cumulative_epsilon
    detail = f"{what} together are ({spent:.4g}, {envelope.delta:g})"
    if not math.isclose(said, spent, rel_tol=1e-6):
        detail += f"; the version says {said:.4g}"
    if said >= spent * (1 - _ROUNDING):
        return holds(name, detail)
    return fails(name, detail, "trust the larger; `streamtopic unlearn --retrain`")


def _withdrawal(known: InLog) -> Iterator[Finding]:
    """Yield whether the bytes of versions that hold forgotten documents have left the log."""
    withdrawn = known.whole.ledger.withdrawn
    if not withdrawn:
        return
    name, left = "withdrawal", sorted(withdrawn & known.standing)
    detail = f"versions withdrawn, since they hold forgotten documents or break their promise: {len(withdrawn)}"
    if left:
        yield fails(name, f"{detail}; not yet erased: {', '.join(map(str, left))}", _STILL_THERE)
    else:
        yield holds(name, f"{detail}; their bytes are tombstoned")


def _self_check(known: InLog) -> Iterator[Finding]:
    """Yield the outcome of the service's own check of a version, if there was one."""
    name, found = "self check", known.record.get("self_check") or {}
    # A version may be refuted later than its record was written, by the check of an update that was made from it.
    if known.refuted:
        detail = "an update made from this version did not fit the counts, and this one was not checked before"
        yield fails(name, detail, "do not use it: the next version, learned from the counts, withdraws it")
    elif found.get("passed"):
        yield holds(name, f"before it was published: {found['detail']}")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Deletions without a receipt yet.

    deletions: how many.
    held: deleted documents that the version still holds; None if this cannot be known any more.
    oldest: time of the oldest deletion, milliseconds since 1970; None if there is no deletion.
    lag: records of the documents topic that are not counted yet; they may be deletions too.
    """

    deletions: int
    held: int | None
    oldest: int | None
    lag: int

    def finding(self, version: int) -> Finding:
        """Return whether the version holds documents that are deleted by now."""
        name = "deletions"
        if self.held is None:
            detail = "documents were moved to other partitions since: the version may hold each that is deleted"
            return doubt(name, detail, "take a version that was made later")
        if self.held:
            # Not a failure: until `max_forget_lag` is over the service may wait for more deletions.
            detail = f"version {version} holds {self.held} documents that are deleted by now; a version without is due"
            return doubt(name, detail, "`streamtopic unlearn` makes it now")
        detail = "no document that is deleted by now is in this version"
        if self.lag:
            detail += f"; {self.lag} records are not counted yet, which may delete more"
        return holds(name, detail)


def read_waiting(sources: Sources, envelope: Envelope) -> Waiting:
    """Return the deletions that wait. envelope: of the version. Raises ComponentUnreachable."""
    cut = sources.cut(envelope)
    received = list[int]()
    held = lag = 0
    for partition, meta in sources.reader.positions().items():
        lag += sources.log.end(sources.names.documents, partition) - meta.next_offset
        reflected = cut.get(partition, 0)
        for forget in sources.reader.forgets(partition).each():
            # A document that another record replaced is forgotten as well, but nobody asked for a receipt.
            if forget.wants_receipt:
                received.append(forget.received_ms)
            # The version holds a document that came before its cut and was deleted after it.
            held += forget.found and forget.offset >= reflected > forget.document_offset
    return Waiting(len(received), held if cut else None, min(received, default=None), lag)


def entry_facts(envelope: Envelope) -> dict[str, Any]:
    """Return the facts of a version as JSON values, as its line in the ledger has them."""
    found: dict[str, Any] = json.loads(line_of(envelope))
    return found


def plain(value: object) -> Any:  # noqa: ANN401 -- whatever JSON has
    """Return a value as JSON has it: lists, maps with text keys, None for infinities and NaN.

    Any other value becomes its text.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float):
        # Python would write Infinity and NaN, which other readers of JSON refuse.
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
