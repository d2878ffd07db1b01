"""Look into a stranger's checkpoint before a library does: damaged headers and sizes make those hang or fill the memory."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bertflow.errors import ModelFolderError

CONFIG = "config.json"
LONGEST_JSON = 2**26  # bytes; the largest tokenizers have half of it
_LAYERS = re.compile(r"layers?$")
_PARTS_OF_A_BYTE = 8  # a weight takes at least one bit
_LAYERS_OF_A_MODULE = 1000


class Stored(NamedTuple):
    """What a folder's weight files hold: their bytes, and their tensors where the files say how many they are."""

    size: int
    tensors: int | None


def check_checkpoint(folder: str | Path) -> Stored | None:
    """Refuse a checkpoint whose files cannot be true; return what its weight files hold, or None where there are none.

    Args:
        folder: Of a transformer in the layout of Hugging Face. A path that is no folder is left to whoever loads it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        return None
    for file in folder.glob("*.json"):
        read_json(file)
    files = sorted(folder.glob("*.safetensors"))
    if files:
        stored = Stored(sum(file.stat().st_size for file in files), sum(map(count_tensors, files)))
    else:
        size = sum(file.stat().st_size for file in folder.glob("*.bin"))
        stored = Stored(size, None)
    if not stored.size:
        return None
    if (folder / CONFIG).is_file():
        _check_layers(folder / CONFIG, stored)
    return stored


def refuse_more_than_stored(name: str, parameters: int, stored: Stored) -> None:
    """Refuse a configuration that asks for more parameters than its weight files can hold.

    Args:
        name: Of the model, for the message.
        parameters: That the configuration makes.
        stored: What ``check_checkpoint`` returned.
    """
    if parameters > _PARTS_OF_A_BYTE * stored.size:
        raise ModelFolderError(
            f"{name}: {CONFIG} describes {parameters:,} parameters, and the weight files have {stored.size:,} bytes: they do "
            "not belong together. Copy the whole model again."
        )


def read_json(path: Path) -> Any:
    """Read a JSON file of a model, or say in a sentence what is wrong with it."""
    try:
        if path.stat().st_size > LONGEST_JSON:
            raise ValueError(f"it has more than {LONGEST_JSON:,} bytes")
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFolderError(f"{path} is damaged ({error}): copy the model again.") from None


def count_tensors(path: Path) -> int:
    """Return how many tensors a safetensors file holds, having checked its header against its length."""
    try:
        header = _safetensors_header(path)
        tensors = [entry for name, entry in header.items() if name != "__metadata__"]
        for entry in tensors:
            start, end = entry["data_offsets"]
            if not 0 <= start <= end <= path.stat().st_size or any(size < 0 for size in entry["shape"]):
                raise ValueError("a tensor lies outside the file")
            if math.prod(entry["shape"]) > _PARTS_OF_A_BYTE * (end - start):
                raise ValueError("a tensor is larger than its place in the file")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelFolderError(f"{path} is no whole safetensors file ({error}): copy the model again.") from None
    return len(tensors)


def _safetensors_header(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= path.stat().st_size - 8:
            raise ValueError(f"its header says {length:,} bytes, the file has {path.stat().st_size:,}")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    return header


def _check_layers(path: Path, stored: Stored) -> None:
    config = read_json(path)
    most = stored.tensors if stored.tensors is not None else stored.size // 64
    if isinstance(config, dict) and "model_type" not in config:  # a module that averages layers has one tensor for all
        most = max(most, _LAYERS_OF_A_MODULE)
    for name, number in _integers(config):
        if _LAYERS.search(name) and number > most:
            raise ModelFolderError(
                f"{path} has {name} = {number:,}, and the weight files hold {most:,} tensors: they do not belong together. "
                "Copy the whole model again."
            )


def _integers(value: Any, name: str = "") -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _integers(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from _integers(inner)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield name, value
