"""Word frequency in sentence vectors: are sentences of rare words further from the origin, and in sparser regions?

The paper shows this for words (Table 1) and argues it for sentences, which are averages of tokens. Here it is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertflow.errors import InputError
from bertflow.geometry.association import Vector, columns, quantile_groups, spearman
from bertflow.geometry.figures import Figures


@dataclass(frozen=True)
class FrequencyGroup:
    """Sentences of similar word frequency.

    Args:
        sentences: How many.
        log_frequency: Mean over the sentences of the mean natural logarithm of their tokens' frequencies.
        norm: Mean ℓ2 norm of their vectors.
        distance: Mean distance to their nearest neighbours.
    """

    sentences: int
    log_frequency: float
    norm: float
    distance: float


@dataclass(frozen=True)
class SentenceFrequency(Figures):
    """Correlations of the norm and the density of sentence vectors with word frequency.

    Args:
        sentences: How many.
        norm_correlation: Spearman ×100 of frequency and norm; negative where rare words are further from the origin.
        distance_correlation: Spearman ×100 of frequency and distance to neighbours; negative where rare words are sparser.
        groups: From the rarest words to the most frequent.
    """

    sentences: int
    norm_correlation: float | None
    distance_correlation: float | None
    groups: tuple[FrequencyGroup, ...]


def mean_log_frequency(
    token_ids: Sequence[Sequence[int]], counts: npt.ArrayLike, *, skip_uncounted: bool = False
) -> Vector:
    """Mean of log(count / N) over each sentence's tokens, (n,); the mean of all sentences where it has no such token.

    Args:
        token_ids: The tokens of each sentence, without special ones.
        counts: How often each of the V tokens occurs, (V,); 0 where it is not known.
        skip_uncounted: Skip tokens without a count: right for counts of words, which do not include pieces and punctuation.
            Otherwise they get the lowest count of all: right for counts of the most frequent tokens.
    """
    (table,) = columns(counts)
    known = table > 0
    if not known.any():
        raise InputError("No token is counted, so there are no frequencies to compare.")
    floor = np.nan if skip_uncounted else table[known].min()
    logs = np.log(np.where(known, table, floor) / table.sum())
    if any(len(ids) and not 0 <= min(ids) <= max(ids) < len(logs) for ids in token_ids):
        raise InputError(f"A token's id is not among the {len(logs)} counts: do they belong to the same vocabulary?")
    used = [logs[np.asarray(ids, dtype=np.int64)] for ids in token_ids]
    used = [values[~np.isnan(values)] for values in used]
    means = np.array([values.mean() if len(values) else np.nan for values in used])
    if np.isnan(means).all():
        raise InputError("No sentence has a counted token, so there are no frequencies to compare.")
    return np.where(np.isnan(means), np.nanmean(means), means)


def sentence_frequency(
    log_frequency: npt.ArrayLike, norms: npt.ArrayLike, distances: npt.ArrayLike, groups: int = 5
) -> SentenceFrequency:
    """Correlate the word frequency of n sentences with the norms and neighbour distances of their vectors.

    Args:
        log_frequency: (n,), as from ``mean_log_frequency``.
        norms: ℓ2 norms of the vectors, (n,).
        distances: Distances to nearest neighbours, (n,), as from ``bertflow.geometry.neighbours.neighbour_distances``.
        groups: How many groups of equal size to average over.
    """
    frequency, norm, distance = columns(log_frequency, norms, distances)
    return SentenceFrequency(
        sentences=len(frequency),
        norm_correlation=spearman(frequency, norm),
        distance_correlation=spearman(frequency, distance),
        groups=tuple(
            FrequencyGroup(len(rows), *(float(column[rows].mean()) for column in (frequency, norm, distance)))
            for rows in quantile_groups(frequency, groups)
        ),
    )
