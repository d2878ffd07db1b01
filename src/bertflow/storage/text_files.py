"""Sentences and tables from text files, standard input and parquet, with errors that name the file and the line.

Rules, the same everywhere: UTF-8 with or without a byte order mark; Unix or Windows line ends; a blank line is left out
and counted in the log, and so is a cell of a ``.csv`` or ``.tsv`` that says that its value is missing (``nan``); anything
else that does not fit is an error. In ``.tsv`` files quotes are ordinary characters, as is the custom of this field; in
``.csv`` files they quote.
"""

from __future__ import annotations

import csv
import json
import logging
import reprlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar

from bertflow.errors import InputError, require

logger = logging.getLogger(__name__)

Row: TypeAlias = tuple[int, dict[str, Any]]
Item = TypeVar("Item")
_DEFAULT_COLUMNS = ("sentence", "text")
LONGEST_LINE = 2**26  # bytes: more is no line of text, but a file that has no lines
_MISSING = frozenset({"nan", "NaN", "NAN", "NULL", "<NA>", "#N/A"})  # what programs write into a .csv where nothing is
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read_sentences(path: str | Path, column: str | None = None, *, keep_blank: bool = False) -> list[str]:
    """Read all sentences of a file, in order; blank ones are left out and counted in the log.

    Args:
        path: A ``.jsonl``, ``.csv``, ``.tsv`` or ``.parquet`` table; any other file, and ``"-"`` for standard input, is
            plain text with one sentence a line.
        column: The column of a table that holds the sentences; without it ``sentence``, then ``text`` is tried.
        keep_blank: Keep blank ones, where row i must stay row i.
    """
    texts = list(iter_sentences(path, column))
    sentences = texts if keep_blank else [text for text in texts if text.strip()]
    if len(sentences) < len(texts):
        logger.info("%s: %d blank sentence(s) left out.", path, len(texts) - len(sentences))
    if not sentences:
        raise InputError(f"{path} holds no sentence; at least one was expected.")
    return sentences


def iter_sentences(path: str | Path, column: str | None = None) -> Iterator[str]:
    """Yield the sentences of a file one by one, blank ones too, in flat memory (a parquet file: one row group at a time).

    Args:
        path: As for ``read_sentences``.
        column: Likewise.
    """
    if str(path) != "-" and Path(path).suffix.lower() in _READERS:
        return _column(path, column)
    if column is not None:
        raise InputError(f"Column {column!r} was asked for, but {path} is plain text and has no columns.")
    return (line for _, line in read_lines(path))


def read_table(path: str | Path) -> Iterator[Row]:
    """Yield (line number, row) of a ``.tsv``, ``.csv``, ``.jsonl`` or ``.parquet`` file with named columns.

    Line numbers count from 1 and include the header; for parquet they are row numbers.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _READERS:
        raise InputError(f"{path} ends in {suffix or 'nothing'!r}; a table ends in {', '.join(_READERS)}.")
    return _READERS[suffix](path)


def read_tsv(path: str | Path, names: Sequence[str] | None = None) -> Iterator[Row]:
    """Yield the rows of a tab-separated file; with ``names`` the file has no header and these are its columns."""
    return _rows(path, ((number, line.split("\t") if line else []) for number, line in read_lines(path)), names)


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, line without its end), blank lines too.

    Only a line feed ends a line: the other separators of Unicode do occur inside sentences.
    """
    with _open(path) as handle:
        for number, raw in enumerate(_pieces(path, handle), 1):
            if len(raw) > LONGEST_LINE:
                raise InputError(
                    f"{place(path, number)} has more than {LONGEST_LINE:,} bytes: a text file has one sentence a line."
                )
            try:
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                what = "UTF-16" if number == 1 and raw.startswith(_UTF16) else f"byte {raw[error.start]:#04x}"
                raise InputError(f"{place(path, number)} is not UTF-8 ({what}): save the file as UTF-8.") from None
            if "\0" in line:
                raise InputError(
                    f"{place(path, number)} has a NUL byte, which no text has: it is UTF-16, or no text at all. Save it as "
                    "UTF-8."
                )
            yield number, line.removesuffix("\n").removesuffix("\r")


def _pieces(path: str | Path, handle: IO[bytes]) -> Iterator[bytes]:
    """Yield lines, of which one that is too long comes in pieces."""
    try:
        yield from iter(partial(handle.readline, LONGEST_LINE + 1), b"")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None


def place(path: str | Path, number: int) -> str:
    """Return where in a file something is, as every error message names it."""
    return f"{path}, {'row' if Path(path).suffix.lower() == '.parquet' else 'line'} {number},"


def listed(names: Iterable[str]) -> str:
    """Return names for an error message, which stays short even where a long sentence was taken for a name."""
    return ", ".join(name if len(name) <= 40 else f"{name[:37]}..." for name in names)


