"""When are two sentences "similar"? The cosines of random pairs, and the thresholds that follow from them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bertflow.geometry import BeforeAfter, Spaces
from bertflow.geometry.association import Vector
from bertflow.geometry.measures import PARAPHRASES
from bertflow.report.pairs import Pairs, cosines_of, random_ends

DRAWN = 200_000
TAILS = (0.01, 0.001)  # of random pairs above the thresholds "similar" and "very similar"
BINS = 80
WIDER = 4  # labelled pairs are fewer: so many times wider bins, or their curve is noise


@dataclass(frozen=True)
class BestThreshold:
    """The cosine that tells alike from unlike labelled pairs best, by F1, on those very pairs."""

    cosine: float
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, eq=False)
class CosineSpread:
    """Cosines of random pairs in one space.

    Args:
        mean: Their mean.
        deviation: Their standard deviation.
        similar: Exceeded by 1 % of them.
        very_similar: Exceeded by 0.1 %.
        shares: Share of the pairs in each bin, (b,).
        labelled_shares: The same of labelled pairs that mean the same, in bins ``WIDER`` times as wide, (b / ``WIDER``,).
        found: Share of these above ``similar``.
        best: See ``BestThreshold``.
    """

    mean: float
    deviation: float
    similar: float
    very_similar: float
    shares: Vector
    labelled_shares: Vector | None = None
    found: float | None = None
    best: BestThreshold | None = None


@dataclass(frozen=True, eq=False)
class Cosines:
    """Cosines of random pairs, before and after.

    Args:
        pairs: How many were drawn.
        edges: Of the bins, (b + 1,), the same before and after.
        spread: In either space.
        alike: How many labelled pairs count as meaning the same; 0 without labels.
        alike_from: The gold score from which they do.
    """

    pairs: int
    edges: Vector
    spread: BeforeAfter[CosineSpread]
    alike: int = 0
    alike_from: float | None = None


def random_cosines(spaces: Spaces, labelled: Pairs | None = None) -> Cosines:
    """Draw random pairs of the corpus, and see what share of them a threshold lets through."""
    n = len(spaces.sentences)
    few = n * (n - 1) // 2 <= DRAWN
    ends = np.stack(np.triu_indices(n, 1), axis=1) if few else random_ends(n, DRAWN, spaces.random_state)
    before, after = (cosines_of(x, ends) for x in (spaces.before, spaces.after))
    edges = np.linspace(np.floor(min(before.min(), after.min()) * 5) / 5, 1.0, BINS + 1)
    plain = BeforeAfter(_spread(before, edges), _spread(after, edges))
    if labelled is None or labelled.gold is None or labelled.gold.min() == labelled.gold.max():
        return Cosines(len(ends), edges, plain)
    lowest, highest = float(labelled.gold.min()), float(labelled.gold.max())
    threshold = lowest + PARAPHRASES * (highest - lowest)
    alike = labelled.gold >= threshold
    spread = BeforeAfter(
        _with_labels(plain.before, edges, labelled.cosine.before, alike),
        _with_labels(plain.after, edges, labelled.cosine.after, alike),
    )
    return Cosines(len(ends), edges, spread, int(alike.sum()), threshold)


def best_threshold(cosines: Vector, alike: npt.NDArray[np.bool_]) -> BestThreshold:
    """Try every cosine as a threshold (at or above: alike) and keep the best F1, of equal ones the highest cosine."""
    order = np.argsort(-cosines, kind="stable")
    hits = np.cumsum(alike[order])
    last = np.flatnonzero(np.diff(cosines[order], append=-np.inf))  # a threshold takes all equal cosines or none
    f1 = 2 * hits[last] / (last + 1 + alike.sum())
    best = last[int(f1.argmax())]
    precision, recall = hits[best] / (best + 1), hits[best] / alike.sum()
    return BestThreshold(float(cosines[order][best]), float(precision), float(recall), float(f1.max()))


def _spread(values: Vector, edges: Vector) -> CosineSpread:
    similar, very = np.quantile(values, [1 - tail for tail in TAILS])
    return CosineSpread(float(values.mean()), float(values.std()), float(similar), float(very), _shares(values, edges))


def _with_labels(one: CosineSpread, edges: Vector, cosines: Vector, alike: npt.NDArray[np.bool_]) -> CosineSpread:
    same = cosines[alike]
    return replace(
        one,
        labelled_shares=_shares(same, edges[::WIDER]),
        found=float((same > one.similar).mean()),
        best=best_threshold(cosines, alike),
    )


def _shares(values: Vector, edges: Vector) -> Vector:
    return np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / len(values)
