"""Why a request is refused: one sentence, the right status, in the form that the client's library expects."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from bertflow.errors import BertflowError, InputError
from bertflow.serving.batching import QueueFullError

logger = logging.getLogger(__name__)

TEI_PATHS = ("/embed", "/similarity")
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}


class Refusal(BertflowError):
    """A request that cannot be answered.

    Args:
        message: A sentence: what came, what was wanted, what to do.
        status: Of HTTP.
        code: A word for programs, as OpenAI's ``code``.
        param: The field that is to blame.
        headers: Of the answer.
    """

    def __init__(
        self,
        message: str,
        status: int = 400,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.headers = status, code, param, headers or {}


def answer(path: str, refusal: Refusal) -> Response:
    """Return a refusal as text-embeddings-inference words it on its own paths, elsewhere as OpenAI does."""
    if path.startswith(TEI_PATHS):
        kinds = {413: "Validation", 422: "Validation", 429: "Overloaded", 500: "Backend"}
        content: dict[str, Any] = {"error": str(refusal), "error_type": kinds.get(refusal.status, "Validation")}
    else:
        kind = KINDS.get(refusal.status, "server_error" if refusal.status >= 500 else "invalid_request_error")
        error = {"message": str(refusal), "type": kind, "param": refusal.param, "code": refusal.code}
        content = {"error": error}
    return JSONResponse(content, refusal.status, refusal.headers)


async def refuse(request: Request, error: Exception) -> Response:
    """Answer an exception; one that nobody expected is logged and not shown."""
    return answer(request.url.path, as_refusal(error, request))


def as_refusal(error: Exception, request: Request) -> Refusal:
    """Return the refusal that an exception amounts to."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, QueueFullError):
        return Refusal(str(error), 429, code="queue_full", headers={"Retry-After": str(error.retry_after)})
    if isinstance(error, RequestValidationError):
        return _invalid(error, 422 if request.url.path.startswith(TEI_PATHS) else 400)
    if isinstance(error, HTTPException):
        return Refusal(_sentence(error, request), error.status_code, headers=dict(error.headers or {}))
    if isinstance(error, InputError):
        return Refusal(str(error))
    logger.error("%s %s failed.", request.method, request.url.path, exc_info=error)
    return Refusal("The service failed on this request; its log says why.", 500)


def _sentence(error: HTTPException, request: Request) -> str:
    if error.status_code == 404:
        return f"There is nothing at {request.url.path:.200}; /openapi.json lists what there is."
    if error.status_code == 405:
        return f"{request.method} is not possible at {request.url.path:.200}."
    text = str(error.detail)
    if text == HTTPStatus(error.status_code).phrase or "parsing the body" in text:
        return "The body cannot be read as JSON in UTF-8."
    return text


def _invalid(error: RequestValidationError, status: int) -> Refusal:
    """Say in one sentence what is wrong with the first field that is."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return Refusal("The body is not JSON: send an object, with Content-Type: application/json.", 400)
    path = [str(part) for part in first["loc"] if part != "body"]
    field = path[0] if path else None
    if field is None:
        return Refusal("The body must be a JSON object, sent with Content-Type: application/json.", status)
    if first["type"] == "missing":
        return Refusal(f"The field {field!r} is missing.", status, param=field)
    got = first.get("input")
    got = got.get(field) if isinstance(got, dict) and field in got else got
    wanted = FIELDS.get(field, first["msg"].lower())
    return Refusal(f"The field {field!r} must be {wanted}; got {_short(got)}.", status, param=field)


FIELDS = {
    "input": "a text, a list of texts, a list of token ids, or a list of such lists, and not empty",
    "inputs": "a text or a list of texts, and not empty; for /similarity an object with source_sentence and sentences",
    "model": "the name of a model, as /v1/models lists them",
    "encoding_format": "'float' or 'base64'",
    "dimensions": "a whole number, 1 or more",
    "index": "the name of an index, as /v1/indexes lists them",
    "query": "a text or a list of texts, each with something to look for",
    "k": "a whole number from 1 to 100",
    "texts": "a list of texts, and not empty",
    "text": "a text, and not empty",
    "other": "a text, and not empty",
    "normalize": "true or false",
    "truncate": "true or false",
    "threshold": "a cosine above 0, up to 1",
    "expect_false": "a number above 0",
}


def _short(value: Any) -> str:
    if isinstance(value, str | int | float) or value is None:
        return repr(value)[:60].encode("ascii", "backslashreplace").decode()
    return "an object" if isinstance(value, dict) else "a list with something else in it"
