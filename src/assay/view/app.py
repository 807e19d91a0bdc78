"""The HTTP application of the window: addresses, the token, who may ask, and errors in one line.

Everything is read only. A page is built from blocks as the verbs build theirs; the one script is a
file of its own, so that the content security policy lets no other run.
"""

import ipaddress
import os
import re
import secrets
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay.agents.http import HOST, up
from assay.errors import AssayError
from assay.pages.page import Page, Text
from assay.pages.words import LANGUAGES, Words, flat, words
from assay.runs.registry import reading_once
from assay.runs.run_names import RunNotFound
from assay.serve.connections import TOKEN, bound, is_loopback, token_for_clients, until_stopped
from assay.view.asked_pages import compare_page, costs_shown
from assay.view.curves_page import curves_page
from assay.view.runs_page import file_address, progress_shown, run_shown, runs_page
from assay.view.sample_page import list_page, sample_page
from assay.view.window import (
    ICON,
    Shown,
    Window,
    changes,
    document,
    named_labs,
    script,
    style_sheet,
)

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
LANG = "assay-lang"
"""The cookie of the language."""

Handler = Callable[[Window, Request, Words], Shown | Response]


@dataclass(frozen=True)
class Guard:
    """Lets those in who have the token and ask for this machine by its own name.

    A page of another site that made its name mean this machine (DNS rebinding) is told by the name
    in its `Host`: an address by number, `localhost` and the host that the window was opened for are
    nobody else's.
    """

    app: ASGIApp
    token: str
    host: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on and add the headers of all answers."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        refusal = self.refusal(request)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), text.encode()) for name, text in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *own]}
            await send(message)

        await (refusal or self.app)(scope, receive, sending)

    def refusal(self, request: Request) -> Response | None:
        """Why a request is not answered, or how a token becomes a cookie; None for all others."""
        if not is_own_host(request.headers.get("host", ""), self.host):
            return PlainTextResponse("assay view: this is no name of this machine\n", 421)
        cookie = f"assay-view-{request.url.port or 80}"
        token = request.query_params.get("token")
        known = token if token is not None else request.cookies.get(cookie, "")
        if not secrets.compare_digest(known.encode(), self.token.encode()):
            problem = "assay view: open the address that 'assay view' printed; it has the token\n"
            return PlainTextResponse(problem, 403)
        if token is None:
            return None
        response = RedirectResponse(without(request, "token"), 303)
        response.set_cookie(cookie, self.token, httponly=True, samesite="strict")
        return response


def without(request: Request, name: str) -> str:
    """The path and query of a request without one of its values."""
    url = request.url.remove_query_params(name)
    # Two slashes, or what browsers take for one, would begin the name of another host.
    return "/" + url.path.lstrip("/\\") + (f"?{url.query}" if url.query else "")


def is_own_host(header: str, host: str) -> bool:
    """Whether a `Host` header names this machine: by number, as localhost, or as `host`."""
    name = re.sub(r":\d+$", "", header).strip("[]").lower()
    if name in ("localhost", host.lower()):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def application(window: Window, token: str, host: str = "127.0.0.1", lang: str = "en") -> Starlette:
    """The application. `lang` is the language of a reader who has not chosen one."""

    def page(path: str, handler: Handler) -> Route:
        def answer(request: Request) -> Response:
            return answered(window, request, handler, lang)

        return Route(path, answer, methods=["GET"])

    async def live(request: Request) -> Response:
        names = request.query_params.getlist("run")
        seen = request.query_params.get("seen", "")
        w = words_for(request, lang)
        events = changes(window, names, seen, request.is_disconnected, w)
        return StreamingResponse(events, media_type="text/event-stream")

    run = "/lab/{lab}/runs/{name}/{id}/"
    routes = [
        page("/", runs_page),
        page("/curves", curves_page),
        page(run, run_shown),
        page(run + "costs", costs_shown),
        page(run + "progress", progress_shown),
        page(run + "{file:path}", file_address),
        *(page(f"/lab/{{lab}}/{kind}", list_page) for kind in ("samples", "answers")),
        page("/lab/{lab}/show", sample_page),
        page("/lab/{lab}/compare", compare_page),
        Route("/live", live, methods=["GET"]),
        Route("/icon.svg", lambda _: Response(ICON, media_type="image/svg+xml")),
        Route("/style.css", lambda _: Response(style_sheet(), media_type="text/css")),
        Route("/view.js", lambda _: Response(script(), media_type="text/javascript")),
    ]
    guard = Middleware(Guard, token=token, host=host)
    handlers: dict[Any, Any] = {HTTPException: no_such_address}
    return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)


def answered(window: Window, request: Request, handler: Handler, lang: str) -> Response:
    """A page in the reader's language, or the one line that says why there is none."""
    w = words_for(request, lang)
    try:
        with reading_once():
            page = handler(window, request, w)
    except RunNotFound as error:
        page = problem_page(error, w, 404)
    except AssayError as error:
        page = problem_page(error, w, 400)
    except OSError as error:  # a file that may not be read, or that has just gone
        what = f"{error.filename or ''}: {error.strerror or error}"
        page = problem_page(RuntimeError(what), w, 400)
    except Exception as error:
        traceback.print_exception(error, file=sys.stderr)
        page = problem_page(RuntimeError(w("view.failed")), w, 500)
    if isinstance(page, Response):
        response = page
    else:
        text = document(page, without(request, "lang"))
        response = Response(text, page.status, media_type="text/html")
    if request.query_params.get("lang") == w.lang:
        response.set_cookie(LANG, w.lang, samesite="strict")
    return response


def words_for(request: Request, lang: str) -> Words:
    """The words of the language that a reader asks for, or has chosen before; else of `lang`."""
    chosen = request.query_params.get("lang") or request.cookies.get(LANG, "")
    return words(chosen if chosen in LANGUAGES else lang)


def problem_page(error: Exception, w: Words, status: int) -> Shown:
    """What is wrong, in one line."""
    return Shown(Page(w, w("view.problem"), [Text(flat(str(error)), "error")]), status=status)


async def no_such_address(request: Request, error: Exception) -> Response:
    """Refuse what is no address of the window."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    return PlainTextResponse(f"assay view: nothing at {request.url.path}\n", status)


BEHIND = 10
"""How far the window stands behind what trains on the same processors."""


def view(
    roots: Sequence[Path],
    *,
    host: str = HOST,
    port: int,
    token_file: Path | None,
    lang: str,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """Show the labs at an address until SIGINT or SIGTERM; returns what was shown.

    Raises InputError for what is not there, and where other machines can reach the address and
    nobody chose a token.
    """
    labs = named_labs(roots)
    token, made = token_for_clients(host, token_file)
    os.nice(BEHIND)
    with until_stopped() as stop:
        window = Window(labs)
        with up(application(window, token, host, lang), bound(port, host)) as taken:
            named = f"[{host}]" if ":" in host else host
            url = f"http://{named}:{taken}/"
            for name, root in labs.items():
                note(f"lab {name}: {root}")
            if not is_loopback(host):
                note("other machines can reach it; what is sent is not encrypted")
            note(f"open {url}?token={token}" if made else f"open {url}?token=… ({TOKEN})")
            stop.wait()
            note("stopping")
            window.closing.set()
    return {"url": url, "labs": labs}
