"""Resampling: how sure a score is, and whether two methods differ.

A resample with replacement is a vector of counts, one a pair, a query or a text. Ranks, correlations and AUC of the
resample follow from the counts and from the order of the original values, sorted once: no resample is ever written out
or sorted again. Equal sizes and seeds give equal counts, whatever the method: that is what pairs two methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from bertflow.evaluation.pairs import Metric
from bertflow.evaluation.scores import Vector

Stratum: TypeAlias = tuple[Sequence[Vector], Vector]  # similarities of each method (n,), gold (n,)
Statistic: TypeAlias = Callable[[Vector], Vector]  # counts (b, n) -> values (b,)
_CELLS = 2**19  # resamples × units held at once


def bootstrap_draws(
    strata: Sequence[Stratum], weights: Sequence[float], metric: Metric, resamples: int, seed: int
) -> Vector:
    """Score ``resamples`` resamples of the pairs, the same ones for every method.

    Args:
        strata: Groups of pairs, each resampled within itself: all pairs as one group, or one group a sub-set.
        weights: The weight of each stratum in the score; they sum to one.
        metric: What is computed in each stratum.
        resamples: How many.
        seed: For the generator; equal seeds give equal draws.

    Returns:
        Scores ×100, (methods, resamples); NaN where a resample has no score, as when all its golds are equal.
    """
    rng = np.random.default_rng(seed)
    draws = np.zeros((len(strata[0][0]), resamples))
    for (similarities, gold), weight in zip(strata, weights, strict=True):
        statistics = [weighted_statistic(metric, similarity, gold) for similarity in similarities]
        start = 0
        for counts in resample(len(gold), resamples, rng):
            stop = start + len(counts)
            for method, statistic in enumerate(statistics):
                draws[method, start:stop] += 100 * weight * statistic(counts)
            start = stop
    return draws


def weighted_statistic(metric: Metric, similarity: Vector, gold: Vector) -> Statistic:
    """Prepare a metric for many resamples of one set of pairs: counts (b, n) to values (b,)."""
    if metric == "pearson":
        return lambda counts: _correlation(counts, similarity[None], gold[None])
    rank_similarity = _ranker(similarity)
    if metric == "auc":
        positive = gold == 1
        return lambda counts: _area(counts, rank_similarity(counts), positive)
    rank_gold = _ranker(gold)
    return lambda counts: _correlation(counts, rank_similarity(counts), rank_gold(counts))


def resampled(statistic: Statistic, n: int, resamples: int, seed: int) -> Vector:
    """Compute a statistic of n units for each resample, (resamples,)."""
    return np.concatenate([statistic(counts) for counts in resample(n, resamples, np.random.default_rng(seed))])


def resample(n: int, resamples: int, rng: np.random.Generator) -> Iterator[Vector]:
    """Yield counts (b, n) of n units drawn n times with replacement, until there were ``resamples`` rows."""
    size = max(1, _CELLS // n)
    for start in range(0, resamples, size):
        rows = min(size, resamples - start)
        cells = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        yield np.bincount(cells.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


def _ranker(values: Vector) -> Statistic:
    """Prepare average ranks: counts (b, n) to the rank that each value has in each resample (b, n)."""
    group = np.unique(values, return_inverse=True)[1].ravel()
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))

    def ranks(counts: Vector) -> Vector:
        sizes = np.add.reduceat(counts[:, order], starts, axis=1)
        middles = np.cumsum(sizes, axis=1) - (sizes - 1) / 2
        return np.take(middles, group, axis=1)

    return ranks


def _correlation(counts: Vector, x: Vector, y: Vector) -> Vector:
    """Pearson's correlation of x and y, each pair taken ``counts`` times; NaN where one of them does not vary."""
    total = counts.sum(axis=1, keepdims=True)
    x = x - np.einsum("bn,bn->b", counts, np.broadcast_to(x, counts.shape))[:, None] / total
    y = y - np.einsum("bn,bn->b", counts, np.broadcast_to(y, counts.shape))[:, None] / total
    xy, xx, yy = (np.einsum("bn,bn,bn->b", counts, p, q) for p, q in ((x, y), (x, x), (y, y)))
    varies = (_spread(counts, x) > 0) & (_spread(counts, y) > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(varies, xy / np.sqrt(xx * yy), np.nan)


def _spread(counts: Vector, x: Vector) -> Vector:
    """Largest minus smallest drawn value, which is exactly zero for a constant, unlike a variance."""
    drawn = counts > 0
    return np.where(drawn, x, -np.inf).max(axis=1) - np.where(drawn, x, np.inf).min(axis=1)


def _area(counts: Vector, ranks: Vector, positive: np.ndarray) -> Vector:
    """Area under the ROC curve from ranks (Mann and Whitney); NaN where a class is absent."""
    positives = counts[:, positive].sum(axis=1)
    negatives = counts.sum(axis=1) - positives
    rank_sum = np.einsum("bn,bn->b", counts[:, positive], ranks[:, positive])
    with np.errstate(divide="ignore", invalid="ignore"):
        return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)
