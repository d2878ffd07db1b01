"""The law of the cosines of unrelated texts, fitted to the bulk of random pairs.

A few of the random pairs of a real corpus are related, and these are its upper tail. So the tail is not looked at: one of
Johnson's two laws of four parameters is fitted to what lies between two quantiles, and says how the tail of unrelated pairs
goes on. The unbounded one (SU) has heavier tails than a Gaussian, which is usual; the bounded one (SB) lighter ones, as
cosines of random directions in few dimensions have. Cosines near 1 are stretched first, since no tail goes beyond.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr, ndtri_exp

from bertflow.errors import InputError

BULK = 0.02, 0.95
BINS = 200
ROOM = 2.0  # cosines are stretched as if they could come near this; results/thresholds.md says how it was chosen
STARTS = {  # gamma, log delta, location, log scale; in units of the median and the spread
    False: ((-0.3, 0.7, 0.0, 0.7), (-1.0, 1.0, -0.5, 0.5)),
    True: ((0.0, 1.5, 0.0, 1.8), (1.0, 1.0, 2.0, 1.8)),
}

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Law:
    """Johnson's law: gamma + delta · f((x − location) / scale) is standard normal, f = asinh (SU) or atanh (SB).

    x is the cosine, stretched: 2 atanh(cosine / 2), which hardly differs from it below 0.5.

    Args:
        gamma: Asymmetry.
        delta: The smaller, the farther from a Gaussian.
        location: Where it lies.
        scale: How wide it is.
        bounded: Whether it is SB, which ends at location ± scale.
    """

    gamma: float
    delta: float
    location: float
    scale: float
    bounded: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that make no law."""
        numbers = self.gamma, self.delta, self.location, self.scale
        plain = all(isinstance(x, float | int) and np.isfinite(x) for x in numbers) and isinstance(self.bounded, bool)
        if not plain or min(self.delta, self.scale) <= 0:
            raise InputError(f"A law of cosines has four finite numbers, delta and scale above 0; got {numbers!r}.")

    @classmethod
    def fit(cls, cosines: npt.ArrayLike, bulk: tuple[float, float] = BULK) -> Law:
        """Fit the law to the bulk of a sample (n,): of what lies outside, only how much it is counts."""
        x = stretched(np.asarray(cosines, dtype=np.float64).ravel())
        low, middle, high = map(float, np.quantile(x, [0.16, 0.5, 0.84]))
        spread = (high - low) / 2
        if not spread > 1e-9:
            raise InputError("Nearly all random pairs have the same cosine: these vectors cannot tell texts apart.")
        edges = np.unique(np.quantile((x - middle) / spread, np.linspace(*bulk, BINS + 1)))
        counts = np.histogram((x - middle) / spread, [-np.inf, *edges, np.inf])[0] / len(x)
        tried = [(_minimum(start, edges, counts, bounded), bounded) for bounded in STARTS for start in STARTS[bounded]]
        found, bounded = min(tried, key=lambda one: one[0].fun)
        gamma, log_delta, xi, log_scale = map(float, found.x)
        return cls(gamma, float(np.exp(log_delta)), middle + spread * xi, spread * float(np.exp(log_scale)), bounded)

    def log_exceedance(self, cosine: npt.ArrayLike) -> Any:
        """Natural logarithm of the share of unrelated pairs whose cosine is at least this."""
        x = (stretched(np.asarray(cosine, dtype=np.float64)) - self.location) / self.scale
        return log_ndtr(-(self.gamma + self.delta * _johnson(x, self.bounded)))

    def quantile_above(self, log_share: npt.ArrayLike) -> Any:
        """Return the cosine that a share of the unrelated pairs reaches, given by its natural logarithm."""
        z = -ndtri_exp(np.asarray(log_share, dtype=np.float64))
        x = self.location + self.scale * (np.tanh if self.bounded else np.sinh)((z - self.gamma) / self.delta)
        return ROOM * np.tanh(x / ROOM)

    def to_dict(self) -> dict[str, Any]:
        """Return its numbers."""
        return asdict(self)


def stretched(cosine: Vector) -> Vector:
    """Return 2 atanh(cosine / 2); cosines beyond -1 and 1 are taken for these."""
    return ROOM * np.arctanh(np.clip(cosine, -1.0, 1.0) / ROOM)


def _johnson(x: Vector, bounded: bool) -> Vector:
    return np.arctanh(np.clip(x, -1 + 1e-15, 1 - 1e-15)) if bounded else np.arcsinh(x)


def _minimum(start: tuple[float, ...], edges: Vector, counts: Vector, bounded: bool) -> Any:
    """Minimise the negative log-likelihood of the counts (bins,) between edges (bins − 1,)."""

    def loss(p: Vector) -> float:
        below = ndtr(p[0] + np.exp(p[1]) * _johnson((edges - p[2]) * np.exp(-p[3]), bounded))
        shares = np.diff(below, prepend=0.0, append=1.0)
        return -float(counts @ np.log(np.maximum(shares, 1e-300)))

    options = {"maxiter": 4000, "maxfev": 4000, "xatol": 1e-6, "fatol": 1e-11}
    with np.errstate(over="ignore", invalid="ignore"):
        return minimize(loss, start, method="Nelder-Mead", options=options)
