"""Rows that need not fit in memory: read in blocks, several times, and a random sample for measures of all pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np

from bertflow.arrays import Matrix, as_matrix, unit_rows
from bertflow.errors import InputError
from bertflow.moments import Moments

# An (n, d) array, memory map or tensor, or an object that can be iterated over batches (m, d) several times.
Rows: TypeAlias = Any

BLOCK_ROWS = 4096
SAMPLE = 5000  # rows, all pairs of which are compared: 25 million, about a second


def blocks(rows: Rows) -> Iterator[Matrix]:
    """Yield all rows in order, in checked blocks of at most 4 096, so that memory does not grow with n.

    Args:
        rows: An (n, d) array, memory map or tensor, or an iterable of batches (m, d). Most measures read the rows several
            times. A generator can be read only once and is refused: give a list or an object with ``__iter__``.
    """
    for batch in _batches(rows):
        for start in range(0, len(batch), BLOCK_ROWS):
            yield as_matrix(batch[start : start + BLOCK_ROWS], "rows")


def moments_of(rows: Rows) -> tuple[Moments, Moments]:
    """Return the moments of the rows and of the rows scaled to length one, in one pass."""
    plain, units = Moments(), Moments()
    for block in blocks(rows):
        plain.add(block)
        units.add(unit_rows(block.astype(np.float64)))
    if plain.count < 2:
        raise InputError(f"{plain.count} row(s) came; at least two are needed to measure their spread.")
    return plain, units


def sample_rows(rows: Rows, size: int = SAMPLE, seed: int = 0) -> Matrix:
    """Return ``size`` rows, drawn without replacement and kept in their order; all rows where there are fewer.

    Args:
        rows: As in ``blocks``.
        size: How many at most.
        seed: The same seed and number of rows draw the same rows, from an array or from batches.
    """
    count = len(rows) if hasattr(rows, "shape") else sum(map(len, blocks(rows)))
    chosen = sample_indices(count, size, seed)
    if hasattr(rows, "shape"):
        return as_matrix(rows[chosen], "rows")
    found, start = [], 0
    for block in blocks(rows):
        here = chosen[(chosen >= start) & (chosen < start + len(block))] - start
        found.append(block[here])
        start += len(block)
    return np.concatenate(found)


def sample_indices(count: int, size: int = SAMPLE, seed: int = 0) -> Any:
    """Return at most ``size`` of the numbers below ``count``, in order."""
    if size >= count:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, size, replace=False, shuffle=False))


def _batches(rows: Rows) -> Iterable[Any]:
    if hasattr(rows, "shape"):
        return (rows,)
    if not isinstance(rows, Iterable):
        raise InputError(f"Rows are an (n, d) array or an iterable of such batches; got {type(rows).__name__}.")
    if iter(rows) is rows:
        raise InputError(
            "The rows are read more than once, which a generator cannot be: give an array or a list of batches."
        )
    return rows
