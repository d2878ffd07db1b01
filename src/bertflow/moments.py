"""Count, mean and covariance of rows, exact whatever the order in which they come: add, merge, all-reduce."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bertflow.errors import InputError

_BLOCK_ROWS = 4096  # bounds the float64 copy of a memory-mapped float16 batch


@dataclass(eq=False)
class Moments:
    """Mergeable first and second moments of rows (n, d), in float64.

    Rows are centred before they are multiplied, and parts are joined by the pairwise update of Chan, Golub & LeVeque
    (1983), so that a mean of 1e8 does not swallow a variance of 1. The three fields are the whole state: workers that
    send them to each other and ``merge`` get what one pass over all rows gives.

    Attributes:
        count: Number of rows seen.
        mean: Their mean (d,); empty before the first row.
        scatter: Sum of the outer products of the centred rows (d, d).

    Example:
        >>> left, right = Moments().add([[0.0, 1.0]]), Moments().add([[2.0, 1.0], [4.0, 1.0]])
        >>> left.merge(right).mean.tolist()
        [2.0, 1.0]
    """

    count: int = 0
    mean: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    scatter: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))

    def add(self, batch: npt.ArrayLike) -> Moments:
        """Take in the rows of ``batch`` (n, d); on bad input nothing changes. Returns itself."""
        rows = np.asarray(batch)
        if rows.ndim != 2 or rows.dtype.kind not in "fiub":
            raise InputError(f"Moments need an (n, d) array of real numbers; got {rows.dtype} of shape {rows.shape}.")
        fresh = Moments()
        for start in range(0, len(rows), _BLOCK_ROWS):
            fresh.merge(_of_block(rows[start : start + _BLOCK_ROWS]))
        return self.merge(fresh)

    def merge(self, other: Moments) -> Moments:
        """Take in all that ``other`` has seen; ``other`` stays as it is. Returns itself."""
        if not other.count:
            return self
        if not self.count:
            self.count, self.mean, self.scatter = other.count, other.mean.copy(), other.scatter.copy()
            return self
        if len(self.mean) != len(other.mean):
            raise InputError(f"Rows of {len(other.mean)} dimensions cannot join rows of {len(self.mean)} dimensions.")
        total = self.count + other.count
        gap = other.mean - self.mean
        with np.errstate(over="ignore", invalid="ignore"):
            between = np.outer(gap, gap) * (self.count / total * other.count)
            self.scatter = _finite(self.scatter + other.scatter + between)
        self.mean = self.mean + gap * (other.count / total)
        self.count = total
        return self

    def covariance(self, ddof: int = 0) -> npt.NDArray[np.float64]:
        """Return the covariance (d, d); ``ddof=1`` for the unbiased one."""
        if self.count <= ddof:
            raise InputError(f"{self.count} row(s) have no covariance with ddof={ddof}: add at least {ddof + 1}.")
        return self.scatter / (self.count - ddof)

    @property
    def variance(self) -> npt.NDArray[np.float64]:
        """Variance of each dimension (d,), with ``ddof=0``."""
        return np.diagonal(self.covariance()).copy()


def _of_block(block: npt.NDArray[Any]) -> Moments:
    """Moments of rows that fit in memory."""
    with np.errstate(over="ignore", invalid="ignore"):
        first = block[0].astype(np.float64)
        centred = block - first  # shifted first: a sum of values near 1e8 would lose what tells them apart
        shift = centred.mean(axis=0)
        centred -= shift
        return Moments(len(block), first + shift, _finite(centred.T @ centred))


def _finite(scatter: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if not np.isfinite(scatter).all():
        raise InputError("The rows hold NaN, infinity or values whose squares exceed float64; remove or rescale them.")
    return scatter
