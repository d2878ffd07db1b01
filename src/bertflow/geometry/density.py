"""Holes in a space: is a vector's log-density under a fitted model low where its neighbours are far away?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertflow.errors import InputError
from bertflow.geometry.association import Vector, columns, quantile_groups, spearman
from bertflow.geometry.figures import Figures


@dataclass(frozen=True)
class DensityGroup:
    """Sentences whose neighbours are similarly far away.

    Args:
        sentences: How many.
        distance: Mean distance to their nearest neighbours.
        log_density: Their mean log-density, in nats.
    """

    sentences: int
    distance: float
    log_density: float


@dataclass(frozen=True)
class DensityProfile(Figures):
    """Log-density against the distance to nearest neighbours.

    Args:
        sentences: How many.
        correlation: Spearman ×100; near −100 where the unlikely vectors are those without near neighbours.
        groups: From the densest region to the sparsest.
    """

    sentences: int
    correlation: float | None
    groups: tuple[DensityGroup, ...]


def density_profile(log_density: npt.ArrayLike, distances: npt.ArrayLike, groups: int = 5) -> DensityProfile:
    """Compare the log-density of n vectors with how far their neighbours are.

    Args:
        log_density: (n,), as from ``score_samples``; −inf counts as the lowest finite one.
        distances: (n,), as from ``bertflow.geometry.neighbours.neighbour_distances``.
        groups: How many groups of equal size to average over.
    """
    density, distance = columns(log_density, distances)
    density = _floored(density)
    return DensityProfile(
        sentences=len(density),
        correlation=spearman(density, distance),
        groups=tuple(
            DensityGroup(len(rows), float(distance[rows].mean()), float(density[rows].mean()))
            for rows in quantile_groups(distance, groups)
        ),
    )


def robust_z(log_density: npt.ArrayLike) -> Vector:
    """(value − median) / (1.4826 · median absolute deviation), (n,): for Gaussian values, standard deviations.

    Unlike mean and deviation, the median does not depend on the outliers that are looked for; −inf stays −inf.
    """
    (values,) = columns(log_density)
    middle = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(_floored(values) - middle)))
    return (values - middle) / (spread or 1.0)


def _floored(values: Vector) -> Vector:
    finite = np.isfinite(values)
    if not finite.any():
        raise InputError("No vector has a finite log-density: all are far from those that the model was fitted on.")
    return np.maximum(values, values[finite].min())
