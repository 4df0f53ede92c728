"""What a service logs: every event with its name, and one line of JSON for each.

EVENTS     all names, each with its meaning
JsonLines  a formatter of the standard logging, for where nobody watches at a terminal
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
        "dashboard": Event("The dashboard answers at this address."),
        "gateway": Event("The gateway answers at this address."),
        "partitions": Event("The process counts these partitions from now on."),
        "counted": Event("Records were counted, by outcome."),
        "staged": Event("A version was staged, for this reason, in so many seconds by stage."),
        "decided": Event("The scheduler decided something else than before, or withdrew versions."),
        "published": Event("Records, receipts or a completion were published."),
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
        "subject_forgotten": Event("No document of a subject that was to be forgotten is left in a partition."),
        "suppression_refused": Event("Records about suppressions were forged or out of date, and changed nothing."),
        "deletes_missed": Event("Documents were removed whose deletes had left the log."),
        "words_many": Event("A partition holds many words, or has given most of its word ids."),
        "segments_cleared": Event("No segment of a partition holds a deleted document any more."),
        "record_cut": Event("A record has more bytes than any record may have, perhaps once decompressed, and is cut."),
        "version_remark": Event("A version has a remark; `streamtopic status` shows it.", quotes=True),
        "self_check_failed": Event("An update was not borne out by the service's own check, and is not published."),
        "release_foreign": Event("A release in the log does not verify.", quotes=True),
        "release_discredited": Event("A release no longer counts, since its key was revoked.", quotes=True),
        "release_refused": Event("A subscriber refused a release.", quotes=True),
        "model_stale": Event("A subscriber's model may be out of date."),
        "keys_followed": Event("A newer list of keys is followed."),
        "record_passed_over": Event("A record of the releases or receipts topic is passed over.", quotes=True),
        "receipts_passed_over": Event("Records of the receipts topic are not receipts."),
        "receipts_lost": Event("The receipts topic has lost receipts that had been published."),
        "subjects_covered": Event("Receipts were published that cover all documents of a subject."),
        "links_destroyed": Event("Keys were destroyed that tied receipts to request ids."),
        "clock_behind": Event("A statement is of a later time than this machine's clock says."),
        "rewrite_interrupted": Event("Redis was restarted before it had rewritten its append-only file."),
        "rewrite_failed": Event("Redis could not rewrite its append-only file."),
        "rewrite_refused": Event("Redis refuses to rewrite its append-only file; rewrite it by hand, and attest it."),
        "files_closed": Event("Files of an instance were open to other users of the machine, and are closed now."),
        "gateway_received": Event("The gateway took a request in, for so many documents."),
        "gateway_cancelled": Event("The gateway cancelled a request, as its requester asked."),
        "gateway_refused": Event("The gateway refused a request without its token."),
        "gateway_failed": Event("The gateway could not answer, since Redis was away or refused.", quotes=True),
        "callbacks_failed": Event("Callbacks were not taken; they are tried again, or given up after three days."),
        "callbacks_wait": Event("Callbacks wait, since Redis was away or refused.", quotes=True),
        "requests_paused": Event("The brake paused requests for deletions; they wait for approval."),
        "requests_lost": Event("Requests for deletions had lost the ids of their documents, and were cancelled."),
        "dashboard_login": Event("A visit to the dashboard was opened with the token."),
        "dashboard_refused": Event("The dashboard refused a wrong token, or an act without a visit."),
        "dashboard_retried": Event("Refused records were sent again from the dashboard, by outcome."),
        "dashboard_approved": Event("Requests for deletions were approved from the dashboard, by number."),
        "dashboard_cancelled": Event("A request for deletions was cancelled from the dashboard."),
        "dashboard_failed": Event("A page of the dashboard failed unexpectedly."),
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
    """Return what every line has beside its event: the time, seconds since 1970, and what names the process."""
    return {"time": datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds"), **process}


def _number(value: object) -> bool:
    return isinstance(value, int | float)
