"""The plain view: what a pooling makes of a transformer's hidden states, or what an encoder gives by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertflow.arrays import Matrix
from bertflow.encoders.base import Deferred, Reading, TextEncoder, View
from bertflow.encoders.pooling import check_pooling
from bertflow.errors import InputError
from bertflow.texts import word_tokens

if TYPE_CHECKING:
    from bertflow.encoders.modules import ViewModule


class Pooled(View):
    """A pooling of a transformer's hidden states; of any other encoder, its own vectors.

    Args:
        pooling: One of ``bertflow.POOLINGS``; None is the encoder's own.
        words_only: Pool only tokens that have a letter or a digit: no punctuation, no special tokens (but ``cls`` stays).
            None is the encoder's own choice.
    """

    def __init__(self, pooling: str | None = None, *, words_only: bool | None = None) -> None:
        self.pooling = pooling
        self.words_only = words_only

    def _bind(self, encoder: TextEncoder, show_progress_bar: bool) -> None:
        if not hasattr(encoder, "encode_views") and (self.pooling or self.words_only):
            raise InputError(
                f"The encoder {encoder.name!r} brings its own pooling; the pooling {self.pooling or 'words only'!r} needs a "
                "transformer, given by its name or folder."
            )
        if self.pooling:
            check_pooling(self.pooling)
        self.dim = encoder.dim

    def restore(self, folder: Path, described: dict[str, Any], encoder: Any) -> None:
        """Bind to the encoder; one that is not loaded yet stays so."""
        if not isinstance(encoder, Deferred):
            return super().restore(folder, described, encoder)
        self.encoder, self.dim = encoder, int(described["dim"])
        return None

    @property
    def reading(self) -> Reading | None:
        """The pooling, where the encoder is a transformer."""
        if not hasattr(self.encoder, "encode_views"):
            return None
        words_only = self.encoder.words_only if self.words_only is None else self.words_only
        return Reading(self.pooling or self.encoder.pooling, words_only)

    def encode(self, texts: Sequence[str], *, show_progress_bar: bool = False) -> Matrix:
        """Map n texts to float32 vectors (n, d)."""
        if self.reading is None:
            return self.encoder.encode(texts, show_progress_bar=show_progress_bar)
        return super().encode(texts, show_progress_bar=show_progress_bar)

    def as_module(self, pad_token_id: int) -> ViewModule:
        """Return the pooling as a torch module; for an encoder that pools by itself, what passes its vectors on."""
        import torch

        from bertflow.encoders.modules import GivenVectors, PooledTokens

        if self.reading is None:
            return GivenVectors()
        words = torch.from_numpy(word_tokens(self.encoder.tokenizer)) if self.reading.words_only else None
        return PooledTokens(self.reading.pooling, words)
