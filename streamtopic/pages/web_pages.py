"""The addresses of the server: its pages, its probes, and requests for deletions.

Pages only show. People act by the command line, programs by `POST /requests`, which takes a request in, and
`GET /requests/ID`, which tells its state. A request may be sent again under its id: it is the same request, and the
answer is the same. The token is checked at the gate, before a body is read.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from streamtopic.errors import (
    CheckFailed,
    ComponentUnreachable,
    InvalidEvent,
    SettingsError,
    StateMissing,
    StreamtopicError,
    UsageError,
)
from streamtopic.pages.gate import Access, Gate
from streamtopic.pages.rendering import render
from streamtopic.pages.version_page import chart_to_limit, spending_chart, version_facts, version_page
from streamtopic.security.concealing import conceal
from streamtopic.service.ingest.rejections import RefusedRecords
from streamtopic.service.inspection.doctor import concerns
from streamtopic.service.inspection.facts import ModelFacts, show_gauges, status_fields, versions_of
from streamtopic.service.requests.request_door import RequestDoor, receipts_of_request
from streamtopic.service.watching import Watch
from streamtopic.signed import Receipt, RequestReceipt
from streamtopic.state.deletion_requests import RequestState
from streamtopic.state.deletions import LinkKeys, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from streamtopic.pages.plots import Picture
    from streamtopic.pages.service_view import ServiceView
    from streamtopic.service.opened import Opened
    from streamtopic.state.deletion_requests import DeletionRequest

__all__ = ["PAGES", "web_pages"]

logger = logging.getLogger(__name__)

PAGES = {"/": "Overview", "/deletions": "Deletions", "/versions": "Versions", "/rejected": "Rejected records"}
_OF_SERVICE = {"/": "overview.html", "/deletions": "deletions.html", "/versions": "versions.html"}
_TOPIC_SECONDS, _VERSION_SECONDS = 20.0, 300.0
_MOST_VERSIONS = 60
_MOST_ENDED = _MOST_NEWEST = 20
_MOST_OPEN = 100
# Anybody who may send documents can fill the topic of refused records.
_MOST_REFUSED = 5_000
_STAGES = {
    Stage.STATE: "Redis holds no trace of it",
    Stage.LOG: "nor do the documents topic and the releases topic",
    Stage.FILE: "Redis has rewritten its append-only file",
    Stage.BACKUPS: "all backups from before are destroyed",
}
# The first kind that an error is of says how it is shown.
_PROBLEMS: Mapping[type[StreamtopicError], tuple[int, str]] = {
    StateMissing: (HTTPStatus.SERVICE_UNAVAILABLE, "Nothing is counted yet."),
    ComponentUnreachable: (HTTPStatus.SERVICE_UNAVAILABLE, "A server cannot be reached."),
    SettingsError: (HTTPStatus.INTERNAL_SERVER_ERROR, "The settings do not let this be shown."),
    UsageError: (HTTPStatus.NOT_FOUND, "This cannot be shown."),
    CheckFailed: (HTTPStatus.INTERNAL_SERVER_ERROR, "This must not be relied on."),
    StreamtopicError: (HTTPStatus.INTERNAL_SERVER_ERROR, "The service's state cannot be shown."),
}


def read_service(service: Opened) -> dict[str, Any]:
    """Return what pages show of a service. Raises StateMissing before all partitions are counted.

    status: as `streamtopic status` shows it.
    concerns: findings that a person must act on or look at, those that failed first.
    queued: the deletions that wait.
    number, open: how many requests for deletions have not ended, and those that are shown, the paused first.
    ended: the last requests to end, newest first.
    versions: oldest first.
    charts: of their capacity and epsilon.
    settings, stages: for hold and brake of requests, and the meaning of each stage of a deletion.
    """
    facts = ModelFacts(service, served=True)
    # Stable orders: findings of a kind stay as they were, and requests oldest first.
    found = sorted(concerns(facts), key=lambda one: one.passed is not False)
    still = sorted(facts.requests, key=lambda request: request.state is not RequestState.PAUSED)
    over = sorted(RequestDoor(service).requests.ended(), key=lambda request: -request.changed_ms)
    versions = versions_of(service.state)
    charts = [_capacity_chart(versions), spending_chart(versions[-_MOST_VERSIONS:], service.settings.budget)]
    return {
        "settings": service.settings,
        "stages": _STAGES,
        "status": status_fields(facts, [one.text for one in found]),
        "concerns": found,
        "queued": facts.waiting,
        "number": len(still),
        "open": still[:_MOST_OPEN],
        "ended": over[:_MOST_ENDED],
        "versions": versions,
        "charts": [chart for chart in charts if chart is not None],
    }


def _read_refused(service: Opened) -> RefusedRecords:
    return RefusedRecords.read(service.log, service.names, _MOST_NEWEST, _MOST_REFUSED)


def web_pages(view: ServiceView, access: Access, names: frozenset[str] = frozenset()) -> ASGIApp:
    """Return everything that the server answers, as an application.

    view: reads the service.
    access: what the token guards.
    names: names of this server, besides `localhost` and addresses in numbers.
    """
    return Gate(_Pages(view).application(), access, names)


class _Pages:
    """Answers requests. Each answer is made in a thread of its own, so that a slow server holds up no probe."""

    def __init__(self, view: ServiceView) -> None:
        self._view = view
        # The page of a version reads the whole ledger, and nobody else must wait for that.
        self._slow = view.apart()
        # The metrics that this server knows: those of the model, by a look at each question.
        self._watch = Watch("serve")

    def application(self) -> Starlette:
        """Return the routes."""
        pages = {
            **dict.fromkeys(_OF_SERVICE, self._of_service),
            "/versions/{version:int}": self._version,
            "/rejected": self._rejected,
        }
        # Starlette runs a function that is not `async` in a thread.
        routes = [Route(path, self._page_of(page), methods=["GET"]) for path, page in pages.items()]
        routes += [
            Route("/livez", _live, methods=["GET"]),
            Route("/readyz", self._ready, methods=["GET"]),
            Route("/metrics", self._metrics, methods=["GET"]),
            *_request_routes(self._view),
        ]
        handlers = {HTTPException: self._not_found, ClientDisconnect: _nobody_waits}
        return Starlette(routes=routes, exception_handlers=handlers)

    def _of_service(self, request: Request) -> Response:
        answer = self._view.read("service", read_service)
        return self._shown(request, _OF_SERVICE[request.url.path], answer.value, answer.at)

    def _version(self, request: Request) -> Response:
        version = request.path_params["version"]
        known = {one["version"]: one for one in self._view.read("service", read_service).value["versions"]}
        # A page that was made before a withdrawal must not be shown after it.
        if version not in known or known[version]["withdrawn"]:
            raise UsageError("there is no such version, or it was withdrawn: choose one on the page of versions")
        work = partial(version_facts, version=version)
        answer = self._slow.read(("version", version, len(known)), work, _VERSION_SECONDS)
        frame = self._frame(request, answer.at) | {"path": "/versions", "at": None}
        return HTMLResponse(version_page(answer.value, frame))

    def _rejected(self, request: Request) -> Response:
        answer = self._view.read("rejected", _read_refused, _TOPIC_SECONDS)
        return self._shown(request, "rejected.html", {"refused": answer.value, "most": _MOST_REFUSED}, answer.at)

    def _ready(self, _: Request) -> Response:
        try:
            self._view.read("service", read_service)
        except StateMissing:
            # The page says so; there is nothing to wait for here.
            pass
        except StreamtopicError as error:
            return PlainTextResponse(f"{conceal(str(error))}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return PlainTextResponse("ok\n")

    def _metrics(self, _: Request) -> Response:
        try:
            text = self._view.read("metrics", self._gauges).value
        except StreamtopicError as error:
            return PlainTextResponse(f"{conceal(str(error))}\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return Response(text, media_type="text/plain; version=0.0.4")

    def _gauges(self, service: Opened) -> bytes:
        show_gauges(ModelFacts(service, service.state), self._watch)
        return self._watch.text()

    # What pages share

    def _page_of(self, page: Callable[[Request], Response]) -> Callable[[Request], Response]:
        """Return a page as an endpoint, with errors as pages."""

        def shown(request: Request) -> Response:
            try:
                return page(request)
            except StreamtopicError as error:
                status, said = next(shown for kind, shown in _PROBLEMS.items() if isinstance(error, kind))
                return self._problem(request, status, said, str(error))
            except Exception as error:  # noqa: BLE001 - a visitor gets a page for any error, and the log its kind
                kind = type(error).__name__
                # Without the traceback, which quotes whatever was in hand.
                logger.error("a page failed: %s", kind, extra={"event": "serve_failed"})  # noqa: TRY400 - as above
                remedy = f"Unexpected {kind}: `streamtopic status --debug` may say more."
                return self._problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, "This page failed.", remedy)

        return shown

    def _frame(self, request: Request, at: float | None) -> dict[str, Any]:
        """Return what frames a page. at: when it was read, seconds since 1970; None if nothing was."""
        return {"model": self._view.settings.model, "pages": PAGES, "path": request.url.path, "at": at}

    def _shown(
        self,
        request: Request,
        template: str,
        values: Mapping[str, object],
        at: float | None = None,
        status: int = HTTPStatus.OK,
    ) -> Response:
        frame = self._frame(request, at)
        written = render(template, title=PAGES.get(request.url.path, "Error"), service=frame, **values)
        return HTMLResponse(written, status)

    def _problem(self, request: Request, status: int, said: str, remedy: str) -> Response:
        # Errors of other packages may quote an address with its password.
        return self._shown(request, "problem.html", {"said": said, "remedy": conceal(remedy)}, status=status)

    async def _not_found(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
        return self._problem(request, status, "There is no such page.", "Choose one of the pages above.")


async def _live(_: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _nobody_waits(_request: Request, _error: Exception) -> Response:
    """Answer a request whose sender left in the middle of it: nothing went wrong here, and nobody reads this."""
    return PlainTextResponse("", HTTPStatus.BAD_REQUEST)


def _capacity_chart(versions: Sequence[Mapping[str, Any]]) -> Picture | None:
    """Return the share of the deletion capacity of its base that each version had used; None without any."""
    points = [(one["version"], 100.0 * one["forgotten"] / one["capacity"]) for one in versions if one["capacity"]]
    return chart_to_limit("capacity", "Deletion capacity used, %", points[-_MOST_VERSIONS:], 100.0, "capacity")


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


def _request_routes(view: ServiceView) -> list[Route]:
    """Return the two addresses. view: opens the service."""

    async def receive(request: Request) -> Response:
        body = await request.body()
        return await run_in_threadpool(_answer, view, lambda service: _received(service, body))

    def tell(request: Request) -> Response:
        return _answer(view, lambda service: _stands(service, request.path_params["name"]))

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


def _received(service: Opened, body: bytes) -> Response:
    """Take a request in."""
    try:
        fields = json.loads(body)
        name, documents, subjects = _checked(fields)
    except (ValueError, RecursionError) as error:
        wanted = '{"id": ID, "documents": [ID, ...]} or {"id": ID, "subjects": [NAME, ...]}; "id" may be left out'
        return JSONResponse({"error": f"{error}: send {wanted}"}, HTTPStatus.BAD_REQUEST)
    taken = RequestDoor(service).receive(documents, subjects=subjects, name=name)
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
    return name, documents, subjects


def _stands(service: Opened, name: str) -> Response:
    """Return the state of a request, with the proofs of its own receipt and of those of its documents."""
    request = RequestDoor(service).find(name)
    if request is None:
        error = "there is no request with this id: it was never taken in, or ended long ago"
        return JSONResponse({"error": error}, HTTPStatus.NOT_FOUND)
    every = receipts_of_request(service.ledger, LinkKeys(service.connection, service.settings.model), name, None)
    whole = [logged for logged in every if isinstance(logged.entry, RequestReceipt)]
    receipts = [logged for logged in every if isinstance(logged.entry, Receipt)]
    proofs = [service.ledger.proof(logged.index).text for logged in [*whole, *receipts[:MOST_PROOFS]]]
    proof = proofs.pop(0) if whole else None
    return JSONResponse({**_shown(request), "proof": proof, "receipts": len(receipts), "proofs": proofs})


def _shown(request: DeletionRequest) -> dict[str, Any]:
    """Return a request without what it names. Times are milliseconds since 1970."""
    times = {name: getattr(request, name) for name in ("received_ms", "due_ms", "changed_ms")}
    return {"id": request.id, "state": request.state.value, **times}
