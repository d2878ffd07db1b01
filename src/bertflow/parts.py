"""Parts: views of a text with their calibrators, fitted together and put side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.calibrators import Calibrator
from bertflow.encoders.base import View, encode_views
from bertflow.encoders.views import Pooled
from bertflow.errors import InputError
from bertflow.storage.checksums import digest_states


@dataclass
class Part:
    """A view of the text and the calibrator of its vectors.

    Args:
        view: Turns text into vectors (n, d).
        calibrator: Maps them to (n, k).
        weight: How much the part counts beside the others; None: as much as it has dimensions.
        scale: What its calibrated vectors are multiplied by. Fitting sets it, so that ``weight`` is their mean square
            length; a lone part keeps 1.
    """

    view: View
    calibrator: Calibrator
    weight: float | None = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no part."""
        if not isinstance(self.view, View) or not isinstance(self.calibrator, Calibrator):
            raise InputError(
                f"A part is a view and a calibrator, such as Part(Pooled('mean'), Whitening()); got "
                f"{type(self.view).__name__} and {type(self.calibrator).__name__}."
            )
        if self.weight is not None and not self.weight > 0:
            raise InputError(f"A part's weight is a positive number, or None; got {self.weight!r}.")


def fit_parts(
    parts: Sequence[Part], encoder: Any, texts: Sequence[str], *, show_progress_bar: bool = False
) -> list[Matrix]:
    """Fit views and calibrators on distinct texts, all views in one pass; the parts are changed in place.

    Args:
        parts: Not fitted yet.
        encoder: The frozen encoder.
        texts: Unlabelled.
        show_progress_bar: Show progress.

    Returns:
        Each view's vectors (n, d) of the texts.
    """
    for part in parts:
        part.view.fit(encoder, texts, show_progress_bar=show_progress_bar)
    views = encode_views([part.view for part in parts], texts, show_progress_bar=show_progress_bar)
    for part, vectors in zip(parts, views, strict=True):
        calibrated = part.calibrator.fit(vectors).transform(vectors)
        if len(parts) > 1:
            set_scale(part, float(np.square(calibrated, dtype=np.float64).sum(1).mean()))
    return views


def set_scale(part: Part, mean_square: float) -> None:
    """Scale a fitted part's calibrated vectors of that mean square length to its weight."""
    weight = part.calibrator.dim if part.weight is None else part.weight
    part.scale = float(np.sqrt(weight / max(mean_square, float(np.finfo(np.float32).tiny))))


def encode_parts(parts: Sequence[Part], texts: Sequence[str], **options: Any) -> Matrix:
    """Map n texts to the parts' calibrated vectors, side by side (n, k); options of ``encode_views``."""
    views = encode_views([part.view for part in parts], texts, **options)
    return join_parts(parts, views)


def join_parts(parts: Sequence[Part], views: Sequence[Matrix]) -> Matrix:
    """Calibrate each view's vectors (n, d), scale them, and put them side by side (n, k)."""
    calibrated = [part.calibrator.transform(vectors) for part, vectors in zip(parts, views, strict=True)]
    if len(parts) == 1 and parts[0].scale == 1:
        return calibrated[0]
    return np.hstack([part.scale * vectors for part, vectors in zip(parts, calibrated, strict=True)])


def identity_of(parts: Sequence[Part]) -> dict[str, str]:
    """Return class and sha256 of fitted parts' calibrators; equal ones give equal vectors."""
    states = [part.calibrator.get_state() for part in parts]
    scales = [part.scale for part in parts]
    digest = digest_states((*state, scale) for state, scale in zip(states, scales, strict=True))
    return {"class": " beside ".join(settings["class"] for settings, _ in states), "sha256": digest}


def split_columns(parts: Sequence[Part], vectors: Matrix) -> list[Matrix]:
    """Cut the views' vectors that stand side by side (n, d) into those of each part."""
    ends = np.cumsum([part.view.dim for part in parts])
    return [np.ascontiguousarray(columns) for columns in np.split(vectors, ends[:-1], axis=1)]


def lone_part(encoder: Any, calibrator: Calibrator) -> Part:
    """Return the part that a fitted calibrator makes with an encoder's own vectors."""
    return Part(Pooled().fit(encoder, ()), calibrator)
