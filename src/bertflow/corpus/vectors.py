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


def model_vectors(texts: Sequence[str], model: Model) -> Matrix:
    """Return a model's vectors of n texts (n, d), checked."""
    vectors = as_matrix(model.encode(check_sentences(texts)), "the model's vectors")
    if len(vectors) != len(texts):
        raise InputError(f"{len(texts)} texts gave {len(vectors)} vectors; one each was expected.")
    return vectors


def unit_vectors(texts: Sequence[str], model: Model) -> Matrix:
    """Return a model's vectors of n texts, float32, at length one (n, d)."""
    return checked_units(model_vectors(texts, model))


def checked_units(vectors: object, name: str = "vectors") -> Matrix:
    """Check vectors (n, d) and return them as float32 at length one."""
    return unit_rows(as_matrix(vectors, name).astype(np.float64)).astype(np.float32)


def distinct(texts: Sequence[str]) -> tuple[list[str], Indices]:
    """Return the distinct texts in order of their first occurrence, and for each text the number of its own (n,)."""
    number: dict[str, int] = {}
    rows = [number.setdefault(text, len(number)) for text in check_sentences(texts)]
    return list(number), np.array(rows, dtype=np.int64)


def given_vectors(given: list[str], number: Indices, model: Model | None, vectors: object) -> Matrix:
    """Return vectors (n, d) of distinct texts, by a model or out of those given for all texts."""
    if (model is None) == (vectors is None):
        raise InputError("Texts come with a model that encodes them, or with their vectors: give one of the two.")
    if model is not None:
        return model_vectors(given, model)
    rows = as_matrix(vectors, "vectors")
    if len(rows) != len(number):
        raise InputError(f"{len(number)} texts came with {len(rows)} vectors; one each was expected.")
    return rows[np.unique(number, return_index=True)[1]]


def given_units(given: list[str], number: Indices, model: Model | None, vectors: object) -> Matrix:
    """Return the same at length one."""
    return checked_units(given_vectors(given, number, model, vectors))
