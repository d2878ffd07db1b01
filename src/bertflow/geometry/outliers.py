"""The sentences that a flow finds least likely; ``bertflow.corpus.find_outliers`` uses neighbours and is better."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertflow.geometry.association import Vector
from bertflow.geometry.density import robust_z

logger = logging.getLogger(__name__)

FOLDS = 4


@dataclass(frozen=True)
class Outlier:
    """One sentence and how unlikely it is.

    Args:
        rank: From 1, the least likely.
        position: Where it stands among the sentences, from 0.
        text: The sentence.
        log_density: In nats; None where it lies so far out that the number overflows.
        bits_per_dim: −log-density / (d · ln 2), the flow's loss: the higher, the less likely; below zero is normal.
        z: Robust standard deviations above (below: negative) the median log-density of the corpus.
    """

    rank: int
    position: int
    text: str
    log_density: float | None
    bits_per_dim: float | None
    z: float | None


def list_outliers(
    texts: Sequence[str],
    scores: Vector,
    dim: int,
    top: int,
) -> tuple[Outlier, ...]:
    """Return the ``top`` texts of lowest log-density (n,); ``dim`` is the number of dimensions."""
    z = robust_z(scores)
    return tuple(
        Outlier(
            rank=rank,
            position=int(row),
            text=texts[row],
            log_density=_finite(scores[row]),
            bits_per_dim=_finite(-scores[row] / (dim * math.log(2))),
            z=_finite(z[row]),
        )
        for rank, row in enumerate(np.argsort(scores, kind="stable")[:top], start=1)
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
