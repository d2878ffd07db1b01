"""The folder of a search index: config.json, index.faiss, texts.jsonl + texts.offsets.npy, and the model in model/."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertflow.errors import ModelFolderError
from bertflow.integrations.faiss_transforms import load_faiss, reason
from bertflow.model import BertFlow
from bertflow.storage.atomic import atomic_folder, recover
from bertflow.storage.checksums import SEAL, check_seal, checksum, sealed, verify
from bertflow.version import __version__

FORMAT = "bertflow-index"
FORMAT_VERSION = 2  # 2: config.json has a seal
CONFIG, INDEX, TEXTS, OFFSETS, MODEL = "config.json", "index.faiss", "texts.jsonl", "texts.offsets.npy", "model"
CHECKED = (INDEX, TEXTS, OFFSETS, f"{MODEL}/{CONFIG}")  # the last one vouches for the model's weights


class Entry(NamedTuple):
    """An indexed text, the row where it first stood (from 0), and how often it was there."""

    text: str
    row: int
    copies: int


class EntriesOnDisk(Sequence[Entry]):
    """The entries of a saved index, read from a memory-mapped file one by one."""

    def __init__(self, folder: Path) -> None:
        self._offsets = np.load(folder / OFFSETS, mmap_mode="r", allow_pickle=False)
        with (folder / TEXTS).open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, number: Any) -> Any:
        """Return one entry."""
        start, end = self._offsets[number], self._offsets[number + 1]
        return Entry(*json.loads(self._bytes[int(start) : int(end)]))

    def __iter__(self) -> Iterator[Entry]:
        return (self[number] for number in range(len(self)))


def save(
    folder: str | Path, index: Any, entries: Sequence[Entry], model: BertFlow, report: dict[str, Any], bundle: bool
) -> Path:
    """Write an index folder whole or not at all."""
    target = Path(folder)
    check_target(target)
    with atomic_folder(target) as temporary:
        load_faiss().write_index(index, str(temporary / INDEX))
        offsets = [0]
        with (temporary / TEXTS).open("wb") as file:
            for entry in entries:
                offsets.append(offsets[-1] + file.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n"))
        np.save(temporary / OFFSETS, np.array(offsets, dtype=np.int64))
        model.save_pretrained(temporary / MODEL, bundle_encoder=bundle)
        config = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "bertflow_version": __version__,
            "report": report,
            "sha256": {name: checksum(temporary / name) for name in CHECKED},
        }
        (temporary / CONFIG).write_text(json.dumps(sealed(config), indent=2) + "\n", encoding="utf-8")
    return target


def load(folder: str | Path) -> tuple[Any, EntriesOnDisk, dict[str, Any]]:
    """Read (index, entries, report) of an index folder, refusing with a sentence what is damaged, foreign or newer."""
    recover(folder)
    folder = Path(folder)
    config = _config(folder)
    try:
        sums, report = dict(config["sha256"]), dict(config["report"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFolderError(f"{folder / CONFIG} is damaged ({error}): build the index anew.") from None
    for name in CHECKED:
        verify(folder / name, sums.get(name), "copy the whole folder again, or build the index anew")
    try:
        return load_faiss().read_index(str(folder / INDEX)), EntriesOnDisk(folder), report
    except RuntimeError as error:
        raise ModelFolderError(
            f"This version of FAISS cannot read {folder / INDEX}: {reason(error)}. Build the index anew."
        ) from None


def check_target(folder: Path) -> None:
    """Refuse to write over anything that is not an index of ours."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        ours = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("format") == FORMAT
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours:
        raise ModelFolderError(
            f"{folder} exists and is not a search index; nothing was written. Give another folder or empty this one."
        )


def _config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        what = "holds no config.json" if folder.is_dir() else "does not exist"
        raise ModelFolderError(f"{folder} {what}: it is not a search index. `bertflow index build` makes one.")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFolderError(
            f"{path} is damaged ({error}): copy the folder again, or build the index anew."
        ) from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelFolderError(
            f"{folder} is not a search index but something else with a config.json, such as a model: "
            "`bertflow index build TEXTS OUTPUT --model MODEL` makes an index."
        )
    version = config.get("format_version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise ModelFolderError(
            f"{path} has format version {version}, written by bertflow {config.get('bertflow_version')}; this is bertflow "
            f"{__version__}, which reads up to {FORMAT_VERSION}. Run  pip install --upgrade bertflow"
        )
    if version > 1 or SEAL in config:
        check_seal(config, path, "copy the folder again, or build the index again")
    return config
