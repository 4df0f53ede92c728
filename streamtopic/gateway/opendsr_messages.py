"""Requests and answers of OpenDSR 2.0 as values, without any HTTP."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from streamtopic.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streamtopic.state.deletion_requests import Callback, DeletionRequest

__all__ = [
    "API_VERSION",
    "REQUEST_ID",
    "Erasure",
    "callback_body",
    "cancelled_body",
    "discovery_body",
    "error_body",
    "parse_erasure",
    "received_body",
    "status_body",
]

API_VERSION = "2.0"
REQUEST_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
"""A UUID of version 4 in small letters, as the specification wants it."""
MOST_CALLBACKS = 5
_REGULATIONS = {"gdpr", "ccpa"}
_TYPES = {"access", "portability", "erasure"}


@dataclass(frozen=True, slots=True)
class Erasure:
    """A request for erasure.

    id: `subject_request_id`.
    documents: ids of documents, from the identities of the types that the gateway knows.
    subjects: in their place, the subjects whose documents all go.
    callbacks: `status_callback_urls`.
    """

    id: str
    documents: tuple[str, ...]
    subjects: tuple[str, ...]
    callbacks: tuple[str, ...]


def parse_erasure(body: bytes, identity_types: Mapping[str, str]) -> Erasure:
    """Return the request in a body.

    identity_types: values of `identity_type` to `document` or `subject`, which says what the `identity_value` is.

    Raises UsageError for a request that the specification or this gateway refuses. The text quotes no identity.
    """
    fields = _fields(body)
    name = _text(fields, "subject_request_id")
    if not REQUEST_ID.fullmatch(name):
        raise UsageError("subject_request_id must be a UUID of version 4 in lowercase letters")
    kind = _text(fields, "subject_request_type")
    if kind not in _TYPES:
        raise UsageError("subject_request_type must be erasure, access or portability")
    if kind != "erasure":
        raise UsageError(f"subject_request_type {kind} is not supported: this processor fulfills erasure only")
    _check_time(_text(fields, "submitted_time"))
    # The specification requires the field, and its own example lacks it.
    regulation = fields.get("regulation", "gdpr")
    if not isinstance(regulation, str) or regulation not in _REGULATIONS:
        raise UsageError("regulation must be gdpr or ccpa")
    version = fields.get("api_version", API_VERSION)
    if not (isinstance(version, str) and re.fullmatch(r"[12](\.\d{1,3}){0,2}", version)):
        raise UsageError("api_version must be 2.0, or 1.0 of the specification before it")
    documents = _named(fields, identity_types, "document")
    subjects = _named(fields, identity_types, "subject")
    if documents and subjects:
        raise UsageError("the identities name documents and subjects: send a request for each")
    if not (documents or subjects):
        known = ", ".join(sorted(identity_types))
        raise UsageError(f"no identity is of a supported type: {known}, in identity_format raw")
    return Erasure(name, documents, subjects, _callbacks(fields))


def received_body(request: DeletionRequest, controller: str, body: bytes) -> bytes:
    """Return the answer to a request that was taken in. body: of the request."""
    return _json(
        {
            "controller_id": controller,
            "expected_completion_time": _time(request.expected_ms),
            "received_time": _time(request.received_ms),
            "encoded_request": base64.b64encode(body).decode(),
            "subject_request_id": request.id,
        }
    )


def status_body(request: DeletionRequest, controller: str) -> bytes:
    """Return the status of a request."""
    return _json(
        {
            "controller_id": controller,
            "expected_completion_time": _time(request.expected_ms),
            "subject_request_id": request.id,
            "request_status": request.state.status,
            "api_version": API_VERSION,
        }
    )


def cancelled_body(request: DeletionRequest, controller: str) -> bytes:
    """Return the answer to a cancellation."""
    return _json(
        {
            "controller_id": controller,
            "subject_request_id": request.id,
            "received_time": _time(request.changed_ms),
            "api_version": API_VERSION,
        }
    )


def callback_body(callback: Callback, controller: str) -> bytes:
    """Return what a callback says."""
    return _json(
        {
            "controller_id": controller,
            "expected_completion_time": _time(callback.expected_ms),
            "status_callback_url": callback.url,
            "subject_request_id": callback.request,
            "request_status": callback.state.status,
        }
    )


def discovery_body(identity_types: Iterable[str], certificate_url: str) -> bytes:
    """Return what the gateway supports. certificate_url: where its certificate is."""
    identities = [{"identity_type": kind, "identity_format": "raw"} for kind in sorted(identity_types)]
    return _json(
        {
            "api_version": API_VERSION,
            "supported_identities": identities,
            "supported_subject_request_types": ["erasure"],
            "processor_certificate": certificate_url,
        }
    )


def error_body(status: int, message: str) -> bytes:
    """Return an error. message: quotes no identity and no secret."""
    detail = {"domain": "Validation" if status == 400 else "Request", "reason": "Refused", "message": message}
    return _json({"error": {"code": status, "message": message, "errors": [detail]}})


def _fields(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    # A text that is nested too deep is no request either.
    except (ValueError, RecursionError):
        raise UsageError("the body is not JSON") from None
    if not isinstance(found, dict):
        raise UsageError("the body is not a JSON object")
    return found


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        raise UsageError(f"{name} field is required")
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text")
    return value


def _check_time(text: str) -> None:
    try:
        # RFC 3339 allows small letters between date and time, and for UTC.
        zone = datetime.fromisoformat(text.upper()).tzinfo
    except ValueError:
        zone = None
    if zone is None:
        raise UsageError("submitted_time must be a date of RFC 3339, such as 2018-10-02T15:00:00Z")


def _named(fields: Mapping[str, Any], identity_types: Mapping[str, str], what: str) -> tuple[str, ...]:
    """Return the values of the identities that name a `what`, each once."""
    identities = fields.get("subject_identities")
    if not isinstance(identities, list) or not identities:
        raise UsageError("subject_identities field is required, an array of identities")
    found = [_value(identity, identity_types, what) for identity in identities]
    return tuple(dict.fromkeys(value for value in found if value is not None))


def _value(identity: object, identity_types: Mapping[str, str], what: str) -> str | None:
    """Return the value of an identity; None for an identity that names something else, or is for other processors."""
    if not isinstance(identity, dict):
        raise UsageError("an identity must be an object")
    kind, value, form = (_text(identity, f"identity_{name}") for name in ("type", "value", "format"))
    if identity_types.get(kind) != what or form != "raw":
        return None
    if not value:
        raise UsageError("identity_value must not be empty")
    return value


def _callbacks(fields: Mapping[str, Any]) -> tuple[str, ...]:
    urls: Sequence[object] = fields.get("status_callback_urls") or ()
    sound = isinstance(urls, list | tuple) and all(isinstance(url, str) and len(url) <= 2048 for url in urls)
    if not sound or len(urls) > MOST_CALLBACKS:
        raise UsageError(f"status_callback_urls must be an array of at most {MOST_CALLBACKS} addresses")
    return tuple(dict.fromkeys(str(url) for url in urls))


def _time(time_ms: int) -> str:
    """Return a time as RFC 3339 has it, in whole seconds. time_ms: milliseconds since 1970."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
