"""Shards from text, by an encoder; and from other shards, by a calibrator. Memory stays flat however many rows there are."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tqdm.auto import tqdm

from bertflow.arrays import Matrix, unit_rows
from bertflow.encoders.transformer import TextEncoder
from bertflow.errors import InputError, TruncationWarning
from bertflow.storage.shards.manifest import Manifest, ShardsError, identity_of
from bertflow.storage.shards.ranks import Rank
from bertflow.storage.shards.reading import Shards
from bertflow.storage.shards.writing import ShardWriter
from bertflow.storage.text_files import iter_sentences

if TYPE_CHECKING:
    from bertflow.calibrators import Calibrator

TEXTS_AT_ONCE = 8192  # enough to sort by length, few enough for a progress bar that moves

Texts: TypeAlias = str | Path | Iterable[str]


def write_shards(
    texts: Texts,
    encoder: TextEncoder,
    folder: str | Path,
    *,
    calibrator: Calibrator | None = None,
    normalize: bool = False,
    dtype: str = "float16",
    shard_rows: int = 50_000,
    column: str | None = None,
    rank: Rank | None = None,
    show_progress_bar: bool = False,
) -> Manifest:
    """Encode text of any size into a folder of shards: row i belongs to text i, blank ones too.

    The text is read twice: once to count and check it, so that a bad line or a changed text is found before hours of
    work, and once to encode. Killed or stopped, the same call goes on where it was; the result is the same to the byte.

    Args:
        texts: A file as ``bertflow.storage.text_files.iter_sentences`` reads it, ``"-"`` for standard input (put aside in
            a temporary file first), or texts that can be gone through twice, such as a list.
        encoder: The encoder.
        folder: Where.
        calibrator: Applied to the vectors; None writes raw ones, to fit a calibrator on.
        normalize: Scale vectors to length one.
        dtype: ``"float16"`` or ``"float32"``.
        shard_rows: Vectors a shard: what a kill can cost.
        column: Of a table, the column with the texts.
        rank: This process's part of the work; default: all of it.
        show_progress_bar: Show rows, rate and time left.

    Returns:
        The manifest; ``Shards(folder)`` opens the vectors once every rank is done.
    """
    with _readable_twice(texts, column) as read:
        counting = {"unit": " texts", "unit_scale": True, "leave": False, "disable": not show_progress_bar}
        source = _identity(texts, tqdm(read(), "counting", **counting))
        manifest = Manifest(
            encoder=encoder.describe(),
            calibrator=identity_of(calibrator),
            normalized=normalize,
            source={"name": source["name"], "sha256": source["sha256"]},
            rows=source["rows"],
            dim=encoder.dim if calibrator is None else int(calibrator._n_features_out),
            dtype=dtype,
            shard_rows=shard_rows,
        )
        encode, finish = _warning_once(encoder.encode), _finisher(calibrator, normalize)
        with ShardWriter(folder, manifest, rank, show_progress_bar=show_progress_bar) as writer:
            stream, position = iter(read()), 0
            for shard in writer.missing:
                _skip(stream, shard * shard_rows - position)
                rows = manifest.rows_of(shard)
                writer.write(shard, (finish(encode(part)) for part in _parts(stream, rows)))
                position = shard * shard_rows + rows
    return manifest


def transform_shards(
    shards: Shards,
    calibrator: Calibrator,
    folder: str | Path,
    *,
    normalize: bool = False,
    dtype: str | None = None,
    rank: Rank | None = None,
    show_progress_bar: bool = False,
) -> Manifest:
    """Apply a calibrator to raw shards, shard by shard: resumable, in flat memory, and without the encoder.

    Args:
        shards: Raw vectors.
        calibrator: Fitted on vectors of the same encoder.
        folder: Where the calibrated shards go.
        normalize: Scale vectors to length one.
        dtype: Default: that of ``shards``.
        rank: This process's part of the work; default: all of it.
        show_progress_bar: Show rows, rate and time left.
    """
    refuse_calibrated(shards)
    if calibrator.n_features_in_ != shards.dim:
        raise InputError(
            f"The calibrator was fitted on {calibrator.n_features_in_} dimensions, and the shards have {shards.dim}: they do "
            "not belong together."
        )
    if shards.folder.resolve() == Path(folder).resolve():
        raise InputError(f"{folder} holds the raw vectors; give another folder for the calibrated ones.")
    manifest = replace(
        shards.manifest,
        calibrator=identity_of(calibrator),
        normalized=normalize,
        dim=int(calibrator._n_features_out),
        dtype=dtype or shards.manifest.dtype,
    )
    finish = _finisher(calibrator, normalize)
    with ShardWriter(folder, manifest, rank, show_progress_bar=show_progress_bar) as writer:
        for shard in writer.missing:
            start = shard * manifest.shard_rows
            writer.write(shard, map(finish, shards.blocks(start=start, stop=start + manifest.rows_of(shard))))
    return manifest


def refuse_calibrated(shards: Shards) -> None:
    """Raise unless the shards hold an encoder's own vectors."""
    if shards.manifest.calibrator or shards.manifest.normalized:
        what = "calibrated" if shards.manifest.calibrator else "normalized"
        raise InputError(
            f"{shards.folder} holds {what} vectors; raw ones are needed: bertflow embed --raw writes them."
        )


