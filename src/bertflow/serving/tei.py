"""The paths of text-embeddings-inference: /embed and /similarity, which huggingface_hub's client asks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from bertflow.serving.openai import as_json, catalogue
from bertflow.serving.schemas import TEI_ERRORS, EmbedRequest, SimilarityRequest

router = APIRouter(tags=["text-embeddings-inference"], responses=TEI_ERRORS)

ModelName = Annotated[str | None, Query(description="A model's name; the first model without one.")]


@router.post("/embed", responses={200: {"model": list[list[float]]}})
async def embed(asked: EmbedRequest, request: Request, model: ModelName = None) -> Response:
    """The bare vectors, one a text."""
    served = catalogue(request).model(model)
    texts = [asked.inputs] if isinstance(asked.inputs, str) else asked.inputs
    vectors, _ = await served.encode(texts, normalize=asked.normalize, dimensions=asked.dimensions)
    return as_json(vectors.tolist())


@router.post("/similarity", responses={200: {"model": list[float]}})
async def similarity(asked: SimilarityRequest, request: Request, model: ModelName = None) -> Response:
    """The cosine of one text with each of the others."""
    served = catalogue(request).model(model)
    vectors, _ = await served.encode([asked.inputs.source_sentence, *asked.inputs.sentences])
    return as_json((vectors[1:] @ vectors[0]).clip(-1, 1).tolist())
