"""The only place that turns lists, numpy, torch or memory maps into checked (n, d) batches, and picks devices.

torch is imported only where it is used: ``bertflow.runtime.portable`` and ``OnnxModel`` check their rows without it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bertflow.errors import InputError

if TYPE_CHECKING:
    import torch

Matrix: TypeAlias = npt.NDArray[np.floating[Any]]


def as_matrix(x: object, name: str = "x", *, min_rows: int = 1) -> Matrix:
    """Check and return ``x`` as a finite ``(n, d)`` array of float32 or float64.

    Args:
        x: Nested lists, a numpy array or memory map, or a tensor on any device.
        name: What the caller calls it, for the error message.
        min_rows: The fewest rows that make sense.
    """
    library: Any = sys.modules.get("torch")  # where it was never imported, nothing is a tensor
    tensor: Any = x if library is not None and isinstance(x, library.Tensor) else None
    if tensor is not None:
        tensor = tensor.detach().cpu()
        x = (tensor if tensor.dtype in (library.float32, library.float64) else tensor.float()).numpy()
    try:
        array = np.asarray(x)
        if array.dtype.kind == "c":
            raise TypeError("complex numbers, whose imaginary part would be lost")
        array = array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an (n, d) array of numbers, but it holds something else: {error}") from None
    if array.ndim != 2:
        raise InputError(f"{name} must have two axes (n, d); it has shape {array.shape}. One vector v is v[None].")
    if len(array) < min_rows:
        raise InputError(f"{name} has {len(array)} row(s); at least {min_rows} are needed.")
    bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
    if bad.size:
        raise InputError(
            f"{name} has NaN or infinity in {bad.size} row(s), first in row {bad[0]}: remove or mend them."
        )
    return array


def choose_device(device: str | torch.device | None = None) -> torch.device:
    """Return the device asked for, or the best one there is: cuda, then mps, then cpu."""
    import torch

    if device is not None:
        try:
            chosen = torch.device(device)
        except RuntimeError:
            raise InputError(f"{device!r} is not a device; use 'cuda', 'cuda:1', 'mps' or 'cpu'.") from None
        if (chosen.type == "cuda" and not torch.cuda.is_available()) or (
            chosen.type == "mps" and not torch.backends.mps.is_available()
        ):
            raise InputError(f"Device {str(device)!r} is not available here; use 'cpu' or leave it out.")
        return chosen
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def version_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return what differs after every change of a tensor, but for changes through ``.data``."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def unit_rows(x: Matrix) -> Matrix:
    """Scale each row to length one; a zero row stays zero."""
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(norms > 0, norms, 1)


def cosine_of_pairs(a: Matrix, b: Matrix) -> Matrix:
    """Cosine of row i of ``a`` with row i of ``b``, shape (n,)."""
    return np.einsum("nd,nd->n", unit_rows(a), unit_rows(b))


PRECISIONS = ("float32", "float16", "int8", "binary", "ubinary")


def quantized(x: Matrix, precision: str) -> npt.NDArray[Any]:
    """Return vectors (n, d) in fewer bits; each row is treated by itself, so cosines of rows stay nearly what they were.

    Args:
        x: Vectors (n, d).
        precision: ``"float32"``, ``"float16"``; ``"int8"``, where a row's largest entry becomes 127; ``"binary"`` and
            ``"ubinary"``, one bit a dimension (is it positive?), packed to (n, d / 8) as sentence-transformers does.
    """
    if precision in ("float32", "float16"):
        return x.astype(precision, copy=False)
    if precision == "int8":
        largest = np.abs(x).max(axis=1, keepdims=True)
        return np.rint(x * (127 / np.where(largest > 0, largest, 1))).astype(np.int8)
    if precision in ("binary", "ubinary"):
        bits = np.packbits(x > 0, axis=1)
        return bits if precision == "ubinary" else (bits.astype(np.int16) - 128).astype(np.int8)
    raise InputError(f"Unknown precision {precision!r}; choose from {', '.join(PRECISIONS)}.")
