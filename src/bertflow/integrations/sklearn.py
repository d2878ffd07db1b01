"""Text in scikit-learn: sentences to vectors as the first step of a Pipeline; calibrators and classifiers come after it."""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bertflow.arrays import Matrix
from bertflow.data import MINI
from bertflow.encoders.transformer import TextEncoder, as_encoder, check_sentences
from bertflow.errors import InputError


class SentenceVectors(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Maps texts to the vectors of a frozen encoder, uncalibrated: the first step of a Pipeline.

    Nothing is learnt: ``fit`` loads the encoder and remembers which one it was. A stored pipeline (joblib) holds the
    encoder's name, not its weights; after loading, other weights under that name are told by a warning. Clones, as
    ``GridSearchCV`` makes them, share one loaded encoder; ``Pipeline(…, memory=folder)`` keeps its vectors too.

    Args:
        encoder: ``"mini"``, a Hugging Face id or a folder; or a loaded encoder, which cannot be stored.
        pooling: One of ``bertflow.POOLINGS``; default ``"first-last-avg"``.
        max_length: Tokens read of each text; default: what the model allows.
        revision: A branch, tag or commit of the model on the hub.
        device: Default: cuda, then mps, then cpu.
        verbose: Show a progress bar.

    Attributes:
        fingerprint_: Of the encoder's weights and settings.

    Example:
        >>> from sklearn.pipeline import make_pipeline
        >>> from bertflow import SentenceVectors, Standardize
        >>> pipeline = make_pipeline(SentenceVectors("mini"), Standardize())
        >>> pipeline.fit_transform(["One sentence.", "And another.", "A third."]).shape
        (3, 256)
    """

    _n_features_out: int

    def __init__(
        self,
        encoder: Any = MINI,
        *,
        pooling: str | None = None,
        max_length: int | None = None,
        revision: str | None = None,
        device: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.encoder = encoder
        self.pooling = pooling
        self.max_length = max_length
        self.revision = revision
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that texts come in, not numbers."""
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array, tags.input_tags.two_d_array, tags.input_tags.string = True, False, True
        return tags

    def fit(self, X: object, y: object = None) -> SentenceVectors:
        """Load the encoder and check the texts (a list, a Series, an array, or a table of one column)."""
        _texts(X)
        encoder = self._encoder()
        self.fingerprint_ = encoder.fingerprint
        self._n_features_out = encoder.dim
        return self

    def transform(self, X: object) -> Matrix:
        """Map n texts to float32 vectors (n, d)."""
        check_is_fitted(self)
        texts, encoder = _texts(X), self._encoder()
        if encoder.fingerprint != self.fingerprint_:
            warnings.warn(
                f"This step was fitted with other weights or settings of the encoder {encoder.name!r}, so that what comes "
                "after it may go wrong. Fit anew to be sure, or pin revision=….",
                stacklevel=2,
            )
        return encoder.encode(texts, show_progress_bar=self.verbose)

    def _encoder(self) -> TextEncoder:
        given = {"max_length": self.max_length, "revision": self.revision, "device": self.device}
        options = {name: value for name, value in given.items() if value is not None}
        if isinstance(self.encoder, str | Path):
            return _loaded(str(self.encoder), self.pooling, _age(Path(self.encoder)), **options)
        return as_encoder(self.encoder, self.pooling, **options)

    def __getstate__(self) -> Any:
        """Refuse to store weights: the name is enough, and a pickle of them would be neither small nor safe."""
        if not isinstance(self.encoder, str | Path):
            raise InputError(
                f"A loaded {type(self.encoder).__name__} is not stored with a pipeline, nor sent to other processes: give "
                "the encoder by its name or folder, SentenceVectors('…', pooling='…')."
            )
        return super().__getstate__()


@lru_cache(maxsize=2)  # clones come and go; the encoder stays
def _loaded(name: str, pooling: str | None, age: object, **options: Any) -> TextEncoder:
    return as_encoder(name, pooling, **options)


def _age(place: Path) -> object:
    """Tell when a local encoder was last written: one that was trained further must be loaded again."""
    files = place.iterdir() if place.is_dir() else [place] if place.is_file() else []
    return tuple(sorted((file.name, file.stat().st_mtime_ns) for file in files))


def _texts(X: Any) -> list[str]:
    shape: tuple[int, ...] = getattr(X, "shape", ())
    if len(shape) == 2:
        if shape[1] != 1:
            raise InputError(
                f"One column of texts was wanted; X has {shape[1]} columns. In a ColumnTransformer name one column as "
                "'text', not as a list."
            )
        X = np.asarray(X, dtype=object)[:, 0]
    return check_sentences(X)
