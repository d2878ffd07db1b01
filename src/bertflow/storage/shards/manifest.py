"""What a folder of shards says of itself: ``manifest.json``, and beside each finished shard its record until all are there.

The manifest is written before the first shard and says what all shards have in common; processes that write into one
folder must agree on it. A finished shard ``00003.npy`` has a record ``00003.json``; when every shard has one, the records
move into the manifest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from bertflow.errors import BertflowError, InputError
from bertflow.storage.atomic import atomic_file
from bertflow.storage.checksums import SEAL, check_seal, sealed
from bertflow.version import __version__

FORMAT, FORMAT_VERSION = "bertflow-shards", 2
MANIFEST, VIEWS = "manifest.json", "views"
DTYPES = ("float16", "float32")
MOST_SHARDS = 10**7

Record: TypeAlias = dict[str, Any]  # of one shard: {"file", "rows", "sha256"}


class ShardsError(BertflowError, OSError):
    """A folder of shards is missing, unfinished, damaged, in use, or holds something else."""


@dataclass(frozen=True)
class Manifest:
    """What all shards of a folder have in common.

    Args:
        encoder: The encoder's ``describe()``.
        calibrator: Class and sha256 of the calibrators that were applied, or None: raw vectors.
        normalized: Whether the vectors were scaled to length one.
        source: The texts: their ``name``, and the sha256 over all of them in order.
        rows: Number of vectors in all shards: row i belongs to text i.
        dim: Dimensions.
        dtype: ``"float16"`` or ``"float32"``.
        shard_rows: Vectors in each shard but the last.
        views: Of raw vectors, the views that stand side by side: each its ``describe()`` and its ``fingerprint``. What
            they learnt lies in the folder's ``views``. None are named where the vectors are the encoder's own.
        recipe: The recipe whose views or vectors these are, if it has a name.
    """

    encoder: dict[str, Any]
    calibrator: dict[str, str] | None
    normalized: bool
    source: dict[str, Any]
    rows: int
    dim: int
    dtype: str = "float16"
    shard_rows: int = 50_000
    views: list[dict[str, Any]] = field(default_factory=list)
    recipe: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be written."""
        if self.dtype not in DTYPES:
            raise InputError(f"Shards hold {' or '.join(DTYPES)}; {self.dtype!r} was asked for.")
        for name in ("rows", "dim", "shard_rows"):
            number = getattr(self, name)
            if type(number) is not int or not 0 < number < 2**48:
                raise InputError(f"{name} must be a whole number, at least 1; it was {number!r:.40}.")
        if self.count > MOST_SHARDS:
            raise InputError(f"{self.count:,} shards are too many files: raise shard_rows.")

    @property
    def count(self) -> int:
        """Number of shards."""
        return -(-self.rows // self.shard_rows)

    def rows_of(self, shard: int) -> int:
        """Rows of a shard: the last may have fewer."""
        return min(self.shard_rows, self.rows - shard * self.shard_rows)

    def file_of(self, shard: int) -> str:
        """Name of a shard's file."""
        return f"{shard:05d}.npy"

    def missing(self, records: Mapping[int, Record]) -> list[int]:
        """Numbers of the shards without a record."""
        return [i for i in range(self.count) if i not in records]

    def refuse_other(self, wanted: Manifest, folder: Path) -> None:
        """Raise unless ``wanted`` gives the very shards that this manifest of ``folder`` promises."""
        for what, mine, yours in (
            ("the encoder {}", self._encoder(), wanted._encoder()),
            ("the text {}", self._source(), wanted._source()),  # before the views, which learn from it
            ("the views {}", self._views(), wanted._views()),
            ("the calibrator {}", self._calibrator(), wanted._calibrator()),
            ("normalized={}", self.normalized, wanted.normalized),
            ("dtype={}", self.dtype, wanted.dtype),
            ("shard_rows={}", self.shard_rows, wanted.shard_rows),
        ):
            if mine != yours:
                raise InputError(
                    f"{folder} was begun with {what.format(mine)}, and now {what.format(yours)} was given; nothing was "
                    "changed. Run the same command as before to go on, or give another folder."
                )

    def _encoder(self) -> str:
        return f"{self.encoder.get('name')!r} (fingerprint {self.encoder.get('fingerprint')}, {self.dim} dimensions)"

    def _views(self) -> str:
        return (
            ", ".join(f"{view['class']} ({view['fingerprint'][:12]})" for view in self.views) or "of the encoder itself"
        )

    def _calibrator(self) -> str:
        return f"{self.calibrator['class']} ({self.calibrator['sha256'][:12]})" if self.calibrator else "none"

    def _source(self) -> str:
        return f"of {self.rows:,} rows with the checksum {self.source['sha256'][:12]}"


def is_shards(path: str | Path) -> bool:
    """Whether a path is a folder of shards, finished or not."""
    return (Path(path) / MANIFEST).is_file()


def read_manifest(folder: Path) -> tuple[Manifest, dict[int, Record]]:
    """Return a folder's manifest and the records of its finished shards."""
    beside = {int(file.stem): _json(file) for file in folder.glob("*.json") if file.stem.isdigit()}
    # after the records: whoever finishes last moves them into the manifest before it removes them
    content = _json(folder / MANIFEST)
    if content.get("format") != FORMAT:
        raise ShardsError(f"{folder / MANIFEST} is not of bertflow's shards but of another program.")
    version = content.get("format_version")
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise ShardsError(
            f"{folder} has format version {version!r:.40}; this is bertflow {__version__}, which reads up "
            f"to {FORMAT_VERSION}. Run  pip install --upgrade bertflow"
        )
    if version > 1 or SEAL in content:
        check_seal(content, folder / MANIFEST, "embed it again into a new folder", error=ShardsError)
    try:
        known = {"views": [], "recipe": None} | content  # version 1 had none
        manifest = Manifest(**{name: known[name] for name in Manifest.__dataclass_fields__})
        finished = {i: dict(record) for i, record in enumerate(content.get("shards", []))}
    except (KeyError, TypeError, ValueError) as error:
        raise ShardsError(f"{folder / MANIFEST} is damaged ({error}): embed the text again.") from None
    return manifest, finished | {i: record for i, record in beside.items() if record}


def write_manifest(folder: Path, manifest: Manifest, shards: Iterable[Record] | None = None) -> None:
    """Write a folder's manifest, whole or not at all; with the records of all shards it is finished."""
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "bertflow_version": __version__}
    tail = {} if shards is None else {"shards": list(shards)}
    write_json(folder / MANIFEST, sealed(head | asdict(manifest) | tail))


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    with atomic_file(path, follow_link=False) as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def npy_header(shape: tuple[int, int], dtype: str) -> bytes:
    """Return how a shard's .npy file of ``shape`` (m, d) begins."""
    out = BytesIO()
    descr = np.dtype(dtype).newbyteorder("<").str
    np.lib.format.write_array_header_1_0(out, {"descr": descr, "fortran_order": False, "shape": shape})
    return out.getvalue()


def listed(shards: list[int]) -> str:
    """Return numbers for a message, which stays short."""
    return ", ".join(map(str, shards[:10])) + (", …" if len(shards) > 10 else "")


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if path.name != MANIFEST:
            return {}  # just now moved into the manifest
        what = "holds no manifest.json" if path.parent.is_dir() else "does not exist"
        raise ShardsError(f"{path.parent} {what}: it is not a folder of shards. `bertflow embed` makes one.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ShardsError(f"{path} is damaged ({error}): delete it and run the same command again.") from None
    if not isinstance(content, dict):
        raise ShardsError(f"{path} is damaged: delete it and run the same command again.")
    return content
