"""A ``SentenceTransformer`` as an encoder: its own pooling, its own settings."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.encoders.pretrained import quiet_transformers
from bertflow.encoders.transformer import digest_weights
from bertflow.texts import check_sentences


class SentenceTransformerEncoder:
    """A ``SentenceTransformer`` with its own pooling, as an encoder for the flow.

    Args:
        model: The loaded model.
        name: What to call it when saving; default: the id or folder it was loaded from.
    """

    def __init__(self, model: Any, name: str | None = None) -> None:
        self.model = model
        card, transformer = getattr(model, "model_card_data", None), getattr(model, "transformers_model", None)
        source = getattr(getattr(transformer, "config", None), "_name_or_path", None)
        self.name = str(name or getattr(card, "base_model", None) or source or "unnamed")
        self.dim = int(model.get_embedding_dimension())

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all weights and of the modules' classes and settings."""
        digest = hashlib.sha256(f"{self.model.max_seq_length} {self.model!r}".encode())
        digest_weights(digest, self.model)
        return digest.hexdigest()[:32]

    def describe(self) -> dict[str, Any]:
        """Return what is needed to load this encoder again."""
        return {
            "class": "SentenceTransformerEncoder",
            "name": self.name,
            "dim": self.dim,
            "fingerprint": self.fingerprint,
        }

    def save(self, folder: str | Path) -> None:
        """Write the model to ``folder``."""
        with quiet_transformers():
            self.model.save_pretrained(str(folder))

    def encode(self, sentences: Sequence[str], *, show_progress_bar: bool = False) -> Matrix:
        """Map n texts to float32 vectors (n, d)."""
        texts = check_sentences(sentences)
        return np.asarray(self.model.encode(texts, show_progress_bar=show_progress_bar), dtype=np.float32)

    def to(self, device: str) -> SentenceTransformerEncoder:
        """Move the model to a device. Returns itself."""
        self.model.to(device)
        return self
