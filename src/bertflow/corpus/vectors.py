"""What every verb of this room begins with: distinct texts, and their vectors at length one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bertflow.arrays import Matrix, as_matrix, unit_rows
from bertflow.errors import InputError
from bertflow.texts import check_sentences

Indices = npt.NDArray[np.int64]


class Model(Protocol):
    """What this room asks of a model."""

    def encode(self, sentences: Any, /) -> Any:
        """Map n texts to (n, d)."""


def unit_vectors(texts: Sequence[str], model: Model) -> Matrix:
    """Return a model's vectors of n texts, float32, at length one (n, d)."""
    vectors = as_matrix(model.encode(check_sentences(texts)), "the model's vectors")
    if len(vectors) != len(texts):
        raise InputError(f"{len(texts)} texts gave {len(vectors)} vectors; one each was expected.")
    return checked_units(vectors)


def checked_units(vectors: object, name: str = "vectors") -> Matrix:
    """Check vectors (n, d) and return them as float32 at length one."""
    return unit_rows(as_matrix(vectors, name).astype(np.float64)).astype(np.float32)


def distinct(texts: Sequence[str]) -> tuple[list[str], Indices]:
    """Return the distinct texts in order of their first occurrence, and for each text the number of its own (n,)."""
    number: dict[str, int] = {}
    rows = [number.setdefault(text, len(number)) for text in check_sentences(texts)]
    return list(number), np.array(rows, dtype=np.int64)
