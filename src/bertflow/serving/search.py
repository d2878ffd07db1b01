"""Search over indexes that `bertflow index build` wrote."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Request
from fastapi.responses import Response

from bertflow.serving.openai import as_json, catalogue
from bertflow.serving.schemas import ERRORS, IndexCard, Indexes, SearchAnswer, SearchRequest

router = APIRouter(prefix="/v1", tags=["search"], responses=ERRORS)


@router.get("/indexes")
async def indexes(request: Request) -> Indexes:
    """All indexes by name."""
    known = catalogue(request).indexes.values()
    return Indexes(object="list", data=[IndexCard(id=one.name, object="index", texts=len(one.index)) for one in known])


@router.post("/search", responses={200: {"model": SearchAnswer}})
async def search(asked: SearchRequest, request: Request) -> Response:
    """The nearest texts to each query, best first."""
    index = catalogue(request).index(asked.index)
    queries = [asked.query] if isinstance(asked.query, str) else asked.query
    found = await index.search(queries, asked.k)
    data = [{"query": query, "hits": [asdict(hit) for hit in hits]} for query, hits in zip(queries, found, strict=True)]
    return as_json({"index": index.name, "data": data})
