"""The presets `static` and `best`: token vectors, alone or beside those of the words in their sentence."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.calibrators import Calibrator, Whitening, WhiteningBesideFlow
from bertflow.encoders.transformer import Encoder, as_encoder
from bertflow.encoders.token_table import StaticEncoder

STATIC, BEST = TOKEN_PRESETS = "static", "best"
SHRINKAGE = 0.5  # adds the mean eigenvalue to all
WORDS_IN_CONTEXT = "first-last-avg", True  # the paper's pooling, but of words only


class JoinedEncoder:
    """What the preset ``best`` encodes with: single tokens, and beside them the words in their sentence.

    Args:
        static: Gives (n, k).
        contextual: Gives (n, d).
    """

    def __init__(self, static: StaticEncoder, contextual: Encoder) -> None:
        self.static, self.contextual = static, contextual
        self.name = contextual.name
        self.dim = static.dim + contextual.dim

    @cached_property
    def fingerprint(self) -> str:
        """Hash of both."""
        return hashlib.sha256(f"{self.static.fingerprint} {self.contextual.fingerprint}".encode()).hexdigest()[:32]

    def describe(self) -> dict[str, Any]:
        """Return what is needed to load the contextual one again; ``save`` keeps the table."""
        ours = {"kind": "joined", "name": self.name, "dim": self.dim, "fingerprint": self.fingerprint}
        return ours | {"contextual": self.contextual.describe()}

    def encode(self, sentences: Sequence[str], *, show_progress_bar: bool = False) -> Matrix:
        """Map n texts to float32 vectors (n, k + d)."""
        contextual = self.contextual.encode(sentences, show_progress_bar=show_progress_bar)
        return np.hstack([self.static.encode(sentences), contextual])

    def save(self, folder: str | Path) -> None:
        """Write the transformer and the table to ``folder``."""
        self.contextual.save(folder)
        self.save_table(folder)

    def save_table(self, folder: str | Path) -> None:
        """Write the table alone; the transformer is loaded again by its name."""
        self.static.save(Path(folder) / STATIC)

    @classmethod
    def load(cls, folder: str | Path, contextual: dict[str, Any], **options: Any) -> JoinedEncoder:
        """Read what ``save`` or ``save_table`` wrote; ``contextual`` is what that encoder's ``describe`` said."""
        whole = (Path(folder) / "config.json").is_file()
        settings = {name: contextual[name] for name in ("max_length", "words_only")} | options
        if not whole:
            settings |= {"revision": contextual["revision"]}
        encoder = Encoder(str(folder) if whole else contextual["name"], contextual["pooling"], **settings)
        encoder.name = contextual["name"]
        return cls(StaticEncoder.load(Path(folder) / STATIC), encoder)


def distill(
    preset: str,
    encoder: Any,
    sentences: Sequence[str],
    *,
    random_state: int = 0,
    show_progress_bar: bool = False,
    **options: Any,
) -> StaticEncoder | JoinedEncoder:
    """Return the encoder of the preset ``"static"`` or ``"best"``.

    Args:
        preset: Which.
        encoder: A model's name or folder, or an ``Encoder``, whose pooling then stays.
        sentences: The user's text, which says how rare each token is.
        random_state: Seeds the tokens' features.
        show_progress_bar: Show progress.
        options: Of ``Encoder``.
    """
    if isinstance(encoder, str | Path):
        pooling, words_only = WORDS_IN_CONTEXT
        encoder = as_encoder(encoder, pooling, words_only=words_only, **options)
    table = StaticEncoder.distill(encoder, sentences, random_state=random_state, show_progress_bar=show_progress_bar)
    return table if preset == STATIC else JoinedEncoder(table, encoder)


def calibrator_for(encoder: StaticEncoder | JoinedEncoder, **of_flow: Any) -> Calibrator:
    """Return the calibrator of the preset that ``encoder`` belongs to, not fitted yet.

    Args:
        encoder: What ``distill`` gave.
        of_flow: ``random_state``, ``device``, ``verbose`` of ``FlowCalibrator``.
    """
    if isinstance(encoder, StaticEncoder):
        return Whitening(shrinkage=SHRINKAGE)
    return WhiteningBesideFlow(encoder.contextual.dim, shrinkage=SHRINKAGE, **of_flow)
