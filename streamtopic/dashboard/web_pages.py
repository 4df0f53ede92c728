"""The addresses of the dashboard, and the page of each.

Whatever a visitor types goes by POST and stays out of addresses, logs and pages.
"""

from __future__ import annotations

import logging
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from streamtopic.dashboard import page_facts
from streamtopic.dashboard.attention import concerns
from streamtopic.dashboard.gate import PICTURES_POLICY, Access, Gate, Visit, Visits, nobody_waits
from streamtopic.errors import ComponentUnreachable, SettingsError, StateMissing, StreamtopicError, UsageError
from streamtopic.report.charts import Picture, Series, line_chart
from streamtopic.report.rendering import moment, render_of
from streamtopic.security.concealing import conceal
from streamtopic.state.residue_ledger import Stage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from streamtopic.dashboard.service_view import ServiceView

__all__ = ["PAGES", "dashboard"]

logger = logging.getLogger(__name__)

PAGES = {
    "/": "Overview",
    "/deletions": "Deletions",
    "/requests": "Requests",
    "/versions": "Versions",
    "/topics": "Topics",
    "/rejected": "Rejected records",
    "/health": "Health",
}
# The other pages change only with a version, or cost a pass through a topic.
_LIVE = {"/", "/deletions", "/requests", "/versions", "/health"}
_SLOW = 20.0
_CHART_WIDTH, _CHART_HEIGHT = 420.0, 200.0
_MOST_VERSIONS = 60
_NO_VERSION = 2**31
_STAGES = {
    Stage.STATE: "Redis holds no trace of it",
    Stage.LOG: "nor do the documents topic and the releases topic",
    Stage.FILE: "Redis has written its append-only file anew",
    Stage.BACKUPS: "all backups from before are destroyed",
}
# The first kind that an error is of says how it is shown.
_PROBLEMS: Mapping[type[StreamtopicError], tuple[int, str]] = {
    StateMissing: (HTTPStatus.SERVICE_UNAVAILABLE, "Nothing is counted yet."),
    ComponentUnreachable: (HTTPStatus.SERVICE_UNAVAILABLE, "A server cannot be reached."),
    SettingsError: (HTTPStatus.INTERNAL_SERVER_ERROR, "The settings do not let this be shown."),
    UsageError: (HTTPStatus.NOT_FOUND, "This cannot be shown."),
    StreamtopicError: (HTTPStatus.INTERNAL_SERVER_ERROR, "The service's state cannot be shown."),
}


def dashboard(view: ServiceView, access: Access, names: frozenset[str] = frozenset()) -> ASGIApp:
    """Return the dashboard as an application for a server.

    view: reads the service.
    access: what the token guards.
    names: names of this server, beside `localhost` and addresses in numbers.
    """
    return Gate(_Pages(view, access).application(), names)


