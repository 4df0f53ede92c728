"""`add`, `delete`, `unlearn` and `lift`: change an instance's documents, or ask for a model.

Documents are changed by events in the log. If no other process runs the instance, these commands bring its model up
to date as well.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamtopic.commands.common_arguments import (
    answer,
    command,
    confirm,
    file_errors,
    instance_settings,
    load_documents,
    open_instance,
    option,
    settle,
)
from streamtopic.console import number_of, progress, say, warn
from streamtopic.errors import StreamtopicError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamtopic.commands.common_arguments import Option
    from streamtopic.service.leading import SettleReport
    from streamtopic.service.opened import Opened

__all__ = ["COMMANDS"]

_HOW = (
    "`streamtopic receipt REQUEST --salt SALT` shows the receipts of a request; `--proof FILE.tlog-proof` writes one "
    "to a file, which `streamtopic verify` checks without this service"
)


_FROM = option(
    "--from FILE", "a file of document ids, or of subjects after `--subject`, one a line (- for stdin)", dest="source"
)


def _subject(does: str) -> Option:
    """Return the argument that names people, on the command line or in a file."""
    said = f"{does} (may be repeated); without ID: the lines of --from, so that no list of processes shows a name"
    return option("--subject ID", said, action="append", nargs="?", default=[])


@command(option("FILE", 'lines such as {"id": "a", "text": "words"}; gzip too', nargs="+"))
def _add(args: argparse.Namespace) -> int:
    """Add documents of files of JSON lines.

    The model is brought up to date afterwards unless another process is doing so; so it is by `delete` and `lift`.
    """
    from streamtopic.service.opened import opened
    from streamtopic.service.sending import add

    settings = instance_settings(args, must_exist=False)
    # All files are read before anything is sent: one that cannot be read leaves the instance as it was.
    corpora = [load_documents(path) for path in args.file]
    documents = [document for corpus in corpora for document in corpus.documents]
    if not documents:
        raise UsageError("nothing to add: the files have no document; the lines that were skipped are named above")
    skipped = sum(len(corpus.problems) for corpus in corpora)
    with opened(settings) as service:
        with progress("adding", "documents", quiet=args.json) as update:
            refused = add(service, documents, update)
        for document, reason in refused:
            warn(f"document {document}: {reason}; skipped")
        report = {"sent": len(documents) - len(refused), "skipped": skipped + len(refused)}
        return _finish(service, report, args)


@command(
    option("ID", "document ids", nargs="*"),
    _FROM,
    option(
        "--label TASK=CLASS", "all documents that carry this label now, in one request; their number is shown first"
    ),
    option("--yes", "label: do not ask whether to delete so many documents"),
    _subject("forget a person: all documents that were added with this subject"),
    option("--suppress", "and refuse documents under these ids, or about these subjects, until `streamtopic lift`"),
)
def _delete(args: argparse.Namespace) -> int:
    """Delete documents by id, by label, or all documents of a subject.

    If a hold or a brake is set, requests are made in place of events.
    """
    from streamtopic.service.opened import opened
    from streamtopic.service.requests.request_door import guarded_by
    from streamtopic.service.sending import check_deletable, delete, suppress

    settings = instance_settings(args)
    ids, subjects = _named(args.id, args)
    if not ids and not subjects and args.label is None:
        raise UsageError(
            "which documents? give ids, a file of ids with --from FILE, --label TASK=CLASS, or --subject ID"
        )
    if args.label is not None and (ids or subjects):
        raise UsageError("--label makes a request of its own: name ids and subjects in another command")
    with opened(settings) as service:
        if args.label is not None:
            ids = _labelled(service, args)
        # All of them: a wrong name must not leave deletions behind whose requests nobody was told.
        check_deletable(ids, subjects)
        _warn_of_nobody(service, subjects)
        guarded = guarded_by(settings)
        if args.suppress:
            # Before the deletes: nothing can slip in between.
            suppress(service, ids, subjects)
        # Single ids of the command line are deletes, which always apply; all else is a request.
        lists = args.label is not None or (args.source is not None and None not in args.subject)
        direct, asked = ([], ids) if guarded or lists else (ids, [])
        made = [_made(one, one.salt, [name]) for one, name in zip(delete(service, direct), direct, strict=True)]
        made += _ask(service, asked, subjects)
        if not args.json:
            if guarded:
                number = number_of(len(ids) + len(subjects), "deletion")
                say(f"asked for {number}; `streamtopic deletions list` shows where they stand:")
            _say_requests(made)
        return _finish(service, {"sent": len(made), "requests": made}, args)


def _made(name: str, salt: str, documents: Sequence[str], subject: str | None = None) -> dict[str, Any]:
    """Return a request that was made, as JSON shows it. Receipts are found by its id and salt."""
    return {"id": name, "salt": salt, "documents": documents, "subject": subject}


def _say_requests(made: Sequence[Mapping[str, Any]]) -> None:
    """Print which request is whose: receipts are asked for by them, perhaps years later."""
    for one in made:
        documents, subject = one["documents"], one["subject"]
        about = f"document {documents[0]}" if len(documents) == 1 else number_of(len(documents), "document")
        about = about if subject is None else f"subject {subject}"
        say(f"{about}: request {one['id']}, salt {one['salt']}")
    say(_HOW)


def _labelled(service: Opened, args: argparse.Namespace) -> list[str]:
    """Return the documents of `--label`, once somebody has confirmed their number. Raises UsageError."""
    from streamtopic.service.assembly import reader_of
    from streamtopic.service.requests.request_door import documents_with_label

    task, equals, name = args.label.partition("=")
    if not task or not equals or not name:
        raise UsageError(f"--label {args.label}: expected TASK=CLASS, such as section=sport")
    ids = documents_with_label(reader_of(service), task, name)
    confirm(args, f"this deletes {number_of(len(ids), 'document')} with the label {args.label}", "yes")
    return ids


def _ask(service: Opened, ids: Sequence[str], subjects: Sequence[str]) -> list[dict[str, Any]]:
    """Make requests for deletions: one for each person, and one for each list of documents."""
    from streamtopic.documents.deletion_record import MOST_DOCUMENTS
    from streamtopic.service.requests.request_door import RequestDoor

    wanted: list[tuple[Sequence[str], str | None]] = [((), subject) for subject in subjects]
    wanted += [(ids[start : start + MOST_DOCUMENTS], None) for start in range(0, len(ids), MOST_DOCUMENTS)]
    door = RequestDoor(service)
    made: list[dict[str, Any]] = []
    try:
        for documents, subject in wanted:
            one = door.receive(documents, subjects=() if subject is None else (subject,))
            made.append(_made(one.request.id, one.salt, documents, subject))
    except StreamtopicError:
        # Those that were made go on: nobody could cancel a request without its name.
        for before in made:
            warn(f"request {before['id']}, salt {before['salt']}, was made; the next one failed")
        raise
    return made


def _named(ids: Sequence[str], args: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the documents and the subjects that the arguments name, each once. Raises UsageError.

    ids: documents of the command line.
    """
    if None in args.subject and args.source is None:
        raise UsageError("--subject needs a name: --subject ID, or --subject --from FILE for a file of names")
    lines = _read_ids(args.source) if args.source else []
    subjects = [subject for subject in args.subject if subject is not None]
    # An id that is named twice is one deletion: two would be two requests, the second for no document.
    if None in args.subject:
        return list(dict.fromkeys(ids)), list(dict.fromkeys([*subjects, *lines]))
    return list(dict.fromkeys([*ids, *lines])), list(dict.fromkeys(subjects))


