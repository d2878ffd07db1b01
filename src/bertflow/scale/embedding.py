"""Shards from text, by an encoder; and from other shards, by a calibrator. Memory stays flat however many rows there are."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from tqdm.auto import tqdm

from bertflow.arrays import Matrix, unit_rows
from bertflow.calibrators import Calibrator
from bertflow.encoders.base import TextEncoder, View, encode_views
from bertflow.encoders.views import Pooled
from bertflow.errors import InputError, TruncationWarning
from bertflow.model import BertFlow
from bertflow.parts import Part, identity_of, join_parts, split_columns
from bertflow.recipes import RAW, make_parts
from bertflow.storage.shards.manifest import Manifest, ShardsError
from bertflow.storage.shards.ranks import Rank
from bertflow.storage.shards.reading import Shards
from bertflow.storage.shards.writing import ShardWriter
from bertflow.storage.text_files import iter_sentences

TEXTS_AT_ONCE = 8192  # enough to sort by length, few enough for a progress bar that moves

Texts: TypeAlias = str | Path | Iterable[str]


def write_shards(
    texts: Texts,
    source: BertFlow | TextEncoder,
    folder: str | Path,
    *,
    recipe: str | None = None,
    raw: bool = False,
    normalize: bool = False,
    dtype: str = "float16",
    shard_rows: int = 50_000,
    column: str | None = None,
    random_state: int = 0,
    rank: Rank | None = None,
    show_progress_bar: bool = False,
) -> Manifest:
    """Encode text of any size into a folder of shards: row i belongs to text i, blank ones too.

    The text is read twice: once to count and check it, so that a bad line or a changed text is found before hours of
    work, and once to encode; once more in between where a recipe's views learn from it. Killed or stopped, the same call
    goes on where it was; the result is the same to the byte.

    Args:
        texts: A file as ``bertflow.storage.text_files.iter_sentences`` reads it, ``"-"`` for standard input (put aside in
            a temporary file first), or texts that can be gone through twice, such as a list.
        source: A fitted model, for its calibrated vectors; or an encoder, for raw vectors to fit on.
        folder: Where.
        recipe: With an encoder: write what this recipe's views give, side by side; default: the encoder's own vectors.
        raw: With a model: what its views give instead of calibrated vectors.
        normalize: Scale vectors to length one.
        dtype: ``"float16"`` or ``"float32"``.
        shard_rows: Vectors a shard: what a kill can cost.
        column: Of a table, the column with the texts.
        random_state: Seeds the recipe's views.
        rank: This process's part of the work; default: all of it.
        show_progress_bar: Show rows, rate and time left.

    Returns:
        The manifest; ``Shards(folder)`` opens the vectors once every rank is done.
    """
    model, encoder = (source, source.encoder) if isinstance(source, BertFlow) else (None, source)
    if model and recipe:
        raise InputError("A fitted model has its recipe; leave recipe out, or give an encoder.")
    parts = model.parts if model else make_parts(recipe or RAW, random_state=random_state)
    calibrated = model is not None and not raw
    with _readable_twice(texts, column) as read:
        counting = {"unit": " texts", "unit_scale": True, "leave": False, "disable": not show_progress_bar}
        known = _identity(texts, tqdm(read(), "counting", **counting))
        if model is None:
            for part in parts:
                part.view.fit(encoder, tqdm(read(), "learning", **counting), show_progress_bar=show_progress_bar)
        views = [part.view for part in parts]
        named = [view.describe() | {"fingerprint": view.fingerprint} for view in views]
        manifest = Manifest(
            encoder=views[0].encoder.describe(),
            calibrator=identity_of(parts) if calibrated else None,
            normalized=normalize,
            source={"name": known["name"], "sha256": known["sha256"]},
            rows=known["rows"],
            dim=sum(part.calibrator.dim if calibrated else part.view.dim for part in parts),
            dtype=dtype,
            shard_rows=shard_rows,
            views=named if model or recipe else [],
            recipe=model.recipe if model else recipe,
        )

        def encode(part_of_texts: list[str]) -> Matrix:
            found = encode_views(views, part_of_texts)
            vectors = join_parts(parts, found) if calibrated else np.hstack(found)
            return unit_rows(vectors) if normalize else vectors

        encode_warning_once = _warning_once(encode)
        writing: dict[str, Any] = {"write_views": partial(_write_views, views), "show_progress_bar": show_progress_bar}
        with ShardWriter(folder, manifest, rank, **writing) as writer:
            stream, position = iter(read()), 0
            for shard in writer.missing:
                _skip(stream, shard * shard_rows - position)
                rows = manifest.rows_of(shard)
                writer.write(shard, (encode_warning_once(part) for part in _parts(stream, rows)))
                position = shard * shard_rows + rows
    return manifest


def transform_shards(
    shards: Shards,
    model: BertFlow | Calibrator,
    folder: str | Path,
    *,
    normalize: bool = False,
    dtype: str | None = None,
    rank: Rank | None = None,
    show_progress_bar: bool = False,
) -> Manifest:
    """Calibrate raw shards, shard by shard: resumable, in flat memory, and without the encoder.

    Args:
        shards: Raw vectors.
        model: Fitted on vectors of the same views; or a calibrator, for shards of one view.
        folder: Where the calibrated shards go.
        normalize: Scale vectors to length one.
        dtype: Default: that of ``shards``.
        rank: This process's part of the work; default: all of it.
        show_progress_bar: Show rows, rate and time left.
    """
    refuse_calibrated(shards)
    parts = model.parts if isinstance(model, BertFlow) else [_alone(model)]
    dims = sum(part.calibrator.n_features_in_ for part in parts)
    if dims != shards.dim:
        raise InputError(
            f"The model was fitted on {dims} dimensions, and the shards have {shards.dim}: they do not belong together."
        )
    if shards.folder.resolve() == Path(folder).resolve():
        raise InputError(f"{folder} holds the raw vectors; give another folder for the calibrated ones.")
    manifest = replace(
        shards.manifest,
        calibrator=identity_of(parts),
        normalized=normalize,
        dim=sum(part.calibrator.dim for part in parts),
        dtype=dtype or shards.manifest.dtype,
        recipe=getattr(model, "recipe", None),
    )

    def finish(vectors: Matrix) -> Matrix:
        joined = join_parts(parts, split_columns(parts, vectors))
        return unit_rows(joined) if normalize else joined

    with ShardWriter(folder, manifest, rank, show_progress_bar=show_progress_bar) as writer:
        for shard in writer.missing:
            start = shard * manifest.shard_rows
            writer.write(shard, map(finish, shards.blocks(start=start, stop=start + manifest.rows_of(shard))))
    return manifest


def _alone(calibrator: Calibrator) -> Part:
    """A calibrator as a part; its view stays without an encoder."""
    view = Pooled()
    view.dim = int(calibrator.n_features_in_)
    return Part(view, calibrator)


def _write_views(views: Sequence[View], folder: Path) -> None:
    for i, view in enumerate(views):
        view.save(folder / str(i))


def refuse_calibrated(shards: Shards) -> None:
    """Raise unless the shards hold an encoder's own vectors."""
    if shards.manifest.calibrator or shards.manifest.normalized:
        what = "calibrated" if shards.manifest.calibrator else "normalized"
        raise InputError(
            f"{shards.folder} holds {what} vectors; raw ones are needed: bertflow embed --raw writes them."
        )


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
