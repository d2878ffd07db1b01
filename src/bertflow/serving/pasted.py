"""What the page asks besides search, open to programs too: two texts compared, and the duplicates of a pasted list."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from bertflow.arrays import Matrix
from bertflow.corpus import Law, Significance, find_duplicates
from bertflow.serving.openai import as_json, catalogue
from bertflow.serving.schemas import ERRORS, StrictRequest, Text, Texts
from bertflow.serving.served import ServedModel

router = APIRouter(prefix="/v1", tags=["texts"], responses=ERRORS)

ENOUGH = 100  # different texts tell by themselves how near unrelated ones get
DEFAULT_THRESHOLD = 0.9  # where nothing tells it
ANY_LAW = Law(0, 1, 0, 1)
Source = Literal["request", "these texts", "texts of the service", "default"]
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
    expect_false: Annotated[float, Field(gt=0, le=1e9)] = 0.1
    model: str | None = None


class Group(BaseModel):
    """Texts (rows from 0) that say the same as the first of them, and the lowest cosine with it."""

    rows: list[int]
    cosine: float


class BorderlinePair(BaseModel):
    """Two texts (rows from 0) whose cosine lies just above or just below the threshold."""

    first: int
    second: int
    cosine: float


class DuplicatesAnswer(BaseModel):
    """Groups of duplicates, the largest first; ``kept`` are the rows that are left when each group keeps its first."""

    model: str
    threshold: float
    threshold_from: Source
    groups: list[Group]
    kept: list[int]
    borderline: list[BorderlinePair]


@dataclass(frozen=True)
class _Chosen(Significance):
    """A threshold that was chosen, whatever unrelated texts do."""

    cosine: float = DEFAULT_THRESHOLD

    def threshold_of_share(self, share: float, *, query: bool = False) -> float:
        """Return it, whatever the share."""
        return self.cosine

    def exceedance(self, cosine: Any, *, query: bool = False) -> Any:
        """Return 0: unrelated texts are not looked at."""
        return np.zeros(np.shape(cosine))


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
    significance, source = _significance(asked, model)
    expected = 0.5 if isinstance(significance, _Chosen) else asked.expect_false
    found = find_duplicates(asked.texts, vectors=vectors, expect_false=expected, significance=significance)
    cosine = {pair.first: pair.cosine for pair in found.removed}
    groups = [{"rows": rows, "cosine": min(cosine[row] for row in rows[1:])} for rows in found.groups]
    return {
        "model": model.name,
        "threshold": found.threshold,
        "threshold_from": source,
        "groups": sorted(groups, key=lambda group: -len(group["rows"])),
        "kept": found.kept,
        "borderline": [
            {"first": pair.first, "second": pair.second, "cosine": pair.cosine} for pair in found.borderline
        ],
    }


def _significance(asked: DuplicatesRequest, model: ServedModel) -> tuple[Significance | None, Source]:
    """Return what says how near unrelated texts get, None for the texts themselves, and where it comes from."""
    if asked.threshold is not None:
        return _Chosen(ANY_LAW, cosine=asked.threshold), "request"
    if len(set(asked.texts)) >= ENOUGH:
        return None, "these texts"
    if model.significance:
        return model.significance, "texts of the service"
    return _Chosen(ANY_LAW), "default"


def _without_each_word(text: str) -> tuple[Sequence[tuple[int, int]], list[str]]:
    """Return the places of the words of a text, and the text without each of them."""
    spans = [match.span() for match in WORD.finditer(text)][:MOST_WORDS]
    shorter = [f"{text[:start].rstrip()} {text[end:].lstrip()}".strip() for start, end in spans]
    known = [(span, rest) for span, rest in zip(spans, shorter, strict=True) if rest]
    return [span for span, _ in known], [rest for _, rest in known]
