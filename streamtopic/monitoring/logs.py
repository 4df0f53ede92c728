"""What a service logs: every event with its name, and one line of JSON for each.

EVENTS     all names, each with its meaning
JsonLines  a formatter of the standard logging, for processes that nobody watches at a terminal
bound      an event of a role with what its process is known by

A line holds numbers, names that are written in this program, and the text of a message. Of an event whose text may
quote others, the text is left out: never an id, a word or a secret is in a line.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from streamtopic.security.concealing import conceal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EVENTS", "UNNAMED", "Event", "JsonLines", "bound"]

UNNAMED = "unnamed"
"""The event of a line of another package, which names none. Its text is left out, since it may quote anything."""

_PLAIN = frozenset(vars(logging.makeLogRecord({})))


@dataclass(frozen=True, slots=True)
class Event:
    """The meaning of an event. quotes: its text may quote others, so that JSON leaves it out."""

    meaning: str
    quotes: bool = False


EVENTS: Mapping[str, Event] = MappingProxyType(
    {
        # Told by the roles as they work, on standard output.
        "metrics": Event("The process answers at this address."),
        "serve": Event("The HTTP server answers at this address."),
        "partitions": Event("The process counts these partitions from now on."),
        "counted": Event("Records were counted, by outcome."),
        "staged": Event("A version was staged, for this reason, in so many seconds by stage."),
        "decided": Event("The scheduler decided something else than before, or withdrew versions."),
        "published": Event("Versions, receipts or records were published, or deletions said to have left no trace."),
        "requests": Event("Requests for deletions were paused, sent or completed, by number."),
        "waiting": Event("A server is away or refuses; the work begins again after so many seconds."),
        # Logged by the parts, on standard error.
        "partition_taken": Event("This process took ownership of a partition."),
        "partition_given_up": Event("This process gave up ownership of a partition, as its group asked."),
        "partition_taken_over": Event("Another process had taken over a partition of this one, which notices it now."),
        "group_left": Event("The consumer group was left after an error; it is joined again."),
        "partitions_unowned": Event("The consumer group forgot to share out partitions; it is joined again."),
        "redis_set_back": Event("Redis holds less of a partition than was committed; records are counted again."),
        "changes_refused": Event("Refused changes removed the documents of their ids."),
        "request_refused": Event("A record of the requests topic is no request, and changes nothing."),
        "requests_full": Event("As many requests for deletions are open as may be; others wait in their topic."),
        "suppressions_restored": Event("Suppressions were written over or lost in their topic, and are written again."),
        "deletes_missed": Event("Documents are deleted whose deletes had left the log."),
        "changes_cleared": Event("The changes of a partition hold no deleted document any more."),
        "counts_written": Event("The co-occurrence counts in Redis were rewritten."),
        "version_remark": Event("A version has a remark; `streamtopic status` shows it.", quotes=True),
        "self_check_failed": Event("An update was not borne out by the service's own check, and is not published."),
        "release_refused": Event("A subscriber refused a release.", quotes=True),
        "model_stale": Event("A subscriber's model may be out of date."),
        "record_passed_over": Event("A record of the releases topic is passed over.", quotes=True),
        "witness_failed": Event("A witness does not sign the ledger.", quotes=True),
        "witness_signs": Event("A witness signs the ledger again."),
        "links_destroyed": Event("Keys were destroyed that tied receipts to request ids."),
        "clock_behind": Event("The ledger is of a later time than this machine's clock says."),
        "rewrite_interrupted": Event("Redis was restarted before it had rewritten its append-only file."),
        "rewrite_failed": Event("Redis could not rewrite its append-only file."),
        "rewrite_refused": Event("Redis refuses to rewrite its append-only file; rewrite it by hand, and attest it."),
        "files_closed": Event("Files of an instance were open to other users of the machine, and are closed now."),
        "requests_paused": Event("The brake paused requests for deletions; they wait for approval."),
        "requests_lost": Event("Requests for deletions had lost the ids of their documents, and were cancelled."),
        "serve_refused": Event("The HTTP server refused a wrong token."),
        "serve_requested": Event("The HTTP server took a request for a deletion in."),
        "serve_failed": Event("A page of the HTTP server failed unexpectedly."),
        "duration": Event("A step of the library with `verbose`, and how long it took."),
        "compiling": Event("Code is compiled for this machine, once; the library alone says so."),
        "kafka_retried": Event("A call to Kafka failed and is tried again."),
    }
)
"""Names that scripts and alerts may rely on."""


class JsonLines(logging.Formatter):
    """Writes a record as one line of JSON. process: the fields of every line, such as model and role."""

    def __init__(self, process: Mapping[str, str]) -> None:
        super().__init__()
        self._process = dict(process)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        name = getattr(record, "event", UNNAMED)
        event = EVENTS.get(name)
        fields: dict[str, Any] = {"event": name if event else UNNAMED, "level": record.levelname.lower()}
        fields |= bound(self._process, record.created)
        if event is not None:
            fields |= {key: value for key, value in vars(record).items() if key not in _PLAIN and _number(value)}
            fields["message"] = event.meaning if event.quotes else conceal(record.getMessage())
        else:
            fields["logger"] = record.name
        if record.exc_info and record.exc_info[0] is not None:
            # The kind alone: a traceback quotes whatever was in hand.
            fields["error"] = record.exc_info[0].__name__
        return json.dumps(fields).replace("\x7f", "\\u007f")


def bound(process: Mapping[str, str], time: float) -> dict[str, str]:
    """Return what every line has besides its event: the time, seconds since 1970, and what names the process."""
    return {"time": datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds"), **process}


def _number(value: object) -> bool:
    return isinstance(value, int | float)
