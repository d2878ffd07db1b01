"""SHA-256 of files, and the check of it: once for each file and process, since reading a large file twice costs minutes."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

from bertflow.errors import BertflowError, ModelFolderError

_verified: set[tuple[str, int, int, int, str]] = set()
_lock = threading.Lock()


def checksum(path: str | Path) -> str:
    """Return the SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with Path(path).open("rb", buffering=0) as file:
        while piece := file.read(1 << 20):
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
