"""Where the data sets and the cached embeddings lie on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from bertflow.errors import InputError

_HERE = Path(__file__).resolve()


def cache_folder() -> Path:
    """Return ``$BERTFLOW_CACHE``, or ``~/.cache/bertflow``; it need not exist yet."""
    return Path(os.environ.get("BERTFLOW_CACHE") or Path.home() / ".cache" / "bertflow")


def find_data(data: str | Path | None = None) -> Path:
    """Return the folder of data sets.

    Args:
        data: The folder itself. Without it ``$BERTFLOW_DATA`` counts, then ``../shared/data`` beside the current
            directory and beside a checkout of this repository, then ``data`` in the cache folder, which
            ``bertflow data get`` fills.
    """
    named = data or os.environ.get("BERTFLOW_DATA")
    if named:
        if not Path(named).is_dir():
            source = "the argument" if data else "BERTFLOW_DATA"
            raise InputError(f"There is no folder {str(named)!r}, which {source} names as the folder of data sets.")
        return Path(named)
    places = [Path.cwd().parent / "shared" / "data", cache_folder() / "data"]
    if _HERE.parents[2].name == "src":
        places.insert(1, _HERE.parents[4] / "shared" / "data")
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise InputError(
            "The data sets are not here: run  bertflow data get , or set BERTFLOW_DATA to a folder with SentEval's data"
            f" (looked in {', '.join(map(str, places))})."
        )
    return found
