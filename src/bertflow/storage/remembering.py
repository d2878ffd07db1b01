"""Encoders with a memory on disk: a text goes through a transformer once, whatever is tried on its vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.encoders.transformer import Encoder, TextEncoder, View
from bertflow.evaluation import CachedEncoder


def cached(
    encoder: TextEncoder, views: Sequence[View] | None = None, *, show_progress_bar: bool = False
) -> Callable[[Sequence[str]], Matrix]:
    """Return ``encoder.encode`` with a memory on disk: each sentence is encoded once, ever.

    Args:
        encoder: The frozen encoder.
        views: Of an ``Encoder``: its ``encode_views`` instead, their vectors side by side.
        show_progress_bar: Show progress of what is not known yet.
    """
    dtype = getattr(getattr(encoder, "model", None), "dtype", "")  # half precision gives other vectors
    fingerprint = f"{encoder.fingerprint} {dtype}"
    if views is None or not isinstance(encoder, Encoder):
        return CachedEncoder(
            lambda texts: encoder.encode(texts, show_progress_bar=show_progress_bar), fingerprint
        ).encode
    return CachedEncoder(
        lambda texts: np.hstack(encoder.encode_views(texts, views, show_progress_bar=show_progress_bar)),
        f"{fingerprint} {views}",
    ).encode


class Remembering:
    """An encoder that is ``cached``, and in all else the one it was.

    Args:
        encoder: The frozen encoder.
        show_progress_bar: Show progress of what is not known yet.
    """

    name: str
    dim: int
    fingerprint: str
    describe: Callable[[], dict[str, Any]]

    def __init__(self, encoder: TextEncoder, *, show_progress_bar: bool = False) -> None:
        self._encoder = encoder
        self._cached = cached(encoder, show_progress_bar=show_progress_bar)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def encode(self, sentences: Sequence[str], *, show_progress_bar: bool = False) -> Matrix:
        """Map n texts to (n, d)."""
        return self._cached(list(sentences))
