"""Holes: is a vector's log-density under a fitted model low where its neighbours are far?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bertflow.errors import InputError
from bertflow.geometry.association import Vector, columns, quantile_groups, spearman


@dataclass(frozen=True)
class DensityGroup:
    """Sentences with neighbours at a similar distance.

    Args:
        sentences: How many.
        distance: Mean distance to their nearest neighbours.
        log_density: Their mean log-density, in nats.
    """

    sentences: int
    distance: float
    log_density: float


@dataclass(frozen=True)
class DensityProfile:
    """Log-density against the distance to nearest neighbours.

    Args:
        sentences: How many.
        correlation: Spearman ×100; near −100 where the model finds unlikely just what lies alone.
        groups: From the densest region to the sparsest.
    """

    sentences: int
    correlation: float | None
    groups: tuple[DensityGroup, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


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
    """(value − median) / (1.4826 · median absolute deviation), (n,): standard deviations, were the values Gaussian.

    Unlike mean and deviation, the median does not move for the outliers that are looked for; −inf stays −inf.
    """
    (values,) = columns(log_density)
    middle = float(np.median(values))
    spread = 1.4826 * float(np.median(np.abs(_floored(values) - middle)))
    return (values - middle) / (spread or 1.0)


def _floored(values: Vector) -> Vector:
    finite = np.isfinite(values)
    if not finite.any():
        raise InputError("No vector has a finite log-density: the model does not know this kind of vector at all.")
    return np.maximum(values, values[finite].min())
