"""The ASGI application: all paths, behind the guard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from bertflow.errors import BertflowError
from bertflow.serving import openai, page, pasted, search, tei
from bertflow.serving.guard import Guard
from bertflow.serving.limits import Keys
from bertflow.serving.metrics import CONTENT_TYPE
from bertflow.serving.refusals import refuse
from bertflow.serving.schemas import ERRORS, Health
from bertflow.serving.served import Catalogue
from bertflow.version import __version__


def make_app(catalogue: Catalogue, keys: Keys, hosts: Collection[str] | None) -> FastAPI:
    """Return the application that serves a catalogue."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await catalogue.finish()

    # FastAPI's own pages about the interface would load scripts from elsewhere
    app = FastAPI(title="bertflow", version=__version__, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.catalogue = catalogue
    for room in (openai, tei, search, pasted, page):
        app.include_router(room.router)
    app.add_api_route("/health", _health, response_model=Health, responses=ERRORS, tags=["service"])
    app.add_api_route(
        "/metrics", _metrics, responses=ERRORS | {200: {"content": {"text/plain": {}}}}, response_class=Response,
        tags=["service"],
    )  # fmt: skip
    for kind in (BertflowError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refuse)
    app.add_middleware(Guard, keys=keys, body=catalogue.limits.body, metrics=catalogue.metrics, hosts=hosts)
    return app


async def _health() -> Health:
    """Answer as long as the service does."""
    return Health(status="ok")


async def _metrics(request: Request) -> Response:
    """Counts and times, as Prometheus reads them."""
    return Response(openai.catalogue(request).metrics.text(), media_type=CONTENT_TYPE)
