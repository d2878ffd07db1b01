"""Vectors as files of other programs have them: .npy, .npz, .safetensors, .parquet with a column of lists; also .jsonl out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from bertflow.arrays import Matrix
from bertflow.errors import InputError, require
from bertflow.storage.atomic import atomic_file

ARRAYS = (".npy", ".npz", ".safetensors")
WRITTEN = (".npy", ".npz", ".safetensors", ".parquet", ".jsonl")
VECTORS, IDS = "vectors", "ids"


def holds_vectors(path: str | Path, column: str | None = None) -> bool:
    """Whether a file holds vectors rather than text; of a parquet file, whether the column has lists."""
    file = Path(path)
    if file.suffix != ".parquet" or not file.is_file():
        return file.suffix in ARRAYS
    parquet = require("pyarrow.parquet", "parquet")
    try:
        schema = parquet.read_schema(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{file} is not a readable parquet file: {str(error)[:300]}. Write it again.") from None
    return any(_is_list(schema.field(name).type) for name in ([column] if column in schema.names else schema.names))


def read_vectors(path: str | Path, column: str | None = None) -> Matrix:
    """Return the vectors (n, d) of a file; an .npy file is mapped, not read.

    Args:
        path: One that ``holds_vectors``.
        column: Its column or array, where there are several.
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"There is no file {str(file)!r}.")
    try:
        found = _READ[file.suffix](file, column)
    except InputError:
        raise
    except Exception as error:  # of damaged files the libraries raise a dozen kinds, Python's own parser's among them
        raise InputError(f"{file} cannot be read as vectors: {str(error)[:300]}. Write it again.") from None
    if getattr(found, "ndim", 0) != 2 or found.dtype.kind != "f":
        what = f"{found.dtype} of shape {found.shape}" if hasattr(found, "dtype") else type(found).__name__
        raise InputError(f"{file} holds {what}; vectors are floating-point numbers with two axes (n, d).")
    return found


def write_vectors(path: str | Path, vectors: Any, names: Mapping[str, Sequence[Any]] | None = None) -> None:
    """Write vectors (n, d), whole or not at all, in the form that the file's ending says.

    Args:
        path: Ends in one of ``WRITTEN``.
        vectors: What to write.
        names: More columns, such as texts or ids; an .npy or .safetensors file has no room for them.
    """
    file = Path(path)
    if file.suffix not in WRITTEN:
        raise InputError(f"{file} ends in {file.suffix!r}; vectors are written to {', '.join(WRITTEN)}.")
    if file.suffix == ".parquet":
        require("pyarrow.parquet", "parquet")
    with atomic_file(file) as temporary:
        _WRITE[file.suffix](temporary, vectors, names or {})


def _read_npy(file: Path, column: str | None) -> Any:
    return np.load(file, mmap_mode="r", allow_pickle=False)


def _read_npz(file: Path, column: str | None) -> Any:
    with np.load(file, allow_pickle=False) as arrays:
        return arrays[_one_of(file, [name for name in arrays if name != IDS], column)]


def _read_safetensors(file: Path, column: str | None) -> Any:
    with safetensors.safe_open(file, "numpy") as arrays:
        return arrays.get_tensor(_one_of(file, list(arrays.keys()), column))


def _read_parquet(file: Path, column: str | None) -> Any:
    parquet = require("pyarrow.parquet", "parquet")
    schema = parquet.read_schema(file)
    name = _one_of(file, [field.name for field in schema if _is_list(field.type)], column)
    return np.stack(parquet.read_table(file, columns=[name])[name].to_numpy()).astype(np.float32)


def _one_of(file: Path, names: list[str], asked: str | None) -> str:
    """The array asked for, or the only one, or the one called vectors or embedding."""
    usual = [name for name in (VECTORS, "embeddings", "embedding") if name in names]
    if asked and asked not in names:
        raise InputError(f"{file} has no vectors called {asked!r}; it has {', '.join(names) or 'none'}.")
    chosen = [asked] if asked else usual or names
    if asked is None and len(chosen) != 1 and not usual:
        raise InputError(f"{file} holds {len(names)} arrays ({', '.join(names)}); name one with --column.")
    return str(chosen[0])


def _is_list(kind: Any) -> bool:
    return str(kind).startswith(("list", "fixed_size_list", "large_list"))


def _write_npy(file: Path, vectors: Any, names: Mapping[str, Sequence[Any]]) -> None:
    np.save(file, vectors, allow_pickle=False)


def _write_npz(file: Path, vectors: Any, names: Mapping[str, Sequence[Any]]) -> None:
    arrays: dict[str, Any] = {name: np.array(values) for name, values in names.items()}
    np.savez(file, vectors=vectors, **arrays)


def _write_safetensors(file: Path, vectors: Any, names: Mapping[str, Sequence[Any]]) -> None:
    safetensors.numpy.save_file({VECTORS: np.ascontiguousarray(vectors)}, file, {"format": "bertflow-vectors"})


def _write_jsonl(file: Path, vectors: Any, names: Mapping[str, Sequence[Any]]) -> None:
    with file.open("w", encoding="utf-8") as out:
        for i, vector in enumerate(vectors):
            row = {name: values[i] for name, values in names.items()} | {"embedding": vector.tolist()}
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write_parquet(file: Path, vectors: Any, names: Mapping[str, Sequence[Any]]) -> None:
    arrow, parquet = require("pyarrow", "parquet"), require("pyarrow.parquet", "parquet")
    column = arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.ravel()), vectors.shape[1])
    parquet.write_table(arrow.table({**names, "embedding": column}), file)


_READ = {".npy": _read_npy, ".npz": _read_npz, ".safetensors": _read_safetensors, ".parquet": _read_parquet}
_WRITE = {
    ".npy": _write_npy,
    ".npz": _write_npz,
    ".safetensors": _write_safetensors,
    ".parquet": _write_parquet,
    ".jsonl": _write_jsonl,
}
