"""Views as torch modules, for exports: from token ids and what a transformer makes of them to vectors (n, d)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from bertflow.encoders.pooling import layers_of, pool
from bertflow.errors import InputError

States: TypeAlias = Sequence[Tensor] | Mapping[int, Tensor]


class ViewModule(nn.Module):
    """A fitted view in torch. A subclass can be rebuilt from ``settings`` and its buffers, by its class name.

    Attributes:
        settings: Arguments that are not tensors, as JSON.
        layers: The hidden states that it reads.
    """

    registry: ClassVar[dict[str, type[ViewModule]]] = {}
    settings: dict[str, Any]
    layers: tuple[int, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make every module loadable by its class name."""
        super().__init_subclass__(**kwargs)
        ViewModule.registry[cls.__name__] = cls

    def forward(self, states: States, ids: Tensor, mask: Tensor) -> Tensor:
        """Return vectors (n, d).

        Args:
            states: Hidden states (n, tokens, d) by their number; or the encoder's own vectors (n, d).
            ids: Token ids (n, tokens).
            mask: Attention mask (n, tokens), padding on the right.
        """
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """Return class and settings, as JSON."""
        return {"class": type(self).__name__, **self.settings}

    @staticmethod
    def rebuild(described: dict[str, Any], tensors: dict[str, Tensor]) -> ViewModule:
        """Return the module that ``describe`` and ``state_dict`` told of."""
        settings = dict(described)
        name = settings.pop("class", None)
        if name not in ViewModule.registry:
            raise InputError(f"Unknown view {name!r}; this version knows {', '.join(sorted(ViewModule.registry))}.")
        return ViewModule.registry[name](**settings, **tensors)


class GivenVectors(ViewModule):
    """The vectors of an encoder that pools by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = {}

    def forward(self, states: Any, ids: Tensor, mask: Tensor) -> Tensor:
        """Return them."""
        return states.float()


class PooledTokens(ViewModule):
    """A pooling of hidden states.

    Args:
        pooling: One of ``bertflow.POOLINGS``.
        words: Which tokens are words (tokens,), if only these are pooled.
    """

    words: Tensor | None

    def __init__(self, pooling: str, words: Tensor | None = None) -> None:
        super().__init__()
        self.settings = {"pooling": pooling}
        self.layers = layers_of(pooling)
        self.register_buffer("words", words)

    def forward(self, states: States, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the pooled states (n, d); of a text without words, those of all its tokens."""
        if self.words is not None:
            words = mask * self.words[ids]
            mask = torch.where((words > 0).any(1, keepdim=True), words, mask)
        return pool(states, mask, self.settings["pooling"])


class TokenMeans(ViewModule):
    """Weighted means of rows of a table.

    Args:
        vectors: Of each token (tokens, k); half precision is enough, since the table was rounded to it.
        weights: Of each token (tokens,).
        nothing: The vector of a text without tokens (k,).
        before: Special tokens before every text.
        after: Special tokens behind it.
        padding: The token that stands where a text has none at all.
    """

    vectors: Tensor
    weights: Tensor
    nothing: Tensor

    def __init__(
        self, vectors: Tensor, weights: Tensor, nothing: Tensor, *, before: int, after: int, padding: int
    ) -> None:
        super().__init__()
        self.settings = {"before": before, "after": after, "padding": padding}
        self.before, self.after, self.padding = before, after, padding
        self.register_buffer("vectors", vectors)
        self.register_buffer("weights", weights)
        self.register_buffer("nothing", nothing)

    def forward(self, states: Any, ids: Tensor, mask: Tensor) -> Tensor:
        """Return the means (n, k); of a text without words, all its tokens count alike."""
        place = mask.cumsum(1)
        own = (mask > 0) & (place > self.before) & (place <= place[:, -1:] - self.after) & (ids != self.padding)
        weights = self.weights[ids] * own
        weights = torch.where((weights > 0).any(1, keepdim=True), weights, own.to(weights.dtype))
        shares = weights / weights.sum(1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
        means = (shares[:, None] @ self.vectors[ids].to(shares.dtype))[:, 0]
        return torch.where(own.any(1, keepdim=True), means, self.nothing)


def surrounding(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return how many special tokens stand before and behind every text."""
    empty, letter = tokenizer.encode("").ids, tokenizer.encode("a").ids
    before = next((i for i, (a, b) in enumerate(zip(empty, letter, strict=False)) if a != b), len(empty))
    return before, len(empty) - before
