"""Around every request: who may ask, how large a body may be, what a browser may do with the answer, and the count."""

from __future__ import annotations

import time
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bertflow.serving.limits import Keys
from bertflow.serving.metrics import Metrics
from bertflow.serving.refusals import Refusal, answer, as_refusal

OPEN_PATHS = {"/", "/page.css", "/page.js", "/health"}  # nothing of the models or indexes is told there
THIS_MACHINE = {"localhost", "127.0.0.1", "::1"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class Guard:
    """ASGI middleware.

    Args:
        app: What is guarded.
        keys: None given means that everybody may ask.
        body: Most bytes of a request.
        metrics: Where requests are counted.
        hosts: Names by which the service may be called, or none for any. A service that is open to programs of this
            machine needs them: otherwise a web page could reach it under a name of its own (DNS rebinding).
    """

    def __init__(
        self, app: ASGIApp, *, keys: Keys, body: int, metrics: Metrics, hosts: Collection[str] | None = None
    ) -> None:
        self._app, self._keys, self._body, self._metrics, self._hosts = app, keys, body, metrics, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await answer(scope["path"], refusal)(scope, receive, sending)
        else:
            try:
                await self._app(scope, self._bounded(receive), sending)
            except Exception as error:  # not one of ours, which the app answers itself
                request = Request(scope)
                await answer(scope["path"], as_refusal(error, request))(scope, receive, sending)
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.request(route, status, time.perf_counter() - start)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = dict(scope["headers"])
        if self._hosts is not None and _host(headers.get(b"host", b"")) not in self._hosts:
            return Refusal(
                f"This service answers under {', '.join(sorted(self._hosts))} only: call it so, or start it with keys.",
                403,
                code="wrong_host",
            )
        if self._keys and scope["path"] not in OPEN_PATHS and not self._keys.hold(headers.get(b"authorization", b"")):
            return Refusal(
                "A key is needed: send the header  Authorization: Bearer KEY  with one that this service knows.",
                401,
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._body:
            return Refusal(self._too_large(), 413, code="body_too_large")
        return None

    def _bounded(self, receive: Receive) -> Receive:
        """Count the bytes of a body that does not say how long it is."""
        received = 0

        async def receiving() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._body:
                raise HTTPException(413, self._too_large())
            return message

        return receiving

    def _too_large(self) -> str:
        return f"The body has more than {self._body} bytes, the most that is taken: send fewer texts at once."


def _host(header: bytes) -> str:
    """``localhost:8000`` is the host localhost."""
    try:
        return urlsplit(f"//{header.decode('latin-1')}").hostname or ""
    except ValueError:
        return ""