@contextmanager
def _open(path: str | Path) -> Iterator[IO[bytes]]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        handle = Path(path).open("rb")  # noqa: SIM115 (only the opening may fail with this message)
    except (OSError, ValueError) as error:  # a name may be no path at all
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', error)}.") from None
    with handle:
        yield handle


def _column(path: str | Path, column: str | None) -> Iterator[str]:
    """Yield the texts of one column."""
    parquet = Path(path).suffix.lower() == ".parquet"
    table = _read_parquet(path, [column] if column else _DEFAULT_COLUMNS) if parquet else read_table(path)
    separated, missing = Path(path).suffix.lower() in (".csv", ".tsv"), 0
    for number, row in table:
        if column is None:
            column = next((name for name in _DEFAULT_COLUMNS if name in row), None)
        if column is None or column not in row:
            wanted = " or ".join(_DEFAULT_COLUMNS) if column is None else repr(column)
            raise InputError(f"{place(path, number)} has no column {wanted}; it has: {listed(row)}. Name one of them.")
        if not isinstance(row[column], str):
            raise InputError(
                f"{place(path, number)} has {reprlib.repr(row[column])} in column {column!r}; text was expected."
            )
        lacks = separated and row[column] in _MISSING
        missing += lacks
        yield "" if lacks else row[column]
    if missing:
        logger.warning(
            "%s: %d cell(s) of column %r say only that the value is missing, such as 'nan': they count as blank.",
            path,
            missing,
            column,
        )


def _rows(
    path: str | Path, records: Iterable[tuple[int, list[str]]], names: Sequence[str] | None = None
) -> Iterator[Row]:
    """Turn lists of cells into dictionaries under one header."""
    columns = names
    for number, cells in _filled(path, records):
        if columns is None:
            columns = [cell.strip() for cell in cells]
            _refuse_duplicates(place(path, number), columns)
        elif len(cells) != len(columns):
            raise InputError(
                f"{place(path, number)} has {len(cells)} column(s); {len(columns)} were expected: {listed(columns)}."
            )
        else:
            yield number, dict(zip(columns, cells, strict=True))


def _read_csv(path: str | Path) -> Iterator[Row]:
    return _rows(path, _csv_records(path))


def _csv_records(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(LONGEST_LINE)  # the default refuses a cell of more than 128 KiB; the setting is global
    reader = csv.reader((line + "\n" for _, line in read_lines(path)), strict=True)
    while True:
        start = reader.line_num + 1  # a quoted cell may span lines: name the one where its row began
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{place(path, start)} is not valid CSV: {error}.") from None
        yield start, cells


def _read_jsonl(path: str | Path) -> Iterator[Row]:
    for number, line in _filled(path, read_lines(path)):
        where = place(path, number)

        def unique(items: list[tuple[str, Any]], where: str = where) -> dict[str, Any]:
            _refuse_duplicates(where, [name for name, _ in items])
            return dict(items)

        try:
            row = json.loads(line, object_pairs_hook=unique)
            if "\\ud" in line.lower():
                json.dumps(row, ensure_ascii=False).encode()
        except InputError:
            raise
        except UnicodeEncodeError:
            raise InputError(
                f"{where} has half a character (a lone surrogate, \\ud800 to \\udfff): write whole characters."
            ) from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where} is not JSON: {error}. Each line must be one JSON object.") from None
        if not isinstance(row, dict):
            raise InputError(f"{where} is a JSON {type(row).__name__}; each line must be one JSON object.")
        yield number, row


def _read_parquet(path: str | Path, wanted: Sequence[str] = ()) -> Iterator[Row]:
    """Yield rows; where there are ``wanted`` columns only these, since others may be large."""
    parquet = require("pyarrow.parquet", extra="parquet")
    arrow = require("pyarrow", extra="parquet")
    with _open(path) as handle:
        try:
            file = parquet.ParquetFile(handle)
            _refuse_duplicates(str(path), file.schema_arrow.names)
            # small batches: a table of embeddings has wide rows
            columns = [name for name in wanted if name in file.schema_arrow.names] or None
            batches = file.iter_batches(batch_size=1024, columns=columns)
            yield from _filled(path, enumerate((row for batch in batches for row in batch.to_pylist()), 1))
        except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not a readable parquet file: {error}.") from None


def _filled(path: str | Path, numbered: Iterable[tuple[int, Item]]) -> Iterator[tuple[int, Item]]:
    """Leave out blank lines, log how many, and refuse a file that has nothing else."""
    blank = filled = 0
    for number, item in numbered:
        if item:
            filled += 1
            yield number, item
        else:
            blank += 1
    if not filled:
        raise InputError(f"{path} is empty.")
    if blank:
        logger.info("%s: %d blank line(s) left out.", path, blank)


def _refuse_duplicates(where: str, names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{where} names column {reprlib.repr(twice)} twice; each name must be unique.")


_READERS: dict[str, Callable[[str | Path], Iterator[Row]]] = {
    ".tsv": read_tsv,
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
