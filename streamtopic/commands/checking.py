"""Commands that check the promise: `verify` repeats the work or checks a file, `audit` attacks the noise."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import (
    answer,
    command,
    file_errors,
    open_instance,
    option,
    read_corpus,
    settings_of,
    uses_instance,
    verifier_of,
    whole_number,
)
from streamtopic.console import aligned, instant, number_of, progress, table_of
from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streamtopic.audit.attack import AuditResult
    from streamtopic.counts import Counts
    from streamtopic.documents.events import Passages
    from streamtopic.service.verify import Finding
    from streamtopic.settings import Settings
    from streamtopic.signed import Receipt, RequestReceipt
    from streamtopic.state import DocumentCounts
    from streamtopic.topics.learner_options import LearnerOptions

__all__ = ["COMMANDS", "finding_lines"]


@command(
    option(
        "FILE",
        "check this proof with the public key alone: of `receipt --proof`, `export` or `delete-model`",
        nargs="?",
    ),
    option("--number N", "which version to make again and check (default: the newest)", type=whole_number(1)),
    option("--strict", "status 1 also if a check could not be made"),
    option("--key KEY", "FILE: signing.pub, or its text (default: that of the setting keys)"),
    option("--key-list FILE", "FILE: keys.list, with root.pub as the key"),
    option("--document ID", "FILE: the document that a receipt must be about; with --salt"),
    option("--salt SALT", "FILE: salt that the delete was sent with"),
)
def _verify(args: argparse.Namespace) -> int:
    """Count the log again, learn again and compare, or check a proof: of a receipt, a version, the end of a model.

    Status 1 if a check failed, with --strict also if one could not be made.
    """
    if args.file is not None:
        return _verify_file(args)
    from streamtopic.service.assembly import modeller_of, reader_of
    from streamtopic.service.verify import as_json, passed, verify_instance

    with open_instance(args) as service, progress("verifying", "records", quiet=args.json) as update:
        service.ledger.catch_up()
        model, version = service.settings.model, args.number or service.ledger.ledger.newest or None
        findings = verify_instance(service, reader_of(service), modeller_of(service), update, version)
    fine = passed(findings)
    complete = all(finding.passed is not None for finding in findings)
    told = {"passed": fine, "complete": complete, "model": model, "version": version, "checks": as_json(findings)}
    answer(args, told, *finding_lines(findings))
    return 0 if fine and (complete or not args.strict) else 1


def _verify_file(args: argparse.Namespace) -> int:
    """Check a file with a public key alone. Raises InvalidRelease if it proves nothing."""
    from streamtopic.client import verify_receipt
    from streamtopic.signed import End, Envelope, LedgerProof

    if args.number is not None or args.strict:
        raise UsageError("a file is checked by itself: leave --number and --strict out")
    keys = verifier_of(args)
    with file_errors("read", args.file):
        text = args.file.read_text(encoding="utf-8", errors="replace")
    proof = LedgerProof.parse(text)
    entry = proof.verify(keys).entry
    if isinstance(entry, End | Envelope) and args.document is None:
        facts = {"model": keys.model, "index": proof.index, **dataclasses.asdict(entry)}
        if isinstance(entry, Envelope):
            return _verify_version(args, facts)
        line = f"ok    model {keys.model} was deleted at {instant(entry.made)}"
    else:
        receipt = verify_receipt(text, keys, document=args.document, salt=args.salt)
        facts = {"id": receipt.id, **dataclasses.asdict(receipt)}
        line = f"ok    {_said_by(receipt, args.document)}"
    return answer(args, {"passed": True, **facts}, line, _SIGNED, *aligned(facts))


_SIGNED = "ok    so says the holder of the key"


def _said_by(receipt: Receipt | RequestReceipt, document: str | None) -> str:
    """Return the promise of a receipt, in words."""
    from streamtopic.signed import RequestReceipt

    about = "its document" if document is None else f"document {document}"
    if isinstance(receipt, RequestReceipt):
        if not receipt.documents:
            return "the request found no document"
        about = f"any of {number_of(receipt.documents, 'document')} of the request"
    return f"version {receipt.version} is the first without {about}"


def _verify_version(args: argparse.Namespace, facts: dict[str, Any]) -> int:
    """Tell the facts of a version; status 1 if the model next to the proof is another one."""
    model = args.file.with_suffix("")
    same = None
    lines = [f"ok    the ledger has version {facts['version']} of {facts['model']}", _SIGNED]
    if model != args.file and model.is_file():
        with file_errors("read", model), model.open("rb") as data:
            same = hashlib.file_digest(data, "sha256").hexdigest() == facts["release"]
        lines.append(f"{SHOWN[same]}  {model.name} is {'' if same else 'not '}this version")
    answer(args, {"passed": same is not False, "file": same, **facts}, *lines, *aligned(facts))
    return 1 if same is False else 0


@command(
    option("--documents FILE", "JSON lines, gzip too (default: the instance's, or docstrings)"),
    option("--draws N", "releases drawn of either kind (default: 4000 or more)"),
    option("--seed N", "seed of random draws (default: 0)", default=0),
)
def _audit(args: argparse.Namespace) -> int:
    """Try to tell unlearned from retrained versions: a lower bound on epsilon.

    Status 1 if the audit told more than is claimed, or missed a fault that was built in.
    """
    start = time.perf_counter()
    settings = settings_of(args)
    from streamtopic.audit.attack import AuditPlan, audit
    from streamtopic.privacy.noise import CalibratedGuarantee
    from streamtopic.service.assembly import learner_options

    guarantee = CalibratedGuarantee(settings.epsilon, settings.delta, settings.tolerance)
    plan = AuditPlan(draws=args.draws, seed=args.seed)
    # Too few draws are refused now, not after the minutes that counting and learning take.
    plan.enough(guarantee)
    counts = _audit_counts(args, settings)
    with progress("auditing", "steps", quiet=args.json) as update:
        found = audit(counts, learner_options(settings), guarantee, plan, update)
    told = found.as_json() | {"seconds": round(time.perf_counter() - start, 1)}
    answer(args, told, block=_audit_text(found))
    return 0 if found.passed else 1


def _audit_counts(args: argparse.Namespace, settings: Settings) -> Counts:
    """Return the counts to attack: of an instance, of a file, or of docstrings."""
    from streamtopic.service.assembly import learner_options, reader_of
    from streamtopic.service.verify.recount import recount

    options = learner_options(settings)
    if uses_instance(args, settings):
        with open_instance(args) as service:
            return reader_of(service).read(partial(_near_vocabulary, options=options))
    documents = read_corpus(args).documents
    with progress("counting", "documents", quiet=args.json) as update:

        def counted() -> Iterator[Passages]:
            for number, document in enumerate(documents):
                update(number, len(documents))
                yield document.passages

        return recount(counted(), options.weighting)


def _near_vocabulary(counts: DocumentCounts, *, options: LearnerOptions) -> Counts:
    """Return the counts of all words that are in the vocabulary or within ten documents of it."""
    import numpy as np

    from streamtopic.counts import Counts
    from streamtopic.topics.learner import thresholds

    limits = thresholds(max(counts.documents, 1), options)
    # An audit deletes a few documents, so only words this near to a threshold can cross it.
    near = (counts.frequency >= limits.least - 10) & (counts.frequency <= limits.most + 10)
    keep = np.flatnonzero(near)
    return Counts([counts.words[k] for k in keep.tolist()], counts.restrict(keep))


def _audit_text(found: AuditResult) -> str:
    from streamtopic.audit.attack import CONFIDENCE

    told = found.as_json()
    shown = ("name", "claim", "epsilon_lower", "distinguisher", "draws", "within")
    blocks = [
        "\n".join(aligned(told["model"] | told["claim"])),
        table_of(told["documents"], "name", "reason", "moved", "gap", "different", "kept"),
        f"What could be told apart, in epsilon, with {CONFIDENCE:.0%} confidence for all together:",
        table_of(told["games"], *shown),
        "Faults built in, which must be found (not within their claim):",
        table_of(told["controls"], *shown),
        _audit_verdict(found),
    ]
    return "\n\n".join(blocks)


def _audit_verdict(found: AuditResult) -> str:
    if found.passed:
        most = max(played.finding.bound / played.claim for played in found.games)
        return f"passed: no more than {most:.0%} of a claim was shown, and every fault built in was found"
    problems = []
    if found.different:
        problems.append(f"published without noise and different: {', '.join(found.different)}")
    exceeded = [played for played in found.games if not played.within]
    problems += [f"{one.name}: {one.finding.bound:.3g} shown, {one.claim:.3g} claimed" for one in exceeded]
    problems += [f"not found although built in: {name}" for name in found.missed]
    return "FAILED: " + "; ".join(problems)


SHOWN = {True: "ok  ", False: "FAIL", None: "-   "}


def finding_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield findings as a person reads them, with the remedy of each that did not pass."""
    for finding in findings:
        yield f"{SHOWN[finding.passed]}  {finding.name}: {finding.detail}"
        if finding.remedy:
            yield f"        {finding.remedy}"


COMMANDS = (_verify, _audit)