def _finisher(calibrator: Calibrator | None, normalize: bool) -> Callable[[Matrix], Matrix]:
    def finish(vectors: Matrix) -> Matrix:
        vectors = vectors if calibrator is None else calibrator.transform(vectors)
        return unit_rows(vectors) if normalize else vectors

    return finish


@contextmanager
def _readable_twice(texts: Texts, column: str | None) -> Iterator[Callable[[], Iterable[str]]]:
    """Yield a function that begins to read the texts."""
    if not isinstance(texts, str | Path):
        if iter(texts) is texts:
            raise InputError("These texts can be gone through only once; give a list, or the name of a file.")
        yield lambda: texts
    elif str(texts) == "-":
        with tempfile.TemporaryDirectory() as room:
            aside = Path(room) / "standard input"
            with aside.open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
            yield lambda: iter_sentences(aside, column)
    else:
        yield lambda: iter_sentences(texts, column)


def _identity(texts: Texts, sentences: Iterable[str]) -> dict[str, Any]:
    """Count the texts, and hash them one by one: what counts is what they say, not the file that they are in."""
    digest, rows = hashlib.sha256(), 0
    for rows, text in enumerate(sentences, 1):
        try:
            raw = text.encode()
        except (UnicodeEncodeError, AttributeError):
            raise InputError(
                f"Text {rows - 1} is {text!r:.60}; every text must be a str of whole characters."
            ) from None
        digest.update(len(raw).to_bytes(8, "little") + raw)
    name = Path(texts).name if isinstance(texts, str | Path) else None
    if not rows:
        raise InputError(f"{name or 'The list'} holds no text; at least one was expected.")
    return {"name": name, "rows": rows, "sha256": digest.hexdigest()}


def _parts(stream: Iterator[str], rows: int) -> Iterator[list[str]]:
    while rows > 0:
        part = list(islice(stream, min(TEXTS_AT_ONCE, rows)))
        if not part:
            raise ShardsError(
                "The text became shorter while it was read: leave it alone and run the same command again."
            )
        rows -= len(part)
        yield part


def _skip(stream: Iterator[str], rows: int) -> None:
    next(islice(stream, rows, rows), None)


def _warning_once(encode: Callable[[list[str]], Matrix]) -> Callable[[list[str]], Matrix]:
    """Let the warning of cut texts through once, not after every part."""
    said = False

    def quieter(texts: list[str]) -> Matrix:
        nonlocal said
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TruncationWarning)
            vectors = encode(texts)
        for warning in caught:
            cut = issubclass(warning.category, TruncationWarning)
            if not (cut and said):
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
            said = said or cut
        return vectors

    return quieter
