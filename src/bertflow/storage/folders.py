"""Where the data sets and the cached embeddings lie on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from bertflow.errors import InputError


def cache_folder() -> Path:
    """Return ``$BERTFLOW_CACHE``, or ``~/.cache/bertflow``; it need not exist yet."""
    return Path(os.environ.get("BERTFLOW_CACHE") or Path.home() / ".cache" / "bertflow")


def find_data(data: str | Path | None = None) -> Path:
    """Return the folder of data sets.

    Args:
        data: The folder itself. Without it ``$BERTFLOW_DATA`` counts, then ``data`` in the cache folder, which
            ``bertflow data get`` fills.
    """
    named = data or os.environ.get("BERTFLOW_DATA")
    if named:
        if not Path(named).is_dir():
            source = "the argument" if data else "BERTFLOW_DATA"
            raise InputError(f"There is no folder {str(named)!r}, which {source} names as the folder of data sets.")
        return Path(named)
    fetched = cache_folder() / "data"
    if not fetched.is_dir():
        raise InputError(
            "The data sets are not here: run  bertflow data get , or set BERTFLOW_DATA to a folder with SentEval's data"
            f" (looked in {fetched})."
        )
    return fetched
