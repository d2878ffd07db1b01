"""Encoders with a memory on disk: a text goes through a transformer once, whatever is tried on its vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.storage.vector_cache import CachedEncoder


class Remembering:
    """An encoder that keeps its vectors on disk, and in all else the one it was.

    Args:
        encoder: The frozen encoder.
        readings: What one pass is to give, where several readings of a text will be asked for one after the other; see
            ``bertflow.recipes.readings``. Others asked for later are passes of their own.
        show_progress_bar: Show progress of what is not known yet.
    """

    def __init__(self, encoder: Any, readings: Sequence[Any] = (), *, show_progress_bar: bool = False) -> None:
        self._encoder, self._readings, self._show = encoder, tuple(readings), show_progress_bar
        self._caches: dict[Any, CachedEncoder] = {}
        if hasattr(encoder, "encode_views"):
            self.encode_views = self._encode_views

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "encode_views":
            raise AttributeError(name)
        return getattr(self._encoder, name)

    def encode(self, sentences: Sequence[str], *, show_progress_bar: bool = False) -> Matrix:
        """Map n texts to (n, d)."""
        return self._cache("", lambda texts: self._encoder.encode(texts, show_progress_bar=self._show)).encode(
            list(sentences)
        )

    def _encode_views(self, sentences: Sequence[str], readings: Sequence[Any], **_: Any) -> list[Matrix]:
        """Return (n, d) of each reading."""
        together = self._readings if set(readings) <= set(self._readings) else tuple(readings)

        def encode(texts: list[str]) -> Matrix:
            return np.hstack(self._encoder.encode_views(texts, together, show_progress_bar=self._show))

        vectors = self._cache(together, encode).encode(list(sentences))
        columns = dict(zip(together, np.split(vectors, len(together), axis=1), strict=True))
        return [np.ascontiguousarray(columns[reading]) for reading in readings]

    def _cache(self, what: Any, encode: Any) -> CachedEncoder:
        if what not in self._caches:
            dtype = getattr(getattr(self._encoder, "model", None), "dtype", "")  # half precision gives other vectors
            self._caches[what] = CachedEncoder(encode, f"{self._encoder.fingerprint} {dtype} {what}")
        return self._caches[what]
