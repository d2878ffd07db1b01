"""Calibration inside a FAISS index: raw vectors go in, calibrated cosine search comes out, in any program that has FAISS."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from bertflow.calibrators import Calibrator
from bertflow.errors import InputError, require
from bertflow.parts import Part


def load_faiss() -> Any:
    """Import FAISS beside torch."""
    if sys.platform == "darwin":  # both bring an OpenMP there, and the second to start would abort the process
        os.environ.setdefault("KMP_DUPLICATE_LIB_OK", "TRUE")
    return require("faiss", "faiss")


@contextmanager
def faiss_threads(count: int | None = None) -> Iterator[None]:
    """Let FAISS use as many threads as torch does, or ``count``; afterwards its setting is what it was.

    On macOS it is one always: with two OpenMP libraries in a process, threads of the second crash.
    """
    faiss = load_faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1 if sys.platform == "darwin" else count or torch.get_num_threads())
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def is_affine(calibrator: Calibrator) -> bool:
    """Whether a calibrator is one matrix and one bias, which FAISS can hold."""
    return hasattr(calibrator, "as_affine")


def pretransform(calibrator: Calibrator) -> list[Any]:
    """Return a fitted affine calibrator as FAISS's transforms, first to last: a linear map, then unit length.

    With inner product as the metric, an index behind them searches by calibrated cosine:

        index = faiss.IndexPreTransform(faiss.IndexFlatIP(k))
        for transform in reversed(pretransform(calibrator)):
            index.prepend_transform(transform)

    FAISS computes in float32: cosines differ from ``calibrator.transform`` by about 1e-6.

    Args:
        calibrator: ``Whitening``, ``Standardize``, ``RemoveTopComponents`` or ``Identity``. A flow is not linear: calibrate
            the vectors before they are added.
    """
    if not is_affine(calibrator):
        raise InputError(
            f"{type(calibrator).__name__} is no affine map, so that FAISS cannot hold it: add calibrator.transform(vectors) "
            "to the index, and search with transformed queries."
        )
    faiss = load_faiss()
    matrix, bias = calibrator.as_affine()
    linear = faiss.LinearTransform(*matrix.shape, True)
    faiss.copy_array_to_vector(np.ascontiguousarray(matrix.T, dtype=np.float32).ravel(), linear.A)
    faiss.copy_array_to_vector(bias.astype(np.float32), linear.b)
    linear.set_is_orthonormal()  # asks the matrix, so that FAISS knows whether it can go back
    linear.is_trained = True
    return [linear, faiss.NormalizationTransform(matrix.shape[1], 2.0)]


def calibrated_index(calibrator: Calibrator, factory: str = "Flat", parameters: str | None = None) -> Any:
    """Return an empty ``faiss.IndexPreTransform`` that searches by cosine.

    Args:
        calibrator: Fitted. An affine one lives in the index, which then takes raw vectors; a flow does not, and the index
            takes the vectors that ``calibrator.transform`` gives.
        factory: As for ``faiss.index_factory``: ``"Flat"`` (exact), ``"HNSW32"``, ``"IVF256,Flat"``…
        parameters: For searching, as FAISS writes them: ``"nprobe=16"``, ``"efSearch=64"``.
    """
    transforms = pretransform(calibrator) if is_affine(calibrator) else []
    return _behind(transforms, calibrator.dim, factory, parameters)


def holds_calibration(parts: Sequence[Part]) -> bool:
    """Whether an index holds the calibration of a model itself: of one part, with one matrix and one bias."""
    return len(parts) == 1 and is_affine(parts[0].calibrator)


def index_of(parts: Sequence[Part], factory: str = "Flat", parameters: str | None = None) -> Any:
    """Return an empty index for a model: it takes the view's vectors where it holds the calibration, else the model's."""
    if holds_calibration(parts):
        return calibrated_index(parts[0].calibrator, factory, parameters)
    return _behind([], sum(part.calibrator.dim for part in parts), factory, parameters)


def _behind(transforms: Sequence[Any], dim: int, factory: str, parameters: str | None) -> Any:
    """Return an empty index behind transforms, or behind unit length alone."""
    faiss = load_faiss()
    index = faiss.IndexPreTransform(bare_index(dim, factory, parameters))
    for transform in reversed([*transforms] or [faiss.NormalizationTransform(dim, 2.0)]):
        index.prepend_transform(transform)
    return index


def bare_index(dim: int, factory: str, parameters: str | None = None) -> Any:
    """Return an empty index of unit vectors by its factory string, or say what is wrong with the string."""
    faiss = load_faiss()
    try:
        index = faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
        if parameters:
            faiss.ParameterSpace().set_index_parameters(index, parameters)
    except (RuntimeError, AssertionError) as error:
        asked = f"{factory} with {parameters}" if parameters else factory
        raise InputError(
            f"FAISS makes no index of {dim} dimensions from {asked!r} ({reason(error)}); such are Flat, HNSW32 and IVF256,Flat."
        ) from None
    return index


def reason(error: BaseException) -> str:
    """What FAISS says, without the place in its source."""
    text = re.sub(r"^Error in .* at \S+:\d+: (Error: )?('.*' failed: )?", "", str(error).strip(), flags=re.DOTALL)
    return (text or type(error).__name__).splitlines()[0]
