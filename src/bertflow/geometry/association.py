"""How two columns of numbers are related: rank correlation, and groups of equal size by one of them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bertflow.errors import InputError

Vector: TypeAlias = npt.NDArray[np.float64]


def spearman(a: npt.ArrayLike, b: npt.ArrayLike) -> float | None:
    """Spearman's correlation ×100 of (n,) with (n,); None where one of them is constant."""
    from scipy.stats import spearmanr  # the import takes a second

    left, right = columns(a, b)
    if len(left) < 2 or left.min() == left.max() or right.min() == right.max():
        return None
    return 100 * float(spearmanr(left, right).statistic)


def quantile_groups(values: npt.ArrayLike, groups: int) -> list[npt.NDArray[np.int64]]:
    """Return the indices of the lowest values, of the next, and so on: groups of nearly equal size, none empty."""
    (array,) = columns(values)
    if groups < 1:
        raise InputError(f"{groups} groups were asked for; at least 1 was expected.")
    return [part for part in np.array_split(np.argsort(array, kind="stable"), groups) if len(part)]


def columns(*arrays: npt.ArrayLike) -> list[Vector]:
    """Return the arrays in float64; they must have one length (n,), n > 0, and no NaN."""
    found: list[Any] = [np.asarray(array, dtype=np.float64) for array in arrays]
    shapes = {array.shape for array in found}
    if len(shapes) > 1 or found[0].ndim != 1 or not len(found[0]):
        raise InputError(f"Columns of one length (n,) were expected; these have the shapes {sorted(shapes)}.")
    if any(np.isnan(array).any() for array in found):
        raise InputError("The columns hold NaN: remove or correct those rows.")
    return found
