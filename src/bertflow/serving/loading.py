"""From what stands on the command line, ``NAME=FOLDER``, to models and indexes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bertflow.errors import InputError


def load_models(places: Sequence[str], device: str | None = None) -> dict[str, Any]:
    """Load models by name; ``FOLDER`` alone is named after the folder, a hub id keeps its name.

    Args:
        places: ``NAME=FOLDER``, ``FOLDER``, ``mini-flow`` or a hub id each.
        device: Default: the best there is.
    """
    return _by_name(places, lambda place: _load_model(place, device))


def load_indexes(places: Sequence[str], device: str | None = None) -> dict[str, Any]:
    """Load search indexes by name, as ``load_models`` does; needs FAISS where there is one."""
    if not places:
        return {}
    from bertflow.integrations.faiss import SearchIndex

    return _by_name(places, lambda place: SearchIndex.load(place, device=device))


def _by_name(places: Sequence[str], load: Callable[[str], Any]) -> dict[str, Any]:
    named: dict[str, str] = {}
    for place in places:
        name, equals, folder = place.partition("=")
        if not equals or Path(place).exists():
            name, folder = Path(place).name if Path(place).exists() else place, place
        if not name or not folder:
            raise InputError(f"{place!r} is not NAME=FOLDER: write a name, =, and a folder.")
        if name in named:
            raise InputError(f"Two are called {name!r}: {named[name]} and {folder}. Name them: NAME=FOLDER.")
        named[name] = folder
    return {name: load(folder) for name, folder in named.items()}


def _load_model(place: str, device: str | None) -> Any:
    if _format(place) == "bertflow-onnx":
        from bertflow.integrations.onnx_model import OnnxModel

        return OnnxModel.from_pretrained(place)
    if _format(place) == "bertflow-index":
        raise InputError(f"{place} is a search index, not a model: serve it with --index {place}.")
    from bertflow.model import BertFlow

    return BertFlow.from_pretrained(place, device=device)


def _format(place: str) -> Any:
    """Return what a folder says it holds; the loader says what is wrong with one that says nothing."""
    try:
        config = json.loads((Path(place) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return config.get("format") if isinstance(config, dict) else None
