"""The paths of OpenAI's interface: /v1/embeddings and /v1/models."""

from __future__ import annotations

import base64
import hashlib
import importlib
import os
import tempfile
from pathlib import Path
from typing import Any, cast

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic_core import to_json

from bertflow.arrays import Matrix
from bertflow.serving.refusals import Refusal
from bertflow.serving.schemas import ERRORS, EmbeddingsAnswer, EmbeddingsRequest, ModelCard, Models
from bertflow.serving.served import Catalogue, ServedModel

router = APIRouter(prefix="/v1", tags=["OpenAI"], responses=ERRORS)

ENCODING = "cl100k_base"  # what LangChain and Dify send for a model that they do not know
ENCODING_FILE = (
    f"https://openaipublic.blob.core.windows.net/encodings/{ENCODING}.tiktoken"  # its name in tiktoken's cache
)


@router.post("/embeddings", responses={200: {"model": EmbeddingsAnswer}})
async def embeddings(asked: EmbeddingsRequest, request: Request) -> Response:
    """Vectors of length one, so that a dot product is the cosine."""
    model = catalogue(request).model(asked.model)
    vectors, tokens = await model.encode(_texts(asked.input), dimensions=asked.dimensions)
    rows = _base64(vectors) if asked.encoding_format == "base64" else vectors.tolist()
    return as_json(
        {
            "object": "list",
            "data": [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)],
            "model": model.name,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )


@router.get("/models")
async def models(request: Request) -> Models:
    """All models by name."""
    known = catalogue(request)
    return Models(object="list", data=[_card(model, known.since) for model in known.models.values()])


@router.get("/models/{name:path}")
async def model(name: str, request: Request) -> ModelCard:
    """One model."""
    known = catalogue(request)
    return _card(known.model(name), known.since)


def catalogue(request: Request) -> Catalogue:
    """Return what the service that was asked offers."""
    return cast(Catalogue, request.app.state.catalogue)


def as_json(content: Any) -> Response:
    """Answer with JSON, written in Rust: most of an answer is digits."""
    return Response(to_json(content), media_type="application/json")


def _card(served: ServedModel, since: int) -> ModelCard:
    return ModelCard(id=served.name, object="model", created=since, owned_by="bertflow", dim=served.dim)


def _base64(vectors: Matrix) -> list[str]:
    return [base64.b64encode(row.tobytes()).decode() for row in vectors.astype("<f4")]


def _texts(given: str | list[Any]) -> list[str]:
    """Return the texts of any form of ``input``."""
    if isinstance(given, str):
        return [given]
    if isinstance(given[0], str):
        return given
    rows = given if isinstance(given[0], list) else [given]
    return decoded(rows)


def decoded(rows: list[list[int]]) -> list[str]:
    """Return the texts of lists of token ids, where their alphabet is on this machine; nothing is downloaded."""
    place = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    folder = Path(place) if place else Path(tempfile.gettempdir()) / "data-gym-cache"
    here = (folder / hashlib.sha1(ENCODING_FILE.encode(), usedforsecurity=False).hexdigest()).is_file()
    try:
        encoding = importlib.import_module("tiktoken").get_encoding(ENCODING) if here else None
    except (ImportError, OSError, ValueError):  # not installed, or another file of that name
        encoding = None
    if encoding is None:
        raise Refusal(
            f"Token ids came, and this service has no file to read them by: send text. In LangChain that is "
            f"OpenAIEmbeddings(check_embedding_ctx_length=False). To take ids, put tiktoken's {ENCODING} into its cache.",
            param="input",
        )
    try:
        return [encoding.decode(row) for row in rows]
    except (KeyError, OverflowError, ValueError):
        raise Refusal(f"A token id is not one of {ENCODING}: send text instead.", param="input") from None
