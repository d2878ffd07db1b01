"""Where ``bertflow.integrations.ray`` reads: text and parquet files, by path or by address, in steps that fit in memory."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from bertflow.errors import InputError, require

EMBEDDING = "embedding"  # the column that is written
TEXT_COLUMNS = ("sentence", "text")  # tried in this order, as everywhere
ROWS_AT_ONCE = 4096


def read_lines(batch: Any) -> Iterator[Any]:
    """Yield tables of the lines of one file. As everywhere, only a line feed ends a line, and blank lines are lines."""
    arrow = require("pyarrow", "ray")
    (source,) = batch.column("source").to_pylist()
    filesystem, path = filesystem_of(source)
    number = 0
    with io.TextIOWrapper(filesystem.open_input_stream(path), encoding="utf-8-sig", newline="\n") as lines:
        while True:
            try:
                texts = [line.removesuffix("\n").removesuffix("\r") for line in islice(lines, ROWS_AT_ONCE)]
            except UnicodeDecodeError as error:
                raise InputError(f"{source}, after line {number}, is not UTF-8: save it as UTF-8 ({error}).") from None
            if not texts:
                return
            numbers = range(number + 1, number + 1 + len(texts))
            yield arrow.table({"source": [source] * len(texts), "line": numbers, "text": texts})
            number += len(texts)


def read_parquet(batch: Any) -> Iterator[Any]:
    """Yield tables of the rows of one file: Ray's own reader wants a CPU to list the files, and has none to get."""
    arrow = require("pyarrow", "ray")
    (source,) = batch.column("source").to_pylist()
    with _parquet_file(source) as file:
        for rows in file.iter_batches(batch_size=ROWS_AT_ONCE):
            yield arrow.Table.from_batches([rows])


READERS: dict[str, Callable[[Any], Iterator[Any]]] = {".txt": read_lines, ".parquet": read_parquet}


@contextmanager
def _parquet_file(source: str) -> Iterator[Any]:
    parquet, arrow = require("pyarrow.parquet", "ray"), require("pyarrow", "ray")
    filesystem, path = filesystem_of(source)
    try:
        with filesystem.open_input_file(path) as handle:
            yield parquet.ParquetFile(handle)
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{source} is not a readable parquet file: {error}.") from None


def columns_of(source: str) -> list[str]:
    """Return the names of a parquet file's columns."""
    with _parquet_file(source) as file:
        return list(file.schema_arrow.names)


def text_column(columns: Sequence[str], asked: str | None) -> str:
    """Return which column holds the text, or say which there are."""
    if EMBEDDING in columns:
        raise InputError(f"The input has a column {EMBEDDING!r} already: rename it, or leave it out.")
    found = next((name for name in ([asked] if asked else TEXT_COLUMNS) if name in columns), None)
    if found is None:
        wanted = repr(asked) if asked else " or ".join(TEXT_COLUMNS)
        raise InputError(f"The input has no column {wanted}; it has: {', '.join(columns)}. Name one of them.")
    return found


def filesystem_of(place: str | Path) -> tuple[Any, str]:
    """Return pyarrow's file system for a path or an address, and the path in it."""
    fs = require("pyarrow.fs", "ray")
    try:
        return fs.FileSystem.from_uri(str(place)) if "://" in str(place) else (fs.LocalFileSystem(), _absolute(place))
    except (OSError, ValueError) as error:
        raise InputError(f"{place} cannot be reached: {error}") from None


def _absolute(path: str | Path) -> str:
    return str(Path(path).expanduser().absolute())


def listing(place: str | Path) -> list[str]:
    """Return the files in a folder, or the file itself; addresses keep their scheme. Nothing there: an empty list."""
    fs = require("pyarrow.fs", "ray")
    filesystem, path = filesystem_of(place)
    found = filesystem.get_file_info(path)
    if found.type == fs.FileType.Directory:
        inside = filesystem.get_file_info(fs.FileSelector(path))
    else:
        inside = [found] if found.type == fs.FileType.File else []
    scheme = str(place).partition("://")[0] + "://" if "://" in str(place) else ""
    return sorted(scheme + info.path for info in inside if info.type == fs.FileType.File)


def input_files(places: str | Path | Sequence[str | Path]) -> tuple[str, list[str]]:
    """Return which kind of files the input is, and all of them by their full path."""
    many = [places] if isinstance(places, (str, Path)) else list(places)
    files = [file for place in many for file in listing(place) if Path(file).suffix in READERS]
    kinds = sorted({Path(file).suffix for file in files})
    if len(kinds) != 1:
        what = "both .txt and .parquet files" if kinds else "no .txt and no .parquet file"
        raise InputError(f"{', '.join(map(str, many))} holds {what}; Ray reads files of one of these kinds at a time.")
    return kinds[0], files


def refuse_full(output: str | Path) -> None:
    """Raise if there is something already where the output goes."""
    if listing(output):
        raise InputError(
            f"{output} exists and is not empty; nothing was written. Give another folder or empty this one."
        )
