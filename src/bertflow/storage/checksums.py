"""The one checksum of all files that bertflow writes: SHA-256."""

from __future__ import annotations

import hashlib
from pathlib import Path


def checksum(path: str | Path) -> str:
    """SHA-256 of a file, without reading it whole."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _by_blocks(file)


def _by_blocks(file: object) -> str:
    digest = hashlib.sha256()
    while block := file.read(1 << 20):  # type: ignore[attr-defined]  # Python 3.10 has no file_digest
        digest.update(block)
    return digest.hexdigest()
