"""Are the latents a standard Gaussian, as the flow is trained for? Each dimension, and all of them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bertflow.errors import InputError
from bertflow.geometry.association import Vector
from bertflow.geometry.figures import Figures
from bertflow.geometry.rows import SAMPLE, Rows, blocks, moments_of, sample_rows
from bertflow.moments import Moments

_DEAD = 1e-6  # of the largest variance: a direction with less is rounding, as in Whitening


@dataclass(frozen=True)
class Normality(Figures):
    """How far vectors are from N(0, I).

    Args:
        rows: n.
        dim: d, without dimensions that do not vary.
        skewness: Mean over the dimensions of |skewness|; 0 for a Gaussian.
        kurtosis: Mean over the dimensions of the excess kurtosis; 0 for a Gaussian, positive for heavy tails.
        level: Level α of the tests.
        rejected: Share of the dimensions that a Jarque–Bera test rejects at level α; for a Gaussian it is α.
        rejected_together: Share at level α/d (Bonferroni): the probability that any of d Gaussian dimensions is rejected is
            at most α. With many rows every real space is rejected: skewness and kurtosis say how far it is from a Gaussian.
        squared_radius: Mean ‖x‖²/d; 1 for N(0, I).
        radius_gap: Largest gap between the distribution functions of ‖x‖² and of χ² with d degrees (Kolmogorov–Smirnov
            distance, on a seeded sample); 0 for N(0, I).
        mardia: Mardia's multivariate kurtosis over that of a Gaussian; 1 for any Gaussian, more for heavy tails. No affine
            map, so no whitening, changes it. None with fewer than four rows per dimension, where it is near 1 for any
            distribution.
    """

    rows: int
    dim: int
    skewness: float
    kurtosis: float
    level: float
    rejected: float
    rejected_together: float
    squared_radius: float
    radius_gap: float
    mardia: float | None


def normality(rows: Rows, *, level: float = 0.05, sample: int = SAMPLE, seed: int = 0) -> Normality:
    """Compare vectors with N(0, I), in two passes and memory that does not grow with n.

    The test is Jarque & Bera's (1980): n/6·(skewness² + kurtosis²/4) is χ² with two degrees for a Gaussian, so that
    p = exp(−statistic/2). It needs about a thousand rows or more.

    Args:
        rows: An (n, d) array, memory map or tensor, or a re-iterable of batches; see ``bertflow.geometry.rows.blocks``.
        level: Of the tests.
        sample: Rows for the distribution of the radius.
        seed: Of the sample.
    """
    from scipy.stats import chi2, kstest

    plain, _ = moments_of(rows)
    alive = plain.variance > _DEAD * plain.variance.max()
    if not alive.any():
        raise InputError("All rows are the same: there is no distribution to compare with a Gaussian.")
    third, fourth, mardia = _higher(rows, plain, alive)
    p_values = np.exp(-plain.count / 12 * (third**2 + (fourth - 3) ** 2 / 4))
    d = int(alive.sum())
    radii = np.square(sample_rows(rows, sample, seed)[:, alive].astype(np.float64)).sum(axis=1)
    return Normality(
        rows=plain.count,
        dim=d,
        skewness=float(np.abs(third).mean()),
        kurtosis=float(fourth.mean() - 3),
        level=level,
        rejected=float((p_values < level).mean()),
        rejected_together=float((p_values < level / d).mean()),
        squared_radius=float((plain.variance + plain.mean**2)[alive].mean()),
        radius_gap=float(kstest(radii, chi2(d).cdf).statistic),
        mardia=mardia,
    )


def _higher(rows: Rows, plain: Moments, alive: Any) -> tuple[Vector, Vector, float | None]:
    """Return skewness and kurtosis of each dimension that varies, and Mardia's ratio."""
    deviations = np.sqrt(plain.variance[alive])
    values, directions = np.linalg.eigh(plain.covariance())
    kept = values > _DEAD * values.max()
    whiten = directions[:, kept] / np.sqrt(values[kept])
    third, fourth, squared = np.zeros(len(deviations)), np.zeros(len(deviations)), 0.0
    for block in blocks(rows):
        centred = block.astype(np.float64) - plain.mean
        standard = centred[:, alive] / deviations
        third += (standard**3).sum(axis=0)
        fourth += (standard**4).sum(axis=0)
        squared += float((np.square(centred @ whiten).sum(axis=1) ** 2).sum())
    n, rank = plain.count, int(kept.sum())
    # the expectation for Gaussian rows, whitened by their own covariance, is r(r + 2)(n − 1)/(n + 1)
    mardia = squared / n / (rank * (rank + 2)) * (n + 1) / (n - 1)
    return third / n, fourth / n, mardia if n >= 4 * rank else None
