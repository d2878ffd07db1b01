"""Isotropy: do vectors use all directions equally? Six measures, each with its definition and its source.

In a space where random sentences have cosine 0.8, similar and dissimilar ones are hard to distinguish. No single measure
is enough: the mean cosine depends only on the common direction, IsoScore and the effective rank only on the spread around
the mean. Compare each with ``gaussian_isotropy``: the same measures of noise with as many rows and dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bertflow.arrays import Matrix
from bertflow.errors import InputError
from bertflow.geometry.association import Vector
from bertflow.geometry.figures import Figures
from bertflow.geometry.neighbours import hubness
from bertflow.geometry.rows import SAMPLE, Rows, blocks, moments_of, sample_rows
from bertflow.geometry.sphere import uniformity
from bertflow.moments import Moments


@dataclass(frozen=True)
class Isotropy(Figures):
    """Measures of (n, d) vectors.

    Args:
        rows: n.
        dim: d.
        mean_cosine: Of two random rows; see ``mean_cosine``.
        mean_cosine_error: Its standard error.
        mean_share: ‖mean‖² / mean ‖x‖²: the share of the vectors' squared length that all have in common.
        effective_rank: Of the centred rows; see ``effective_rank``.
        iso_score: See ``iso_score``.
        partition_ratio: See ``partition_ratio``, of the rows divided by their root mean square norm.
        uniformity: See ``bertflow.geometry.sphere.uniformity``; of the sample.
        hubness: See ``bertflow.geometry.neighbours.hubness``; of the sample.
        neighbours: The k of hubness.
        sample: How many rows were drawn for uniformity and hubness.
        spectrum: Singular values of the centred rows / √n, (d,), largest first: the deviations along the principal axes.
    """

    rows: int
    dim: int
    mean_cosine: float
    mean_cosine_error: float
    mean_share: float
    effective_rank: float
    iso_score: float
    partition_ratio: float
    uniformity: float
    hubness: float
    neighbours: int
    sample: int
    spectrum: tuple[float, ...]


def isotropy(rows: Rows, *, neighbours: int = 10, sample: int = SAMPLE, seed: int = 0) -> Isotropy:
    """Measure the isotropy of vectors in two passes over them, in memory that does not grow with n.

    Args:
        rows: An (n, d) array, memory map or tensor, or a re-iterable of batches; see ``bertflow.geometry.rows.blocks``.
        neighbours: The k of hubness; fewer where the sample has fewer rows.
        sample: Rows for uniformity and hubness, which compare all pairs of them.
        seed: Of the sample.
    """
    plain, units = moments_of(rows)
    chosen = sample_rows(rows, sample, seed)
    k = min(neighbours, len(chosen) - 1)
    spectrum = singular_spectrum(plain)
    mean_square = float(np.trace(plain.scatter)) / plain.count + float(plain.mean @ plain.mean)
    cosine, error = mean_cosine(units)
    return Isotropy(
        rows=plain.count,
        dim=len(plain.mean),
        mean_cosine=cosine,
        mean_cosine_error=error,
        mean_share=float(plain.mean @ plain.mean) / mean_square,
        effective_rank=effective_rank(spectrum),
        iso_score=iso_score(spectrum**2),
        partition_ratio=partition_ratio(rows, plain, scale=1 / math.sqrt(mean_square)),
        uniformity=uniformity(chosen),
        hubness=hubness(chosen, k),
        neighbours=k,
        sample=len(chosen),
        spectrum=tuple(spectrum.tolist()),
    )


def gaussian_isotropy(rows: int, dim: int, *, neighbours: int = 10, sample: int = SAMPLE, seed: int = 0) -> Isotropy:
    """Measure N(0, I) noise of that size, at most 20 000 rows: the values of a perfectly isotropic space."""
    noise = np.random.default_rng(seed).standard_normal((min(rows, 20_000), dim))
    return isotropy(noise, neighbours=neighbours, sample=sample, seed=seed)


def mean_cosine(units: Moments) -> tuple[float, float]:
    """Exact mean cosine over all pairs of different rows, and its standard error as an estimate for new sentences.

    With u the n rows scaled to length one the mean is (‖Σu‖² − Σ‖u‖²) / (n(n − 1)). It is a U-statistic of order two, so
    its variance is 2/(n(n − 1)) · (2(n − 2)·ζ₁ + ζ₂) with ζ₁ = Var(u·E[u]) and ζ₂ = Var(u·v) (Hoeffding 1948); both follow
    from the second moments of u.

    Args:
        units: Moments of the rows scaled to length one (a zero row stays zero).
    """
    n, mean, covariance = units.count, units.mean, units.covariance()
    squares = float(np.trace(covariance) + mean @ mean)  # mean ‖u‖²: 1 unless there are zero rows
    value = (n * float(mean @ mean) - squares) / (n - 1)
    second = covariance + np.outer(mean, mean)
    along = float(mean @ covariance @ mean) - float((covariance**2).sum()) / n  # minus what the mean's own noise adds
    spread = (n * float((second**2).sum()) - squares) / (n - 1) - value**2
    variance = 2 / (n * (n - 1)) * (2 * (n - 2) * max(along, 0.0) + max(spread, 0.0))
    return value, math.sqrt(variance)


def singular_spectrum(moments: Moments, *, centred: bool = True) -> Vector:
    """Return the singular values of the rows divided by √n, (d,), largest first; ``centred`` subtracts the mean first."""
    second = moments.covariance() if centred else moments.covariance() + np.outer(moments.mean, moments.mean)
    return np.sqrt(np.linalg.eigvalsh(second)[::-1].clip(min=0.0))


def effective_rank(singular_values: Vector) -> float:
    """exp(−Σ p·log p) with p the singular values divided by their sum (Roy & Vetterli, EUSIPCO 2007).

    From 1, all rows on a line, to d, the same spread along every axis.
    """
    shares = _shares(singular_values)
    return math.exp(-float((shares * np.log(shares)).sum()))


def iso_score(variances: Vector) -> float:
    """IsoScore of the variances along the principal axes (Rudman, Gillman, Rayne & Eickhoff, Findings of ACL 2022).

    Their steps (scale the variances λ to length √d, take the distance δ to the vector of ones over √(2(d − √d)), then
    φ = (d − δ²(d − √d))²/d², then ι = (dφ − 1)/(d − 1)) are equal to ι = (r − 1)/(d − 1) with r = (Σλ)²/Σλ², the
    participation ratio. 0: one direction only; 1: all equal; k equal directions of d: (k − 1)/(d − 1).
    """
    if len(variances) < 2:
        raise InputError("IsoScore compares directions; vectors of one dimension have only one.")
    shares = _shares(variances)
    return (1 / float((shares**2).sum()) - 1) / (len(variances) - 1)


def partition_ratio(rows: Rows, moments: Moments, *, scale: float = 1.0) -> float:
    """Least over largest Z(c) = Σ exp(c·x), summed over the rows x (Mu & Viswanath, ICLR 2018).

    As there, c is each eigenvector of XᵀX instead of each unit vector, with both signs. 1: isotropic. The ratio depends on
    the length of the vectors, which Mu & Viswanath do not change; ``scale`` multiplies them first. For vectors of length one
    that are all the same it is e⁻².

    Args:
        rows: As in ``isotropy``.
        moments: Of the rows.
        scale: A factor.
    """
    second = moments.covariance() + np.outer(moments.mean, moments.mean)
    directions = np.linalg.eigh(second)[1]  # eigenvectors are the columns
    totals = np.full((2, len(second)), -np.inf)
    for block in blocks(rows):
        along = scale * (block.astype(np.float64) @ directions)
        for sign, total in zip((1, -1), totals, strict=True):
            np.logaddexp(total, _log_sum_exp(sign * along), out=total)
    return math.exp(float(totals.min() - totals.max()))


def _log_sum_exp(values: Matrix) -> Matrix:
    """Logarithm of the sum of exp over the rows, without overflow."""
    largest = values.max(axis=0)
    return largest + np.log(np.exp(values - largest).sum(axis=0))


def _shares(values: Vector) -> Vector:
    """Divide by the sum, without values that are zero except for rounding."""
    if not values.max(initial=0.0) > 0:
        raise InputError("All rows are the same: there is no spread to measure.")
    kept = values[values > 1e-12 * values.max()]
    return kept / kept.sum()
