"""Groups of texts, as many as asked for or as there are, named by telling words and by their most central texts."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans, MiniBatchKMeans

from bertflow.arrays import Matrix, unit_rows
from bertflow.corpus.significance import Significance
from bertflow.corpus.vectors import Indices, Model, distinct, given_units
from bertflow.corpus.words import telling_words
from bertflow.errors import InputError

FINE, TEXTS_A_GROUP = 400, 5  # so many fine groups are made first, of at least so many texts on average
MANY = 50_000  # texts, from where on the fine groups are made of small batches
APART = 0.1  # groups stay apart that are no nearer, on average, than one in ten pairs of unrelated texts
ROUNDS = 4  # in which texts may still change to a nearer group


@dataclass(frozen=True)
class Group:
    """Texts that belong together.

    Args:
        number: Its number; 0 is the largest group.
        name: Its first telling words.
        words: Words that tell it from the others.
        size: How many texts, repeated ones too.
        central: Rows of the most central texts, the most central first.
        cohesion: Mean cosine of its texts to its centre.
    """

    number: int
    name: str
    words: tuple[str, ...]
    size: int
    central: tuple[int, ...]
    cohesion: float


@dataclass(frozen=True)
class Clusters:
    """Groups of texts.

    Args:
        labels: The number of each text's group (n,).
        groups: The largest first.
        found: Whether their number was found rather than given.
    """

    labels: tuple[int, ...]
    groups: tuple[Group, ...]
    found: bool

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return asdict(self)


def find_clusters(
    texts: Sequence[str],
    model: Model | None = None,
    *,
    vectors: object = None,
    k: int | None = None,
    apart: float = APART,
    words: int = 5,
    central: int = 3,
    significance: Significance | None = None,
    random_state: int = 0,
) -> Clusters:
    """Put texts into groups.

    Many fine groups are made first; the two that are nearest on average are merged, again and again, until k are left, or
    until the nearest two are about as near as unrelated texts; then each text goes to the group whose centre is nearest.

    Args:
        texts: n texts.
        model: Encodes them.
        vectors: Their vectors (n, d), instead of a model.
        k: How many groups; default: as many as are found.
        apart: Where k is not given: groups stay apart whose mean cosine this share of unrelated pairs reaches. The lower,
            the more groups.
        words: How many telling words for each group.
        central: How many central texts for each.
        significance: What a cosine means; default: fitted on the texts.
        random_state: Makes the result repeatable.

    Example:
        >>> [group.name for group in find_clusters(texts, model).groups]  # doctest: +SKIP
    """
    given, number = distinct(texts)
    if k is not None and not 2 <= k <= len(given):
        raise InputError(f"k is {k!r}; of {len(given)} different texts 2 to {len(given)} groups can be made.")
    if not 0 < apart < 1:
        raise InputError(f"apart is {apart!r}; a share between 0 and 1 was wanted.")
    rows = given_units(given, number, model, vectors)
    least = -np.inf
    if k is None:
        significance = significance or Significance.fit(rows, random_state=random_state)
        least = significance.threshold_of_share(apart)
    labels = cluster_rows(rows, k, least, random_state)
    return _named(given, number, rows, labels, words, central, k is None)


def cluster_rows(rows: Matrix, k: int | None, least: float = -np.inf, random_state: int = 0) -> Indices:
    """Return the group of each unit row (n, d): k groups, or those whose mean cosines stay below ``least``."""
    fine = _fine_groups(rows, max(2 * (k or 0), min(FINE, len(rows) // TEXTS_A_GROUP), 2), random_state)
    labels = _merge(rows, fine, k or 2, -np.inf if k else least)[fine]
    for _ in range(ROUNDS):
        centres = unit_rows(_sums(rows, labels))
        nearer = np.argmax(rows @ centres.T, axis=1)
        if len(np.unique(nearer)) < len(centres):  # a group would be left without texts
            break
        labels = nearer
    return labels


def _fine_groups(rows: Matrix, count: int, random_state: int) -> Indices:
    count = min(count, len(rows))
    several = MiniBatchKMeans if len(rows) > MANY else KMeans
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct rows than groups
        found = several(count, n_init=1, random_state=random_state).fit(rows).labels_
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def _sums(rows: Matrix, labels: Indices) -> npt.NDArray[np.float64]:
    """Return the sum of the rows of each group (k, d)."""
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(labels.max() + 1))
    return np.add.reduceat(rows[order].astype(np.float64), starts, axis=0)


def _merge(rows: Matrix, fine: Indices, k: int, least: float) -> Indices:
    """Merge the two fine groups of the highest mean cosine until k are left, or until that is below ``least``."""
    sums, sizes = _sums(rows, fine), np.bincount(fine).astype(np.float64)
    target = np.arange(len(sums))
    nearness = sums @ sums.T / np.outer(sizes, sizes)
    np.fill_diagonal(nearness, -np.inf)
    for _ in range(len(sums) - k):
        one, other = np.unravel_index(np.argmax(nearness), nearness.shape)
        if nearness[one, other] < least:
            break
        sums[one] += sums[other]
        sizes[one] += sizes[other]
        target[target == other] = one
        gone = np.isneginf(nearness[one])
        nearness[one] = np.where(gone, -np.inf, sums @ sums[one] / (sizes * sizes[one]))
        nearness[:, one] = nearness[one]
        nearness[other] = nearness[:, other] = -np.inf
    return np.unique(target, return_inverse=True)[1].astype(np.int64)


def _named(
    given: list[str], number: Indices, rows: Matrix, labels: Indices, words: int, central: int, found: bool
) -> Clusters:
    sizes = np.bincount(labels[number])
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    labels = rank[labels]
    place = np.unique(number, return_index=True)[1]
    cosines = np.einsum("nd,nd->n", rows, unit_rows(_sums(rows, labels))[labels])
    names = telling_words(given, labels, words)
    groups = []
    for one in range(len(sizes)):
        members = np.flatnonzero(labels == one)
        nearest = members[np.argsort(-cosines[members], kind="stable")[:central]]
        size, cohesion = int((labels[number] == one).sum()), float(cosines[members].mean())
        name = " · ".join(names[one][:3])
        groups.append(Group(one, name, names[one], size, tuple(place[nearest].tolist()), cohesion))
    return Clusters(tuple(labels[number].tolist()), tuple(groups), found)
