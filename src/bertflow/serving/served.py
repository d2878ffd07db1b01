"""What the service offers by name: models, and indexes with the model they were built with."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from bertflow.arrays import Matrix, unit_rows
from bertflow.corpus import Significance
from bertflow.errors import InputError
from bertflow.serving.batching import Batcher
from bertflow.serving.limits import Limits
from bertflow.serving.metrics import Metrics
from bertflow.serving.refusals import Refusal

BYTES_A_TOKEN = 4  # of UTF-8: near enough for English and Chinese


class Model(Protocol):
    """All that the service sees of a model."""

    @property
    def dim(self) -> int:
        """Dimensions of the vectors."""

    def encode(self, sentences: list[str]) -> Any:
        """Map n texts to an array (n, d)."""


class Index(Protocol):
    """All that the service sees of a search index."""

    def search(self, queries: list[str], k: int) -> Any:
        """Return an object whose ``hits`` has a list for each query."""

    def __len__(self) -> int: ...


class ServedModel:
    """A model with its queue.

    Args:
        name: What clients call it.
        model: Anything with ``encode`` and ``dim``.
        limits: Of the queue and its batches.
        metrics: Where batches are counted.
        together: Whether requests are batched.
    """

    def __init__(self, name: str, model: Model, limits: Limits, metrics: Metrics, together: bool = True) -> None:
        self.name, self.model, self.dim = name, model, int(model.dim)
        self.significance: Significance | None = getattr(model, "significance", None)
        self._limits = limits
        self._batcher: Batcher[str, Any] = Batcher(
            model.encode,
            budget=limits.batch_tokens,
            limit=limits.queue,
            together=together,
            observe=lambda done: metrics.batch(name, done, self._batcher.waiting),
        )

    async def encode(
        self, texts: Sequence[str], *, normalize: bool = True, dimensions: int | None = None
    ) -> tuple[Matrix, int]:
        """Return the vectors (n, d) of texts, and how many tokens these have.

        Args:
            texts: One or more.
            normalize: Scale each vector to length one.
            dimensions: Only the first ones; refused where these are not the ones that tell most.
        """
        check_texts(texts, self._limits)
        self._check_dimensions(dimensions)
        tokens = self.tokens(texts)
        vectors = np.stack(await self._batcher.submit(texts, tokens))[:, :dimensions]
        return unit_rows(vectors) if normalize else vectors, sum(tokens)

    def learn(self, texts: Sequence[str]) -> None:
        """Learn from texts, of which few say the same, how often unrelated ones reach a cosine."""
        self.significance = Significance.fit(texts, self.model)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Return how many tokens each text has: as the model counts them, or else estimated."""
        count = getattr(self.model, "count_tokens", None)
        return list(count(texts)) if count else [estimated_tokens(text) for text in texts]

    def _check_dimensions(self, dimensions: int | None) -> None:
        if dimensions is None or dimensions == self.dim:
            return
        if dimensions > self.dim:
            raise Refusal(f"The model {self.name!r} gives {self.dim} dimensions, not {dimensions}.", param="dimensions")
        if not is_ordered(self.model):
            raise Refusal(
                f"The dimensions of the model {self.name!r} are in no order, so that none can be left out: ask for all "
                f"{self.dim}, or serve a model of a whitening recipe, which orders them.",
                param="dimensions",
            )

    async def finish(self) -> None:
        """Answer what waits, and stop."""
        await self._batcher.finish()


class ServedIndex:
    """An index with its queue: queries of all clients are embedded and searched together."""

    def __init__(self, name: str, index: Index, limits: Limits, metrics: Metrics, together: bool = True) -> None:
        self.name, self.index = name, index
        self._limits = limits
        self._batcher: Batcher[tuple[str, int], Any] = Batcher(
            self._search,
            budget=limits.batch_tokens,
            limit=limits.queue,
            together=together,
            observe=lambda done: metrics.batch(f"index {name}", done, self._batcher.waiting),
        )

    async def search(self, queries: Sequence[str], k: int) -> list[list[Any]]:
        """Return the best ``k`` hits of each query."""
        check_texts(queries, self._limits)
        found = await self._batcher.submit(
            [(query, k) for query in queries], [estimated_tokens(query) for query in queries]
        )
        return [hits[:k] for hits in found]

    def _search(self, asked: list[tuple[str, int]]) -> list[list[Any]]:
        hits = self.index.search([query for query, _ in asked], max(k for _, k in asked)).hits
        return list(hits)

    async def finish(self) -> None:
        """Answer what waits, and stop."""
        await self._batcher.finish()


class Catalogue:
    """The models and indexes of a service by name, and what all of them share."""

    def __init__(
        self,
        models: Mapping[str, Model],
        indexes: Mapping[str, Index],
        limits: Limits | None = None,
        together: bool = True,
    ) -> None:
        if not models and not indexes:
            raise InputError("There is nothing to serve: give a model or an index.")
        self.limits, self.metrics, self.since = limits or Limits(), Metrics(), int(time.time())
        shared = (self.limits, self.metrics, together)
        self.models = {name: ServedModel(name, model, *shared) for name, model in models.items()}
        self.indexes = {name: ServedIndex(name, index, *shared) for name, index in indexes.items()}

    def model(self, name: str | None) -> ServedModel:
        """Return a model by name; the first one without a name."""
        return _named("model", name, self.models)

    def index(self, name: str | None) -> ServedIndex:
        """Return an index by name; the first one without a name."""
        return _named("index", name, self.indexes)

    async def finish(self) -> None:
        """Answer what waits, and stop."""
        queues: list[ServedModel | ServedIndex] = [*self.models.values(), *self.indexes.values()]
        for one in queues:
            await one.finish()


def _named(what: str, name: str | None, known: Mapping[str, Any]) -> Any:
    name = next(iter(known), "") if name is None else name
    if name not in known:
        there = ", ".join(map(repr, known)) or "none"
        raise Refusal(
            f"There is no {what} {name[:80]!r} here; there is: {there}.",
            404,
            code=f"{what}_not_found",
            param=what,
        )
    return known[name]


def check_texts(texts: Sequence[str], limits: Limits) -> None:
    """Refuse too many texts, too long ones, and empty ones."""
    if len(texts) > limits.texts:
        raise Refusal(
            f"{len(texts)} texts came in one request; at most {limits.texts} are taken: send them in parts.",
            413,
            code="too_many_texts",
        )
    for number, text in enumerate(texts):
        if not text:
            raise Refusal(f"Text {number} is empty: leave it out, or send what it should say.")
        if len(text) > limits.characters:
            raise Refusal(
                f"Text {number} has {len(text)} characters; at most {limits.characters} are taken: split it.",
                413,
                code="text_too_long",
            )


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has, without a tokenizer."""
    return math.ceil(len(text.encode()) / BYTES_A_TOKEN)


def is_ordered(model: Any) -> bool:
    """Whether a model's first dimensions are those of most variance, so that the last ones can be left out."""
    parts = getattr(model, "parts", [model])
    return len(parts) == 1 and getattr(getattr(parts[0], "calibrator", None), "method", None) == "pca"