def _read_ids(path: Path) -> list[str]:
    """Return the ids in a file, one a line. Raises UsageError for a file that cannot be read."""
    try:
        with file_errors("read", path):
            content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
            # With the mark that Windows programs put in front: left there, the first id would be of no document.
            text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8: expected one id a line") from None
    # Only line ends part lines: other separators, such as a form feed, may stand within an id.
    return [line.strip() for line in re.split(r"\r\n|\n|\r", text) if line.strip()]


def _finish(service: Opened, report: dict[str, Any], args: argparse.Namespace) -> int:
    """Settle the instance, unless another process runs it, and print the outcome.

    report: fields of the JSON object that are known already, `sent` among them.
    """
    sent = number_of(report["sent"], "event")
    # To settle is to take ownership of every partition, which the process that runs the instance has.
    if not service.leads:
        return answer(args, report | {"running": True}, f"{sent} sent to the running service")
    settled = settle(service, args)
    outcomes = [f"{count} {name.replace('_', ' ')}" for name, count in settled.ingested.items() if count]
    told = f"{sent} sent: {', '.join(outcomes) or 'nothing changed'}"
    return answer(args, report | asdict(settled), told, *_version_lines(settled))


def _version_lines(settled: SettleReport) -> list[str]:
    """Return a line for each version that was made, and one for the last decision with its reason."""
    made = [
        f"version {one['version']} published: {one['kind']}, {one['documents']} documents" for one in settled.versions
    ]
    return [*made, f"last decision: {settled.decision}"]


def _warn_of_nobody(service: Opened, subjects: Sequence[str]) -> None:
    """Warn of each subject that no counted document has: a receipt for no document would look like a success."""
    from streamtopic.state.deletions import SubjectIndex

    settings = service.settings
    found = SubjectIndex(service.connection, settings.model, settings.partitions).count(subjects)
    for subject in subjects:
        if not found[subject]:
            warn(
                f"no document that is counted has the subject {subject}: only documents that come before the request "
                "is done are deleted; subjects are compared byte by byte"
            )


@command(option("--retrain", "one that is learned from the counts alone, with an empty forget set"))
def _unlearn(args: argparse.Namespace) -> int:
    """Ask for a version without the documents deleted since the last one.

    On an instance that nobody runs it is made at once.
    """
    kind = "retrain" if args.retrain else "unlearn"
    with open_instance(args) as service:
        # Noted in Redis first: if this process is killed, the next one that decides acts on it.
        service.state.request(kind)
        if service.leads:
            settled = settle(service, args)
            return answer(args, {"requested": kind} | asdict(settled), *_version_lines(settled))
    asked = f"asked for: {kind}; `streamtopic versions` shows the new version, `streamtopic status` why there is none"
    return answer(args, {"requested": kind, "running": True}, asked)


@command(
    option("--id ID", "id of a document (may be repeated)", action="append", default=[]),
    _subject("a person"),
    _FROM,
)
def _lift(args: argparse.Namespace) -> int:
    """Take documents that `delete --suppress` keeps out again."""
    from streamtopic.service.opened import opened
    from streamtopic.service.sending import suppress

    settings = instance_settings(args)
    ids, subjects = _named(args.id, args)
    if not ids and not subjects:
        raise UsageError("whom? give --id ID, --subject ID, or a file of ids with --from FILE, to lift")
    with opened(settings) as service:
        named = suppress(service, ids, subjects, suppressed=False)
        return _finish(service, {"sent": named}, args)


COMMANDS = (_add, _delete, _unlearn, _lift)
