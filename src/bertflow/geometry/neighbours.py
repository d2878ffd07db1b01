"""Nearest neighbours among rows: how far away they are, and whether a few rows are neighbours of most others (hubness)."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from bertflow.arrays import Matrix, as_matrix, unit_rows
from bertflow.errors import InputError

Metric: TypeAlias = Literal["euclidean", "cosine"]
Indices: TypeAlias = npt.NDArray[np.int64]

_CELLS = 2**22  # of the (rows, n) matrix held at a time: 32 MiB


def nearest(vectors: object, k: int, metric: Metric = "euclidean") -> tuple[Matrix, Indices]:
    """Return the distances to, and indices of, the k nearest other rows, both (n, k), nearest first.

    Exact, in float64, a block of rows at a time. The time is quadratic in n: give a sample of at most ten thousand rows.

    Args:
        vectors: (n, d).
        k: Number of neighbours, 1 to n − 1; a row is not its own neighbour.
        metric: ``"euclidean"``, or ``"cosine"`` for 1 − cosine.
    """
    x: Matrix = as_matrix(vectors, "vectors").astype(np.float64)
    if not 1 <= k < len(x):
        raise InputError(f"{len(x)} rows have no {k} neighbours; k must lie between 1 and {len(x) - 1}.")
    # centred first: far from the origin |a|² + |b|² − 2·a·b loses digits
    x = unit_rows(x) if metric == "cosine" else x - x.mean(axis=0)
    squares = np.ones(len(x)) if metric == "cosine" else np.einsum("nd,nd->n", x, x)
    step = max(1, _CELLS // len(x))
    found = [_of_block(x, squares, np.arange(i, min(i + step, len(x))), k) for i in range(0, len(x), step)]
    squared = np.concatenate([values for values, _ in found])
    distances = squared / 2 if metric == "cosine" else np.sqrt(squared)
    return distances, np.concatenate([indices for _, indices in found])


def neighbour_distances(vectors: object, k: int = 5) -> Matrix:
    """Mean ℓ2 distance of each row to its k nearest (n,): small where the space is dense, large where it is sparse."""
    return nearest(vectors, k)[0].mean(axis=1)


def hubness(vectors: object, k: int = 10) -> float:
    """Skewness of the k-occurrence (Radovanović, Nanopoulos & Ivanović, JMLR 2010).

    N(x) counts the rows that have x among their k nearest by cosine; its mean is k. Where N is skewed to the right, a few
    hubs are neighbours of very many rows, and search returns them for most queries. It is 0 when each row is a neighbour
    equally often. It grows with n and with the dimension even for a perfect Gaussian: compare only spaces of equal size.
    """
    _, indices = nearest(vectors, k, "cosine")
    occurrences = np.bincount(indices.ravel(), minlength=len(indices)) - float(k)
    deviation = occurrences.std()
    return float((occurrences**3).mean() / deviation**3) if deviation else 0.0


def _of_block(x: Matrix, squares: Any, own: Any, k: int) -> tuple[Matrix, Indices]:
    squared = squares[own, None] + squares - 2 * (x[own] @ x.T)
    squared[np.arange(len(own)), own] = np.inf
    values, indices = torch.from_numpy(squared).topk(k, largest=False)  # more than twice as fast as numpy's partition
    return np.maximum(values.numpy(), 0), indices.numpy()  # rounding may leave −1e-17
