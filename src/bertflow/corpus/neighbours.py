"""Exact neighbours by cosine, a block at a time: memory does not grow with the number of pairs looked at."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from tqdm.auto import tqdm

from bertflow.arrays import Matrix
from bertflow.corpus.vectors import Indices
from bertflow.errors import InputError

BLOCK = 4096  # rows; a block of cosines is 64 MiB
MOST_PAIRS = 20_000_000


class Pairs(NamedTuple):
    """Pairs of rows and their cosines, each (p,), nearest first."""

    first: Indices
    second: Indices
    cosine: Matrix

    def part(self, rows: slice) -> Pairs:
        """Return some of them."""
        return Pairs(self.first[rows], self.second[rows], self.cosine[rows])


def pairs_above(
    rows: Matrix, threshold: float, other: Matrix | None = None, *, show_progress_bar: bool = False
) -> Pairs:
    """Return all pairs of unit rows (n, d) whose cosine is at least the threshold.

    Args:
        rows: Compared with each other, each pair once, its first row the lower one.
        threshold: The least cosine.
        other: Compared with these (m, d) instead.
        show_progress_bar: Show progress.
    """
    base = rows if other is None else other
    found: list[Pairs] = []
    count = 0
    for start in tqdm(range(0, len(rows), BLOCK), desc="comparing", disable=not show_progress_bar):
        block = rows[start : start + BLOCK]
        for begin in range(start if other is None else 0, len(base), BLOCK):
            cosines = block @ base[begin : begin + BLOCK].T
            i, j = np.nonzero(cosines >= threshold)
            if other is None and begin == start:
                i, j = i[i < j], j[i < j]
            found.append(Pairs(i + start, j + begin, cosines[i, j]))
            count += len(i)
            if count > MOST_PAIRS:
                raise InputError(
                    f"More than {MOST_PAIRS:,} pairs have a cosine of {threshold:.3f} or more: ask for fewer false pairs."
                )
    first, second, cosine = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((second, first, -cosine))
    return Pairs(first[order], second[order], cosine[order])


def nearest_rows(
    queries: Matrix, rows: Matrix, k: int, *, own: bool = False, show_progress_bar: bool = False
) -> tuple[Matrix, Indices]:
    """Return cosines and numbers of the k nearest unit rows (n, d) of each query (m, d), both (m, k), nearest first.

    Args:
        queries: What neighbours are sought for.
        rows: Among these.
        k: How many; at most there are.
        own: Query i is row i and none of its own neighbours.
        show_progress_bar: Show progress.
    """
    k = min(k, len(rows) - own)
    if k < 1:
        raise InputError(f"{len(rows)} text(s) are too few to have neighbours among them.")
    cosines = np.full((len(queries), k), -np.inf, dtype=np.float32)
    numbers = np.zeros((len(queries), k), dtype=np.int64)
    for start in tqdm(range(0, len(queries), BLOCK), desc="comparing", disable=not show_progress_bar):
        part = slice(start, start + BLOCK)
        for begin in range(0, len(rows), BLOCK):
            block = queries[part] @ rows[begin : begin + BLOCK].T
            if own and begin == start:
                np.fill_diagonal(block, -np.inf)
            cosines[part], numbers[part] = _best(cosines[part], numbers[part], block, begin)
    return cosines, numbers


def _best(cosines: Matrix, numbers: Indices, block: Matrix, begin: int) -> tuple[Matrix, Indices]:
    """Merge the best so far (b, k) with a block of cosines (b, m) whose first column is row ``begin``."""
    k = cosines.shape[1]
    top = np.argpartition(-block, min(k, block.shape[1]) - 1, axis=1)[:, :k]
    values = np.concatenate([cosines, np.take_along_axis(block, top, 1)], axis=1)
    places = np.concatenate([numbers, top + begin], axis=1)
    order = np.lexsort((places, -values))[:, :k]
    return np.take_along_axis(values, order, 1), np.take_along_axis(places, order, 1)
