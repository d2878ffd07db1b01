"""SHA-256 of files and settings, and the check of it.

A file is checked once in each process, since reading a large one twice costs minutes.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.errors import BertflowError, ModelFolderError

SEAL = "seal"

_verified: set[tuple[str, int, int, int, str]] = set()
_lock = threading.Lock()


def checksum(path: str | Path) -> str:
    """Return the SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with Path(path).open("rb", buffering=0) as file:
        while piece := file.read(1 << 17):
            digest.update(piece)
    return digest.hexdigest()


def verify(path: str | Path, known: object, remedy: str, error: type[BertflowError] = ModelFolderError) -> None:
    """Refuse a file whose SHA-256 is not the one known; a file that was found sound is not read again until it changes.

    Args:
        path: The file.
        known: Its SHA-256, as written down when it was made.
        remedy: What to do about a damaged one, such as ``"copy the folder again"``.
        error: What to raise.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 (follows links, as reading does)
        state = (os.path.realpath(path), found.st_size, found.st_mtime_ns, found.st_ino, str(known))
        if state in _verified:
            return
        sound = checksum(path) == known
    except FileNotFoundError:
        raise error(f"{path} is missing: {remedy}.") from None
    except OSError as reason:
        raise error(f"{path} cannot be read ({reason.strerror}): {remedy}.") from None
    if not sound:
        raise error(f"{path} is damaged or belongs to something else (its checksum differs): {remedy}.")
    with _lock:
        _verified.add(state)


def sealed(content: dict[str, Any], free: Collection[str] = ()) -> dict[str, Any]:
    """Return JSON settings with a checksum of themselves, under ``"seal"``.

    Args:
        content: The settings.
        free: Names of entries that may change without breaking the seal, since they do not change any vector.
    """
    return content | {SEAL: _seal_of(content, free)}


def check_seal(
    content: dict[str, Any],
    path: str | Path,
    remedy: str,
    *,
    free: Collection[str] = (),
    error: type[BertflowError] = ModelFolderError,
) -> None:
    """Refuse settings that are not those that were sealed.

    Args:
        content: What was read.
        path: Where from, for the message.
        remedy: What to do.
        free: As for ``sealed``.
        error: What to raise.
    """
    if content.get(SEAL) != _seal_of(content, free):
        raise error(f"{path} is damaged or was changed by another program (its checksum differs): {remedy}.")


def digest_states(states: Iterable[tuple[dict[str, Any], dict[str, Matrix], float]]) -> str:
    """Return the sha256 of calibrators, each told by its settings, its arrays and the scale of its vectors."""
    digest = hashlib.sha256()
    for settings, arrays, scale in states:
        digest.update(json.dumps([settings, scale], sort_keys=True, default=str).encode())
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _seal_of(content: dict[str, Any], free: Collection[str]) -> str:
    kept = {name: value for name, value in content.items() if name != SEAL and name not in free}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
