"""Alignment and uniformity on the unit sphere (Wang & Isola, ICML 2020): are paraphrases close and other texts spread?"""

from __future__ import annotations

import math

import numpy as np

from bertflow.arrays import as_matrix, unit_rows
from bertflow.errors import InputError

_CELLS = 2**21


def alignment(a: object, b: object, power: float = 2.0) -> float:
    """Mean of ‖u − v‖^α over pairs of the same meaning, with u and v their vectors scaled to length one.

    0 where both vectors of each pair are the same. With α = 2 it is 2 − 2·(mean cosine), so 2 for unrelated directions.

    Args:
        a: The first of each pair, (n, d).
        b: The second of each pair, (n, d).
        power: α; 2 in the paper.
    """
    left, right = (unit_rows(as_matrix(x, "pairs").astype(np.float64)) for x in (a, b))
    if left.shape != right.shape:
        raise InputError(f"Pairs need as many first as second vectors; shapes {left.shape} and {right.shape} came.")
    return float((np.linalg.norm(left - right, axis=1) ** power).mean())


def uniformity(vectors: object, t: float = 2.0) -> float:
    """Logarithm of the mean of exp(−t·‖u − v‖²) over all pairs of different rows, scaled to length one.

    0 where all rows have the same direction; lower where they cover the sphere more evenly, down to ``uniform_value``. All
    pairs are compared, so the time is quadratic in n: give a sample of at most ten thousand rows.

    Args:
        vectors: (n, d), n at least 2.
        t: The kernel's sharpness; 2 in the paper.
    """
    u = unit_rows(as_matrix(vectors, "vectors", min_rows=2).astype(np.float64))
    step, total = max(1, _CELLS // len(u)), 0.0
    for start in range(0, len(u), step):
        own = np.arange(start, min(start + step, len(u)))
        squares = np.maximum(2 - 2 * (u[own] @ u.T), 0)
        squares[own - start, own] = np.inf  # a row and itself are no pair
        total += float(np.exp(-t * squares).sum())
    return math.log(total / (len(u) * (len(u) - 1)))


def uniform_value(dim: int, t: float = 2.0) -> float:
    """The limit of ``uniformity`` for directions spread evenly over the sphere in ``dim`` dimensions.

    The mean of exp(2t·u·v) over the sphere is the confluent hypergeometric limit function ₀F₁(; d/2; t²).
    """
    from scipy.special import hyp0f1

    return -2 * t + math.log(float(hyp0f1(dim / 2, t * t)))
