"""What the page asks besides search, open to programs too: two texts compared, and the duplicates of a pasted list."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from bertflow.arrays import Matrix
from bertflow.corpus import Significance
from bertflow.serving.openai import as_json, catalogue
from bertflow.serving.schemas import ERRORS, StrictRequest, Text, Texts
from bertflow.serving.served import ServedModel

router = APIRouter(prefix="/v1", tags=["texts"], responses=ERRORS)

ENOUGH = 100  # different texts tell by themselves how near unrelated ones get
DEFAULT_THRESHOLD = 0.9  # where nothing tells it
LOWEST_THRESHOLD = 0.05  # however many wrong pairs may be expected
MOST_WORDS = 64  # of each text are explained; every one costs another encoding
# a word, or one character of a language that writes without spaces
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|(?:(?![\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff])\w)+")


class CompareRequest(StrictRequest):
    """Two texts."""

    text: Text
    other: Text
    model: str | None = None


class WordEffect(BaseModel):
    """A word at ``start`` to ``end`` (in characters), and by how much the cosine is higher with it than without."""

    start: int
    end: int
    effect: float


class Unrelated(BaseModel):
    """What a cosine means among unrelated texts: this share of 100 pairs stays below, one in so many reaches it."""

    percentile: float
    one_in: float


class CompareAnswer(BaseModel):
    """The cosine of two texts, and what it rests on; ``unrelated`` where the service knows texts of the kind."""

    model: str
    cosine: float
    unrelated: Unrelated | None
    text: list[WordEffect]
    other: list[WordEffect]


class DuplicatesRequest(StrictRequest):
    """Texts, and from which cosine two are duplicates: a number, or as many wrong pairs as may be expected."""

    texts: Texts
    threshold: Annotated[float, Field(gt=0, le=1)] | None = None
    expect_false: Annotated[float, Field(gt=0, le=1e9)] = 1
    model: str | None = None


class Group(BaseModel):
    """Texts (rows from 0) that are linked by pairs above the threshold, and the lowest cosine of these pairs."""

    rows: list[int]
    cosine: float


class DuplicatesAnswer(BaseModel):
    """Groups of duplicates, the largest first; ``kept`` are the rows that are left when each group keeps its first."""

    model: str
    threshold: float
    threshold_from: Literal["request", "these texts", "texts of the service", "default"]
    groups: list[Group]
    kept: list[int]


@router.post("/compare", responses={200: {"model": CompareAnswer}})
async def compare(asked: CompareRequest, request: Request) -> Response:
    """How alike two texts are, and which words make them so: each is left out once."""
    model = catalogue(request).model(asked.model)
    spans, shorter = zip(*map(_without_each_word, (asked.text, asked.other)), strict=True)
    vectors, _ = await model.encode([asked.text, asked.other, *shorter[0], *shorter[1]])
    cosine = float(vectors[0] @ vectors[1])
    middle = 2 + len(shorter[0])
    effects = cosine - np.concatenate([vectors[2:middle] @ vectors[1], vectors[middle:] @ vectors[0]])
    words = [
        {"start": start, "end": end, "effect": float(effect)}
        for (start, end), effect in zip((*spans[0], *spans[1]), effects, strict=True)
    ]
    known = model.significance.explain(cosine) if model.significance else None
    unrelated = {"percentile": known.percentile, "one_in": known.one_in} if known else None
    by_text = {"text": words[: len(spans[0])], "other": words[len(spans[0]) :]}
    return as_json({"model": model.name, "cosine": min(max(cosine, -1), 1), "unrelated": unrelated} | by_text)


@router.post("/duplicates", responses={200: {"model": DuplicatesAnswer}})
async def duplicates(asked: DuplicatesRequest, request: Request) -> Response:
    """Groups of texts that say the same."""
    model = catalogue(request).model(asked.model)
    vectors, _ = await model.encode(asked.texts)
    return as_json(await asyncio.to_thread(_duplicates, asked, model, vectors))


def _duplicates(asked: DuplicatesRequest, model: ServedModel, vectors: Matrix) -> dict[str, Any]:
    threshold, source = _threshold(asked, model, vectors)
    groups = linked(vectors, threshold)
    dropped = {row for group in groups for row in group.rows[1:]}
    kept = [row for row in range(len(vectors)) if row not in dropped]
    return {
        "model": model.name, "threshold": threshold, "threshold_from": source, "groups": groups, "kept": kept
    }  # fmt: skip


def _threshold(asked: DuplicatesRequest, model: ServedModel, vectors: Matrix) -> tuple[float, str]:
    """Return the cosine from which two of the texts are duplicates, and where it comes from."""
    if asked.threshold is not None:
        return asked.threshold, "request"
    count = len(vectors)
    if len(set(asked.texts)) >= ENOUGH:
        known, source = Significance.fit(np.unique(vectors, axis=0)), "these texts"
    elif model.significance and count > 1:
        known, source = model.significance, "texts of the service"
    else:
        return DEFAULT_THRESHOLD, "default"
    return max(known.threshold(asked.expect_false, among=count), LOWEST_THRESHOLD), source


def linked(vectors: Matrix, threshold: float) -> list[Group]:
    """Return the groups of rows (n, d) of length one that are linked by cosines from the threshold on."""
    cosines = np.triu(vectors @ vectors.T, 1)
    first, second = np.nonzero(cosines >= threshold - 1e-6)  # equal texts have a cosine that is 1 but for rounding
    links = csr_array((np.ones(len(first)), (first, second)), shape=cosines.shape)
    names = connected_components(links, directed=False)[1]
    lowest = np.ones(len(vectors))
    np.minimum.at(lowest, names[first], cosines[first, second])
    rows_of: dict[int, list[int]] = {}
    for row, name in enumerate(names.tolist()):
        rows_of.setdefault(name, []).append(row)
    found = [Group(rows=rows, cosine=float(lowest[name])) for name, rows in rows_of.items() if len(rows) > 1]
    return sorted(found, key=lambda group: (-len(group.rows), group.rows))


def _without_each_word(text: str) -> tuple[Sequence[tuple[int, int]], list[str]]:
    """Return the places of the words of a text, and the text without each of them."""
    spans = [match.span() for match in WORD.finditer(text)][:MOST_WORDS]
    shorter = [f"{text[:start].rstrip()} {text[end:].lstrip()}".strip() for start, end in spans]
    known = [(span, rest) for span, rest in zip(spans, shorter, strict=True) if rest]
    return [span for span, _ in known], [rest for _, rest in known]
