"""Rogue dimensions: a few coordinates that make all vectors look alike (Timkey & van Schijndel, EMNLP 2021)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bertflow.errors import InputError
from bertflow.geometry.figures import Figures
from bertflow.geometry.rows import Rows, moments_of


@dataclass(frozen=True)
class Dimension:
    """One dimension.

    Args:
        index: From 0.
        mean: Mean of the vectors' values there.
        deviation: Their standard deviation.
        share: Its share of the mean cosine, 0 to 1.
    """

    index: int
    mean: float
    deviation: float
    share: float


@dataclass(frozen=True)
class RogueDimensions(Figures):
    """How the mean cosine of random rows is spread over the dimensions.

    Args:
        dim: d.
        mean_cosine: Sum of all contributions; pairs of a row with itself are included.
        top: The dimensions with the largest shares, largest first.
        half: How many of the strongest dimensions make half of the mean cosine; d/2 if all contributed the same.
        outliers: Dimensions whose mean lies more than ``threshold`` of their own deviations from 0, by index.
        threshold: That number, 3 by default.
    """

    dim: int
    mean_cosine: float
    top: tuple[Dimension, ...]
    half: int
    outliers: tuple[int, ...]
    threshold: float


def rogue_dimensions(rows: Rows, *, top: int = 5, threshold: float = 3.0) -> RogueDimensions:
    """Find the dimensions that dominate cosine.

    The cosine of u and v is Σ uᵢvᵢ over vectors of length one, so dimension i contributes E[uᵢvᵢ] to the mean cosine of
    random pairs. Over all pairs, those of a row with itself included, this is E[uᵢ]²: never negative, and within 1/n of the
    published estimate over sampled pairs. The share is E[uᵢ]² / Σⱼ E[uⱼ]². For vectors without a common direction the mean
    cosine is near 0, and the shares are shares of noise: look at ``mean_cosine`` first.

    Args:
        rows: An (n, d) array, memory map or tensor, or a re-iterable of batches; see ``bertflow.geometry.rows.blocks``.
        top: How many dimensions to list.
        threshold: |mean| / deviation from which a dimension counts as an outlier.
    """
    plain, units = moments_of(rows)
    contributions = units.mean**2
    total = float(contributions.sum())
    if not total > 0:
        raise InputError("The mean of the rows is exactly zero: no dimension contributes to their mean cosine.")
    shares = contributions / total
    order = np.argsort(-shares, kind="stable")
    deviations = np.sqrt(plain.variance)
    return RogueDimensions(
        dim=len(shares),
        mean_cosine=total,
        top=tuple(Dimension(int(i), float(plain.mean[i]), float(deviations[i]), float(shares[i])) for i in order[:top]),
        half=int(np.searchsorted(np.cumsum(shares[order]), 0.5) + 1),
        outliers=tuple(np.flatnonzero(np.abs(plain.mean) > threshold * deviations).tolist()),
        threshold=threshold,
    )
