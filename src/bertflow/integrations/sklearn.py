"""Text in scikit-learn: sentences to vectors as the first step of a Pipeline; calibrators and classifiers come after it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from bertflow.arrays import Matrix
from bertflow.calibrators import Identity
from bertflow.data import MINI
from bertflow.encoders.base import TextEncoder, View
from bertflow.encoders.choosing import as_encoder
from bertflow.errors import InputError
from bertflow.parts import Part, encode_parts, fit_parts
from bertflow.recipes import make_parts
from bertflow.texts import check_sentences


class SentenceVectors(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Maps texts to vectors of a frozen encoder: the first step of a Pipeline.

    By default they are uncalibrated and nothing is learnt: ``fit`` loads the encoder and remembers which one it was. With a
    ``recipe`` or a ``view``, these are fitted on the texts, without labels. A stored pipeline (joblib) holds the encoder's
    name, not its weights; after loading, other weights under that name are told by a warning. Clones, as ``GridSearchCV``
    makes them, share one loaded encoder; ``Pipeline(…, memory=folder)`` keeps its vectors too.

    Args:
        encoder: ``"mini"``, a Hugging Face id or a folder; or a loaded encoder, which cannot be stored.
        pooling: One of ``bertflow.POOLINGS``; default ``"first-last-avg"``.
        recipe: A name of ``bertflow.recipes()``; default: the encoder's vectors as they are.
        view: Instead of a recipe, a view whose vectors are given as they are, such as ``TokenTable()``.
        random_state: For what is random in a recipe.
        max_length: Tokens read of each text; default: what the model allows.
        revision: A branch, tag or commit of the model on the hub.
        device: Default: cuda, then mps, then cpu.
        verbose: Show a progress bar.

    Attributes:
        fingerprint_: Of the encoder's weights and settings.
        parts_: What was fitted of a recipe or a view; empty without one.

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
        recipe: str | None = None,
        view: View | None = None,
        random_state: int = 0,
        max_length: int | None = None,
        revision: str | None = None,
        device: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.encoder = encoder
        self.pooling = pooling
        self.recipe = recipe
        self.view = view
        self.random_state = random_state
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
        """Load the encoder, and fit the recipe or the view, on texts (a list, a Series, an array, a table of one column)."""
        texts, parts = _texts(X), self._make_parts()
        encoder = self._encoder()
        if parts:
            fit_parts(parts, encoder, list(dict.fromkeys(texts)), show_progress_bar=self.verbose)
        self.fingerprint_ = encoder.fingerprint
        self.parts_ = _bound(parts, None)
        self._n_features_out = sum(part.calibrator.dim for part in parts) if parts else encoder.dim
        return self

    def transform(self, X: object) -> Matrix:
        """Map n texts to float32 vectors (n, d)."""
        check_is_fitted(self)
        texts = _texts(X)
        if self.parts_ and not any(part.view.needs_encoder for part in self.parts_):
            return encode_parts(self.parts_, texts, show_progress_bar=self.verbose)
        encoder = self._encoder()
        if encoder.fingerprint != self.fingerprint_:
            warnings.warn(
                f"This step was fitted with other weights or settings of the encoder {encoder.name!r}, so that what comes "
                "after it may go wrong. Fit again to be sure, or pin revision=….",
                stacklevel=2,
            )
        if not self.parts_:
            return encoder.encode(texts, show_progress_bar=self.verbose)
        return encode_parts(_bound(self.parts_, encoder), texts, show_progress_bar=self.verbose)

    def _make_parts(self) -> list[Part]:
        """Return what is to be fitted, if anything."""
        if self.recipe is not None and self.view is not None:
            raise InputError("recipe and view both say which vectors are wanted; give one of them.")
        if self.recipe is not None:
            return make_parts(self.recipe, self.pooling, random_state=self.random_state, device=self.device)
        return [] if self.view is None else [Part(clone(self.view), Identity())]

    def _encoder(self) -> TextEncoder:
        given = {"max_length": self.max_length, "revision": self.revision, "device": self.device}
        options = {name: value for name, value in given.items() if value is not None}
        pooling = None if self.recipe else self.pooling  # a recipe's views have their own
        if isinstance(self.encoder, str | Path):
            return _loaded(str(self.encoder), pooling, _age(Path(self.encoder)), **options)
        return as_encoder(self.encoder, pooling, **options)

    def __getstate__(self) -> Any:
        """Refuse to store weights: the name is enough, and a pickle of them would be neither small nor safe."""
        if not isinstance(self.encoder, str | Path):
            raise InputError(
                f"A loaded {type(self.encoder).__name__} is not stored with a pipeline, nor sent to other processes: give "
                "the encoder by its name or folder, SentenceVectors('…', pooling='…')."
            )
        return super().__getstate__()


def _bound(parts: Sequence[Part], encoder: TextEncoder | None) -> list[Part]:
    """Return parts whose views have another encoder; without one they can be stored."""
    copies = [replace(part, view=copy.copy(part.view)) for part in parts]
    for part in copies:
        part.view.encoder = encoder
    return copies


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
