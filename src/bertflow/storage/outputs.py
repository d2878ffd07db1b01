"""Where a result may be written: never over its own input, and over another file only if that is ours or the user says so."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from bertflow.errors import InputError, ModelFolderError

STANDARD_INPUT = "-"


def check_output_file(output: str | Path, inputs: Iterable[object] = (), *, overwrite: bool = False) -> None:
    """Refuse, before any work, a file that cannot be written or would cost the user another one.

    Args:
        output: The file to write.
        inputs: What the result is made from: paths, names or None; only those that exist on this disk count.
        overwrite: Whether the user allows to replace a file that bertflow did not write.
    """
    path = Path(output)
    refuse_same_file(path, inputs)
    if path.is_dir():
        raise InputError(f"{path} is a folder, and a file is to be written there: give the name of a file.")
    _check_room(path)
    if path.exists() and not overwrite and not is_ours(path):
        raise InputError(
            f"{path} exists, and nothing in it says that bertflow wrote it; nothing was changed. Give another name, or "
            "--overwrite to replace it."
        )


def check_output_folder(output: str | Path, inputs: Iterable[object] = ()) -> None:
    """Refuse, before any work, a folder that cannot be written, or that is or holds an input.

    Args:
        output: The folder to write; what may be replaced in it is for the one to say who knows its format.
        inputs: As for ``check_output_file``.
    """
    path = Path(output)
    refuse_same_file(path, inputs)
    if path.exists() and not path.is_dir():
        raise ModelFolderError(
            f"{path} exists and is a file, and a folder is to be written there; nothing was written. Give another name."
        )
    _check_room(path)


def refuse_same_file(output: str | Path, inputs: Iterable[object]) -> None:
    """Refuse an output that is one of the inputs or a folder that holds one, whatever links or spellings lead there.

    Args:
        output: A file or folder, there or not.
        inputs: Paths, names or None; only those that exist on this disk count.
    """
    for given in inputs:
        if not isinstance(given, str | Path) or str(given) in ("", STANDARD_INPUT) or not _exists(Path(given)):
            continue
        where = Path(given).resolve()
        if any(_same(Path(output), place) for place in (where, *where.parents)):
            what = "is" if _same(Path(output), where) else "holds"
            raise InputError(
                f"The output {output} {what} the input {given}, which would be lost; nothing was written. Give another output."
            )


def is_ours(path: Path) -> bool:
    """Whether a file says of itself that bertflow wrote it: a page, or vectors beside their texts; an .npy file cannot."""
    try:
        if path.stat().st_size == 0:
            return True
        if path.suffix == ".parquet":
            return _are_our_columns(_columns_of_parquet(path))
        if path.suffix == ".npz":
            with ZipFile(path) as archive:
                return _are_our_columns([name.removesuffix(".npy") for name in archive.namelist()])
        with path.open("rb") as file:
            head = file.read(1 << 16)
            if path.suffix == ".safetensors":
                return b'"bertflow-vectors"' in head
            if path.suffix == ".jsonl":
                first = json.loads(head.splitlines()[0] if b"\n" in head else head + file.readline(1 << 26))
                return isinstance(first, dict) and _are_our_columns(list(first))
        return path.suffix in (".html", ".htm") and b'<meta name="generator" content="bertflow' in head
    except (OSError, ValueError, ImportError, IndexError, RecursionError, BadZipFile):
        return False


def _are_our_columns(names: list[str]) -> bool:
    vectors = {"vectors", "embedding"} & set(names)
    return len(vectors) == 1 and set(names) - vectors <= {"text", "id", "ids"}


def _columns_of_parquet(path: Path) -> list[str]:
    import pyarrow.parquet

    return list(pyarrow.parquet.read_schema(path).names)


def _same(a: Path, b: Path) -> bool:
    """Whether two paths are one place: also by another spelling, a link, or in other case where the disk ignores it."""
    try:
        return a.samefile(b)
    except OSError:  # one is not there, or lies in a folder that may not be read
        return a.resolve() == b


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a text that is no path
        return False


def _check_room(path: Path) -> None:
    """Refuse a place where nothing can be made."""
    room = path.resolve().parent
    while not room.exists() and room != room.parent:
        room = room.parent
    if not room.is_dir():
        raise InputError(f"{path} cannot be written: {room} is a file, not a folder. Give another output.")
    if not os.access(room, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be written: the folder {room} is read-only. Give another output.")
