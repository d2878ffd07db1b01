"""What is in a language model's logit? A test of the paper's equation, h·w ≈ PMI(x, c) + log p(x) + λ(c).

A language model predicts word x in context c by the dot product of a context vector h and a word vector w. In a well
trained model this is log p(x|c) up to a constant λ(c) of the context (Yang et al., ICLR 2018), and log p(x|c) = PMI(x, c) +
log p(x). If log p(x) is a large part of it, the space of h and w depends on word frequency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertflow.arrays import Matrix, as_matrix
from bertflow.errors import InputError
from bertflow.geometry.association import Vector, columns
from bertflow.geometry.figures import Figures
from bertflow.geometry.frequency import PAPER_BINS, Bin


@dataclass(frozen=True)
class LogitShares:
    """What the logits of a group of words depend on; the context's own level λ(c) is subtracted first.

    Args:
        ranks: Frequency ranks (start, stop) of the words, from 0, stop not included.
        words: How many.
        log_frequency: Mean natural logarithm of their frequencies.
        logit: Mean logit, minus the mean over all words; if the equation holds, it is lower for rarer words.
        explained: Share of the variance that log p(x) explains, with one slope for all contexts.
        constant: Share that is the same in every context, for any reason: the most that a property of the word alone, such
            as frequency, could explain. The rest depends on the context, as PMI does.
        slope: Logit per unit of log p(x), 1 in the equation. It and the shares are None where words or logits do not differ.
    """

    ranks: Bin
    words: int
    log_frequency: float
    logit: float
    explained: float | None
    constant: float | None
    slope: float | None


@dataclass(frozen=True)
class Decomposition(Figures):
    """Results of testing the equation.

    Args:
        contexts: How many contexts were used.
        overall: Over all counted words.
        bins: By frequency rank; within a narrow bin frequency varies little, so it explains less.
    """

    contexts: int
    overall: LogitShares
    bins: tuple[LogitShares, ...]


class LogitDecomposer:
    """Sums logits batch by batch, so that contexts × vocabulary need not fit in memory.

    Args:
        counts: How often each of the V words or tokens occurs, (V,); those with 0 are left out, as their log p is unknown.
        bins: Frequency ranks (start, stop), from 0.

    Example:
        >>> decomposer = LogitDecomposer([8, 4, 2, 1], bins=[(0, 2), (2, 4)])
        >>> logits = np.log([8.0, 4, 2, 1]) + np.array([[0.0], [5.0]])  # log p and a level for each context, nothing else
        >>> round(decomposer.add(logits).result().overall.explained, 6)
        1.0
    """

    def __init__(self, counts: npt.ArrayLike, bins: Sequence[Bin] = PAPER_BINS) -> None:
        (table,) = columns(counts)
        known = np.flatnonzero(table > 0)
        if len(known) < 2:
            raise InputError(f"{len(known)} word(s) are counted; at least two are needed to compare frequencies.")
        self._ids = known[np.lexsort((known, -table[known]))]
        self._vocabulary = len(table)
        self._log_p = np.log(table[self._ids] / table.sum())
        n = len(known)
        self._spans = [range(n), *(range(min(start, n), min(stop, n)) for start, stop in bins)]
        self._contexts = 0
        self._sums = np.zeros(n)
        self._squares = np.zeros(len(self._spans))
        self._products = np.zeros(len(self._spans))

    def add(self, logits: object) -> LogitDecomposer:
        """Add the logits (m, V) of m contexts. Returns itself."""
        batch = as_matrix(logits, "logits")
        if batch.shape[1] != self._vocabulary:
            raise InputError(f"The logits are of {batch.shape[1]} words, the counts of {self._vocabulary}.")
        ranked: Matrix = batch[:, self._ids].astype(np.float64)
        self._contexts += len(ranked)
        self._sums += ranked.sum(axis=0)
        for i, span in enumerate(self._spans):
            part = ranked[:, span.start : span.stop]
            if part.size:
                centred = part - part.mean(axis=1, keepdims=True)
                self._squares[i] += float((centred**2).sum())
                self._products[i] += float((centred @ self._centred_log_p(span)).sum())
        return self

    def result(self) -> Decomposition:
        """Return the shares over all contexts that were added."""
        if not self._contexts:
            raise InputError("No context has been added.")
        overall, *bins = (self._shares(i, span) for i, span in enumerate(self._spans) if span)
        return Decomposition(self._contexts, overall, tuple(bins))

    def _centred_log_p(self, span: range) -> Vector:
        part = self._log_p[span.start : span.stop]
        return part - part.mean()

    def _shares(self, i: int, span: range) -> LogitShares:
        means = self._sums / self._contexts
        own, log_p = means[span.start : span.stop], self._centred_log_p(span)
        spread, total = float(log_p @ log_p) * self._contexts, float(self._squares[i])
        defined = spread > 0 and total > 0
        return LogitShares(
            ranks=(span.start, span.stop),
            words=len(span),
            log_frequency=float(self._log_p[span.start : span.stop].mean()),
            logit=float(own.mean() - means.mean()),
            explained=float(self._products[i]) ** 2 / (spread * total) if defined else None,
            constant=float(np.square(own - own.mean()).sum()) * self._contexts / total if total > 0 else None,
            slope=float(self._products[i]) / spread if spread > 0 else None,
        )


def decompose_logits(logits: object, counts: npt.ArrayLike, bins: Sequence[Bin] = PAPER_BINS) -> Decomposition:
    """Measure how much of the logits' variance over words is word frequency.

    Args:
        logits: (contexts, V): the dot products of context and word vectors, without the output bias, which is no part of
            the equation.
        counts: How often each word occurs, (V,).
        bins: Frequency ranks (start, stop), from 0.
    """
    return LogitDecomposer(counts, bins).add(logits).result()
