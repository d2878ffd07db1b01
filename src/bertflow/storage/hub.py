"""The Hugging Face hub, asked once and quickly: without it, what is on this disk has to do.

``huggingface_hub`` tries each file again for most of a minute. One short look-up before it tells whether that is worth it.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

PATIENCE = 5.0  # seconds for the one look-up
REMEMBERED = 60.0  # seconds for which its answer counts

_answer: tuple[float, bool] | None = None  # when, and whether the hub answered


def options_for(path_or_id: str | Path, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a load, with ``local_files_only`` where the hub would be asked and does not answer.

    Args:
        path_or_id: A folder, which never asks the hub, or an id.
        options: ``revision``, ``token``, ``local_files_only`` and the like.
    """
    if options.get("local_files_only") or Path(path_or_id).is_dir() or answers():
        return options
    return options | {"local_files_only": True}


def answers() -> bool:
    """Whether the hub answers within ``PATIENCE`` seconds; asked at most once a minute."""
    global _answer
    now = time.monotonic()
    if _answer is None or now - _answer[0] > REMEMBERED:
        _answer = now, _ask()
    return _answer[1]


def _ask() -> bool:
    """One request in a thread of its own, since no timeout covers a slow name server."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    heard = threading.Event()

    def ask() -> None:
        try:
            get_session().head(constants.ENDPOINT, timeout=PATIENCE)  # any answer will do
        except Exception:  # each transport has its own kinds
            return
        heard.set()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return heard.is_set()
