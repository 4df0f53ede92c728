"""The addresses of the gateway: OpenDSR 2.0, and the names of OpenGDPR before it.

A request is answered only under a name of this server, with the bearer token, and as JSON. So a page that a browser
shows can neither send a request nor read an answer.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from streamtopic.dashboard.gate import host_name, nobody_waits
from streamtopic.errors import InvalidEvent, SettingsError, StreamtopicError, UsageError
from streamtopic.gateway import opendsr_messages as messages
from streamtopic.gateway.callback_addresses import CallbackAddress
from streamtopic.monitoring.endpoint import is_loopback
from streamtopic.security.concealing import conceal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from streamtopic.dashboard.gate import Access
    from streamtopic.gateway.response_signing import ResponseSigner
    from streamtopic.service.requests.request_door import RequestDoor
    from streamtopic.state.deletion_requests import DeletionRequest

__all__ = ["GatewayOptions", "gateway"]

logger = logging.getLogger(__name__)

MOST_BYTES = 1 << 20
"""Bytes of a request."""
_REQUESTS = ("/requests", "/opengdpr_requests")
_VERSIONS = ("", "/v2", "/v1")


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """What the gateway answers, and to whom.

    access: the bearer token; without one everybody who reaches the server may ask.
    controller: `controller_id` of whoever has the token.
    identity_types: values of `identity_type` to `document` or `subject`, which says what the value is.
    private: whether callbacks may go to private addresses.
    names: names of this server beside its domain, `localhost` and addresses of this machine.
    """

    access: Access
    controller: str
    identity_types: Mapping[str, str]
    private: bool
    names: frozenset[str] = field(default_factory=frozenset)


def gateway(door: RequestDoor, signer: ResponseSigner, options: GatewayOptions) -> ASGIApp:
    """Return the gateway as an application for a server.

    door: takes requests in.
    signer: signs every answer to a request.
    """
    return _Routes(door, signer, options).application()


class _Refused(Exception):
    """A request that is not answered. status: of HTTP. The text is for the requester."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Routes:
    """Answers requests; what waits for Redis runs in threads."""

    def __init__(self, door: RequestDoor, signer: ResponseSigner, options: GatewayOptions) -> None:
        self._door = door
        self._signer = signer
        self._options = options
        self._mutex = threading.Lock()
        self._names = options.names | {signer.domain.lower()}

    def application(self) -> Starlette:
        """Return the routes."""
        routes = []
        for version in _VERSIONS:
            routes += [
                Route(f"{version}/discovery", self._endpoint(self._discovery, open_to_all=True), methods=["GET"]),
                Route(f"{version}/cert.pem", self._endpoint(self._certificate, open_to_all=True), methods=["GET"]),
            ]
            for noun in _REQUESTS:
                routes += [
                    Route(f"{version}{noun}", self._endpoint(self._receive), methods=["POST"]),
                    Route(f"{version}{noun}/{{name}}", self._endpoint(self._status), methods=["GET"]),
                    Route(f"{version}{noun}/{{name}}", self._endpoint(self._cancel), methods=["DELETE"]),
                ]
        handlers = {HTTPException: self._no_route, ClientDisconnect: nobody_waits}
        found = Starlette(routes=routes, exception_handlers=handlers)
        # Its answer would name whatever host the request names, before anybody has looked at that.
        found.router.redirect_slashes = False
        return found

    def _discovery(self, _request: Request, _body: bytes) -> Response:
        url = f"https://{self._signer.domain}/cert.pem"
        return self._signed(messages.discovery_body(self._options.identity_types, url))

    def _certificate(self, _request: Request, _body: bytes) -> Response:
        return Response(self._signer.certificate, media_type="application/x-pem-file")

    def _receive(self, request: Request, body: bytes) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise _Refused(HTTPStatus.BAD_REQUEST, "the content type must be application/json")
        erasure = messages.parse_erasure(body, self._options.identity_types)
        for url in erasure.callbacks:
            CallbackAddress.parse(url, private=self._options.private)
        try:
            received = self._door.receive(
                erasure.documents,
                subjects=erasure.subjects,
                name=erasure.id,
                source="gateway",
                callbacks=erasure.callbacks,
            )
        except InvalidEvent:
            # The reason could quote the identity.
            raise UsageError("an identity_value cannot be the id of a document, or a subject") from None
        logger.info("a request was received", extra={"event": "gateway_received", "documents": received.request.known})
        answer = messages.received_body(received.request, self._options.controller, body)
        return self._signed(answer, HTTPStatus.CREATED)

    def _status(self, request: Request, _body: bytes) -> Response:
        return self._signed(messages.status_body(self._named(request), self._options.controller))

    def _cancel(self, request: Request, _body: bytes) -> Response:
        cancelled = self._door.cancel(self._named(request).id)
        logger.info("a request was cancelled", extra={"event": "gateway_cancelled", "documents": cancelled.known})
        return self._signed(messages.cancelled_body(cancelled, self._options.controller), HTTPStatus.ACCEPTED)

    def _named(self, request: Request) -> DeletionRequest:
        """Return the request that an address names. Raises _Refused where the gateway has not received it."""
        name = request.path_params["name"]
        found = self._door.requests.get(name) if messages.REQUEST_ID.fullmatch(name) else None
        if found is None or found.source != "gateway":
            raise _Refused(HTTPStatus.NOT_FOUND, "there is no request with this subject_request_id")
        return found

    def _endpoint(
        self, work: Callable[[Request, bytes], Response], *, open_to_all: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that answers errors as the specification says. open_to_all: it needs no token."""

        async def endpoint(request: Request) -> Response:
            try:
                self._check(request, open_to_all=open_to_all)
                body = await _body(request)
                return await run_in_threadpool(self._in_turn, work, request, body)
            except _Refused as error:
                return _error(error.status, str(error))
            except StreamtopicError as error:
                # A server that refuses the gateway's user is no fault of the request, which must be sent again.
                if isinstance(error, UsageError) and not isinstance(error, SettingsError):
                    return _error(HTTPStatus.BAD_REQUEST, str(error))
                extra = {"event": "gateway_failed"}
                logger.error("a request could not be answered: %s", conceal(str(error)), extra=extra)  # noqa: TRY400 - the text says it
                return _error(HTTPStatus.SERVICE_UNAVAILABLE, "the service cannot take requests now: try again later")

        return endpoint

    def _in_turn(self, work: Callable[[Request, bytes], Response], request: Request, body: bytes) -> Response:
        # Redis's client is for one thread at a time.
        with self._mutex:
            return work(request, body)

    def _check(self, request: Request, *, open_to_all: bool) -> None:
        """Raise _Refused for another server's name, and without the token."""
        host = host_name(request.headers.get("host", ""))
        if host not in self._names and not is_loopback(host):
            raise _Refused(HTTPStatus.MISDIRECTED_REQUEST, "this server has another name")
        access = self._options.access
        if open_to_all or access.token is None:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not access.opens(given.strip()):
            logger.warning("a request without the token was refused", extra={"event": "gateway_refused"})
            raise _Refused(HTTPStatus.UNAUTHORIZED, "give the token: Authorization: Bearer TOKEN")

    def _signed(self, body: bytes, status: int = HTTPStatus.OK) -> Response:
        return Response(body, status, self._signer.headers(body) | {"Cache-Control": "no-store"})

    async def _no_route(self, _request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
        return _error(status, "there is no such address: see /discovery")


async def _body(request: Request) -> bytes:
    """Return the body of a request. Raises _Refused for a large one, before it is read to its end."""
    found = b""
    async for part in request.stream():
        found += part
        if len(found) > MOST_BYTES:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has {MOST_BYTES} bytes at most")
    return found


def _error(status: int, message: str) -> Response:
    headers = {"Content-Type": "application/json;charset=UTF-8", "Cache-Control": "no-store", "Pragma": "no-cache"}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(messages.error_body(status, message), status, headers)
