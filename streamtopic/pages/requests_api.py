"""Requests for deletions over HTTP: `POST /requests` takes one in, `GET /requests/ID` tells its state.

A request may be sent again under its id: it is the same request, and the answer is the same. The token is checked at
the gate, before a body is read.
"""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from streamtopic.errors import ComponentUnreachable, InvalidEvent, SettingsError, StreamtopicError, UsageError
from streamtopic.security.concealing import conceal
from streamtopic.service.requests.deletion_lookup import receipts_of_request
from streamtopic.signed import Receipt, RequestReceipt

if TYPE_CHECKING:
    from starlette.requests import Request

    from streamtopic.pages.service_view import ServiceView
    from streamtopic.service.app import Service
    from streamtopic.state.deletion_requests import DeletionRequest

__all__ = ["request_routes"]

logger = logging.getLogger(__name__)

MOST_PROOFS = 100
"""Proofs in one answer; `streamtopic receipt` gives all."""
_FIELDS = frozenset({"id", "documents", "subjects"})
# The first kind that an error is of says its status.
_STATUS: dict[type[StreamtopicError], HTTPStatus] = {
    InvalidEvent: HTTPStatus.BAD_REQUEST,
    ComponentUnreachable: HTTPStatus.SERVICE_UNAVAILABLE,
    SettingsError: HTTPStatus.INTERNAL_SERVER_ERROR,
    UsageError: HTTPStatus.CONFLICT,
    StreamtopicError: HTTPStatus.INTERNAL_SERVER_ERROR,
}


def request_routes(view: ServiceView) -> list[Route]:
    """Return the two addresses. view: opens the service."""

    async def receive(request: Request) -> Response:
        body = await request.body()
        return await run_in_threadpool(_answer, view, lambda service: _received(service, body))

    async def tell(request: Request) -> Response:
        name = request.path_params["name"]
        return await run_in_threadpool(_answer, view, lambda service: _stands(service, name))

    return [Route("/requests", receive, methods=["POST"]), Route("/requests/{name}", tell, methods=["GET"])]


def _answer(view: ServiceView, work: Any) -> Response:  # noqa: ANN401 - Starlette's thread pool passes anything
    """Return the answer of `work` about the service, or the error in its place."""
    try:
        # No answer is kept: each is about one request.
        answer: Response = view.read(object(), work, 0.0).value
    except StreamtopicError as error:
        status = next(status for kind, status in _STATUS.items() if isinstance(error, kind))
        answer = JSONResponse({"error": conceal(str(error))}, status)
    return answer


def _received(service: Service, body: bytes) -> Response:
    """Take a request in."""
    try:
        fields = json.loads(body)
        name, documents, subjects = _checked(fields)
    except (ValueError, RecursionError) as error:
        wanted = '{"id": ID, "documents": [ID, ...]} or {"id": ID, "subjects": [NAME, ...]}; "id" may be left out'
        return JSONResponse({"error": f"{error}: send {wanted}"}, HTTPStatus.BAD_REQUEST)
    taken = service.door.receive(documents, subjects=subjects, name=name)
    logger.info("a request for deletions was taken in", extra={"event": "serve_requested"})
    # With the salt the requester can check the receipts; nobody else is told it.
    return JSONResponse({**_shown(taken.request), "salt": taken.salt}, HTTPStatus.ACCEPTED)


def _checked(fields: object) -> tuple[str | None, list[str], list[str]]:
    """Return id, documents and subjects of a request. Raises ValueError for another form; it quotes nothing."""
    if not isinstance(fields, dict) or fields.keys() - _FIELDS:
        raise ValueError("this is not a request")
    name, documents, subjects = fields.get("id"), fields.get("documents", []), fields.get("subjects", [])
    if name is not None and not isinstance(name, str):
        raise ValueError("the id is not a text")
    for names in (documents, subjects):
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise ValueError("documents and subjects are lists of texts")
    if bool(documents) is bool(subjects):
        raise ValueError("a request names either documents or subjects")
    return name, documents, subjects


def _stands(service: Service, name: str) -> Response:
    """Return the state of a request, with the proofs of its own receipt and of those of its documents."""
    request = service.door.find(name)
    if request is None:
        error = "there is no request with this id: it was never taken in, or ended long ago"
        return JSONResponse({"error": error}, HTTPStatus.NOT_FOUND)
    every = receipts_of_request(service.ledger, service.links, name, None)
    whole = [logged for logged in every if isinstance(logged.entry, RequestReceipt)]
    receipts = [logged for logged in every if isinstance(logged.entry, Receipt)]
    proofs = [service.ledger.proof(logged.index).text for logged in [*whole, *receipts[:MOST_PROOFS]]]
    proof = proofs.pop(0) if whole else None
    return JSONResponse({**_shown(request), "proof": proof, "receipts": len(receipts), "proofs": proofs})


def _shown(request: DeletionRequest) -> dict[str, Any]:
    """Return a request without what it names. Times are milliseconds since 1970."""
    times = {name: getattr(request, name) for name in ("received_ms", "due_ms", "changed_ms")}
    return {"id": request.id, "state": request.state.value, **times}