class _Pages:
    """Answers requests. Reads run in threads, so that a slow server holds up nobody who only wants a style."""

    def __init__(self, view: ServiceView, access: Access) -> None:
        self._view = view
        self._access = access
        self._visits = Visits()
        self._model = view.settings.model

    def application(self) -> Starlette:
        """Return the routes."""
        pages = {
            "/": self._overview,
            "/deletions": self._deletions,
            "/requests": self._requests,
            "/versions": self._versions,
            "/topics": self._topics,
            "/topics/{version:int}/pictures": self._pictures,
            "/rejected": self._rejected,
            "/health": self._health,
        }
        routes = [Route(path, self._read(page), methods=["GET"]) for path, page in pages.items()]
        routes += [
            Route("/deletions", self._look_up, methods=["POST"]),
            Route("/requests/decide", self._decide, methods=["POST"]),
            Route("/requests/approve", partial(self._decided, "approve"), methods=["POST"]),
            Route("/requests/cancel", partial(self._decided, "cancel"), methods=["POST"]),
            Route("/rejected/retry", self._retry, methods=["POST"]),
            Route("/login", self._login_page, methods=["GET"]),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/style.css", partial(_file, _style(), "text/css"), methods=["GET"]),
            Route("/live.js", partial(_file, _own("live.js"), "text/javascript"), methods=["GET"]),
            Route("/icon.svg", partial(_file, _own("icon.svg"), "image/svg+xml"), methods=["GET"]),
            # Browsers ask for this beside an answer that is not a page, such as a refusal.
            Route("/favicon.ico", partial(_file, _own("icon.svg"), "image/svg+xml"), methods=["GET"]),
        ]
        handlers = {HTTPException: self._not_found, ClientDisconnect: nobody_waits}
        return Starlette(routes=routes, exception_handlers=handlers)

    # Pages

    def _overview(self, request: Request) -> Response:
        return self._standing(request, "overview.html")

    def _health(self, request: Request) -> Response:
        return self._standing(request, "health.html")

    def _standing(self, request: Request, template: str) -> Response:
        answer = self._view.read("service", page_facts.read_service)
        values = {"at": answer.at, "facts": answer.value, "concerns": concerns(answer.value)}
        return self._page(request, template, values)

    def _deletions(self, request: Request, searched: object = None) -> Response:
        answer = self._view.read("service", page_facts.read_service)
        values = {"at": answer.at, "facts": answer.value, "stages": _STAGES, "searched": searched}
        return self._page(request, "deletions.html", values)

    def _versions(self, request: Request) -> Response:
        answer = self._view.read("service", page_facts.read_service)
        versions = answer.value.versions
        charts = []
        if versions:
            budget = self._view.settings.epsilon_budget
            charts = [_capacity_chart(versions), _epsilon_chart(versions, budget)]
        return self._page(request, "versions.html", {"at": answer.at, "versions": versions, "charts": charts})

    def _topics(self, request: Request) -> Response:
        versions = self._view.read("service", page_facts.read_service).value.versions
        standing = [version["version"] for version in versions if not version["withdrawn"]]
        if not standing:
            return self._page(request, "topics.html", {"shown": None})
        wanted = request.query_params.get("version", "")
        version = _number(wanted)
        answer = self._view.read(("topics", version), lambda one: page_facts.read_topics(one, version), _SLOW)
        newest_first = standing[::-1]
        values = {"at": answer.at, "shown": answer.value, "standing": newest_first}
        return self._page(request, "topics.html", values)

    def _pictures(self, request: Request) -> Response:
        version = min(request.path_params["version"], _NO_VERSION)
        answer = self._view.read(("pictures", version), lambda one: page_facts.picture_page(one, version), _SLOW)
        return HTMLResponse(answer.value, headers={"content-security-policy": PICTURES_POLICY})

    def _rejected(self, request: Request) -> Response:
        visit = self._visit(request)
        answer = self._view.read("rejected", page_facts.read_refused, _SLOW)
        can_act = self._access.token is not None
        retried = None if visit is None else visit.take_said("/rejected")
        values = {
            "at": answer.at,
            "refused": answer.value,
            "most": page_facts.MOST_REFUSED,
            "can_act": can_act,
            "retried": retried,
        }
        return self._page(request, "rejected.html", values)

    def _requests(self, request: Request) -> Response:
        visit = self._visit(request)
        answer = self._view.read("requests", page_facts.read_asked)
        can_act = self._access.token is not None
        said = None if visit is None else visit.take_said("/requests")
        values = {
            "at": answer.at,
            "asked": answer.value,
            "settings": self._view.settings,
            "can_act": can_act,
            "said": said,
        }
        return self._page(request, "requests.html", values)

    # Forms

    async def _look_up(self, request: Request) -> Response:
        form = await _form(request)
        name = form.get("request", "").strip()
        salt = form.get("salt", "").strip()

        def answer(request: Request) -> Response:
            if not name:
                return self._deletions(request, searched="nothing")
            found = self._view.read(object(), lambda service: page_facts.look_up(service, name, salt or None), 0.0)
            return self._deletions(request, searched=found.value)

        return await self._read(answer)(request)

    async def _retry(self, request: Request) -> Response:
        visit = self._visit(request)
        form = await _form(request)
        if visit is None or not visit.owns(form.get("form", "")):
            return self._refused(request)

        def act(_: Request) -> Response:
            outcomes = self._view.act(page_facts.retry_refused)
            visit.said = "/rejected", dict(outcomes)
            text = "refused records were sent again"
            extra = {"event": "dashboard_retried", **outcomes}
            logger.info(text, extra=extra)
            # A page that is loaded again must not send the form again.
            return RedirectResponse("/rejected", 303)

        return await self._read(act)(request)

    async def _decide(self, request: Request) -> Response:
        """Show a request, or all that are paused, before somebody decides: a deletion cannot be taken back."""
        visit = self._visit(request)
        form = await _form(request)
        if visit is None or not visit.owns(form.get("form", "")):
            return self._refused(request)
        name = form.get("request", "")

        def page(request: Request) -> Response:
            found = self._view.read(object(), lambda service: page_facts.read_request(service, name), 0.0).value
            names = tuple(one.id for one in found)
            mark = visit.ask(names)
            values = {"title": "Decide about requests", "found": found, "single": bool(name), "mark": mark}
            return self._page(request, "decide.html", values)

        return await self._read(page)(request)

    async def _decided(self, verdict: Literal["approve", "cancel"], request: Request) -> Response:
        """Approve or cancel the requests that were shown, and no others that have come since."""
        visit = self._visit(request)
        form = await _form(request)
        if visit is None or not visit.owns(form.get("form", "")):
            return self._refused(request)
        names = visit.asked_about(form.get("mark", ""))
        if not names:
            remedy = "Another page of yours has asked since: choose the request on the page of requests again."
            return self._problem(request, HTTPStatus.CONFLICT, "Nothing was decided.", remedy)

        def act(_: Request) -> Response:
            decide = page_facts.approve_requests if verdict == "approve" else page_facts.cancel_requests
            outcome = self._view.act(lambda service: decide(service, names))
            visit.said = "/requests", {verdict: 1, **outcome}
            if verdict == "approve":
                logger.info("requests for deletions were approved", extra={"event": "dashboard_approved", **outcome})
            else:
                logger.info("requests for deletions were cancelled", extra={"event": "dashboard_cancelled", **outcome})
            return RedirectResponse("/requests", 303)

        return await self._read(act)(request)

    def _login_page(self, request: Request) -> Response:
        can_act = self._access.token is not None
        return self._page(request, "login.html", {"can_act": can_act, "wrong": False})

    async def _login(self, request: Request) -> Response:
        form = await _form(request)
        if not self._access.opens(form.get("token", "")):
            logger.warning("a wrong token was given", extra={"event": "dashboard_refused"})
            can_act = self._access.token is not None
            values = {"can_act": can_act, "wrong": True}
            return self._page(request, "login.html", values, 403)
        logger.info("a visit was opened", extra={"event": "dashboard_login"})
        answer = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        name = self._visits.begin()
        answer.set_cookie(self._visits.cookie, name, httponly=True, samesite="strict", secure=secure)
        return answer

    async def _logout(self, request: Request) -> Response:
        name = request.cookies.get(self._visits.cookie, "")
        self._visits.end(name)
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(self._visits.cookie, httponly=True, samesite="strict")
        return answer

    # What pages share

    def _visit(self, request: Request) -> Visit | None:
        name = request.cookies.get(self._visits.cookie, "")
        return self._visits.find(name)

    def _refused(self, request: Request) -> Response:
        """Answer an act that no page of an open visit has sent."""
        logger.warning("an act without a visit was refused", extra={"event": "dashboard_refused"})
        return self._problem(request, 403, "Log in first.", "This form is not of an open visit: log in, try again.")

    def _read(self, page: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
        """Return a page as an endpoint: for whoever may read, in a thread, with errors as pages."""

        async def endpoint(request: Request) -> Response:
            if self._access.reading and self._visit(request) is None:
                return RedirectResponse("/login", 303)
            try:
                return await run_in_threadpool(page, request)
            except StreamtopicError as error:
                status, said = next(shown for kind, shown in _PROBLEMS.items() if isinstance(error, kind))
                return self._problem(request, status, said, str(error))
            except Exception as error:  # noqa: BLE001 - a visitor gets a page for any error, and the log its kind
                kind = type(error).__name__
                # Without the traceback, which quotes whatever was in hand.
                logger.error("a page failed: %s", kind, extra={"event": "dashboard_failed"})  # noqa: TRY400 - as above
                remedy = f"Unexpected {kind}: `streamtopic status --debug` may say more."
                return self._problem(request, HTTPStatus.INTERNAL_SERVER_ERROR, "This page failed.", remedy)

        return endpoint

    def _page(
        self, request: Request, template: str, values: Mapping[str, object], status: int = HTTPStatus.OK
    ) -> Response:
        path = request.url.path
        live = request.query_params.get("live", "")
        visit = self._visit(request)
        refreshes = path in _LIVE and request.method == "GET" and status == 200
        title = PAGES.get(path, "Log in")
        form = None if visit is None else visit.form
        chosen = live if live in {"off", "on"} else "script"
        common: dict[str, object] = {
            "model": self._model,
            "pages": PAGES,
            "path": path,
            "title": title,
            "form": form,
            "live": chosen if refreshes else "",
        }
        written = render_of("streamtopic.dashboard", template, **common | dict(values))
        return HTMLResponse(written, status)

    def _problem(self, request: Request, status: int, said: str, remedy: str) -> Response:
        title = PAGES.get(request.url.path, "Error")
        # Errors of other packages may quote an address with its password.
        values = {"title": title, "said": said, "remedy": conceal(remedy)}
        return self._page(request, "problem.html", values, status)

    async def _not_found(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return self._problem(request, status, "There is no such page.", "Choose one of the pages above.")


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form, each once; the gate has bounded its length."""
    body = await request.body()
    fields = parse_qs(body.decode(errors="replace"))
    return {name: values[-1] for name, values in fields.items()}


async def _file(text: str, kind: str, _: Request) -> Response:
    return Response(text, media_type=kind)


def _own(name: str) -> str:
    return files("streamtopic.dashboard").joinpath("templates", name).read_text(encoding="utf-8")


def _style() -> str:
    """Return the style of reports with what a dashboard adds to it."""
    report = files("streamtopic.report").joinpath("templates")
    sheets = [report.joinpath(name).read_text(encoding="utf-8") for name in ("picture.css", "page.css")]
    return "\n".join([*sheets, _own("dashboard.css")])


def _number(text: str) -> int | None:
    """Return the number of a version; None where none is named."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError("a version has a number: choose one of the list")
    return int(text)


def _capacity_chart(versions: Sequence[Mapping[str, Any]]) -> Picture:
    """Return the share of the deletion capacity that each version had used, in percent."""
    values = [_used(version) for version in versions]
    series = Series("Deletion capacity used, %", values, at_least=0.0, at_most=100.0, limit=(100.0, "capacity"))
    said = "Share of the deletion capacity of its base that each version had used."
    return _chart("capacity", series, versions, said)


def _epsilon_chart(versions: Sequence[Mapping[str, Any]], budget: float) -> Picture:
    """Return the epsilon that was spent since the base model at each version. budget: what may be spent."""
    values = [version["cumulative_epsilon"] for version in versions]
    series = Series("ε since the base model", values, at_least=0.0, at_most=budget, limit=(budget, "budget"))
    return _chart("epsilon", series, versions, "Unlearning epsilon spent since the base model, at each version.")


def _used(version: Mapping[str, Any]) -> float | None:
    """Return the share of the capacity that a version had used, in percent; None for a base that bears none."""
    return 100.0 * version["forgotten"] / version["capacity"] if version["capacity"] else None


def _chart(name: str, series: Series, versions: Sequence[Mapping[str, Any]], said: str) -> Picture:
    shown = versions[-_MOST_VERSIONS:]
    values = series.values[-_MOST_VERSIONS:]
    positions = [str(version["version"]) for version in shown]
    points = []
    for version, value in zip(shown, values, strict=True):
        figure = "none" if value is None else f"{value:.4g}"
        points.append(f"version {version['version']}, {moment(version['created'])}: {figure}")
    drawn = Series(series.title, values, "by version", series.at_least, series.at_most, series.limit)
    width, height = _CHART_WIDTH - 12, _CHART_HEIGHT - 30
    marks = tuple(line_chart(drawn, positions, points, left=4.0, top=4.0, width=width, height=height))
    return Picture(name, series.title, said, _CHART_WIDTH, _CHART_HEIGHT, marks)
