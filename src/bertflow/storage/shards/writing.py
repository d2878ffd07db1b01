"""Writing shards: each one whole or not at all, with a record of its checksum, by one process or many."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from bertflow.arrays import Matrix
from bertflow.errors import BertflowError, InputError
from bertflow.storage.atomic import atomic_file, atomic_folder
from bertflow.storage.checksums import checksum
from bertflow.storage.shards.lock import locked
from bertflow.storage.shards.manifest import (
    VIEWS,
    Manifest,
    ShardsError,
    is_shards,
    listed,
    npy_header,
    read_manifest,
    write_json,
    write_manifest,
)
from bertflow.storage.shards.ranks import Rank

logger = logging.getLogger(__name__)


class ShardWriter:
    """Writes the shards of one rank that are not there yet, and puts the manifest together when all ranks are done.

    A folder begun with another encoder, calibrator or text is refused; shards that were cut short or altered are written
    anew.

    Args:
        folder: Where; made if it is not there.
        manifest: What the shards have in common.
        rank: Which shards are this process's: shard i belongs to rank i % world size.
        write_views: Writes what the views learnt into the folder it is given.
        show_progress_bar: Show rows, rate and time left; otherwise they are logged after each shard.

    Example:
        >>> with ShardWriter("vectors", manifest) as writer:  # doctest: +SKIP
        ...     for shard in writer.missing:
        ...         writer.write(shard, blocks_of(shard))
    """

    def __init__(
        self,
        folder: str | Path,
        manifest: Manifest,
        rank: Rank | None = None,
        *,
        write_views: Callable[[Path], None] | None = None,
        show_progress_bar: bool = False,
    ) -> None:
        self.folder, self.manifest, self.rank = Path(folder), manifest, rank or Rank()
        self._write_views = write_views
        self.missing: list[int] = []
        self._show = show_progress_bar
        self._rows = 0  # of this rank that are there
        self._open = ExitStack()

    def __enter__(self) -> ShardWriter:
        with _said_in_a_sentence(self.folder), ExitStack() as stack:
            self._make_room()
            stack.enter_context(locked(self.folder, self.rank))
            self._claim()
            own = [i for i in range(self.manifest.count) if self.rank.owns(i)]
            self._sweep()
            self.missing = self._unfinished(own)
            total = sum(map(self.manifest.rows_of, own))
            self._rows = self._first = total - sum(map(self.manifest.rows_of, self.missing))
            self._begun = time.monotonic()
            look = {"unit": " rows", "unit_scale": True, "desc": self.folder.name, "disable": not self._show}
            self._bar = stack.enter_context(tqdm(total=total, initial=self._rows, **look))
            self._open = stack.pop_all()  # from here on until __exit__
        if self._rows:
            logger.info("%s: %s of %s rows are there already.", self.folder, f"{self._rows:,}", f"{total:,}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._open, _said_in_a_sentence(self.folder):
            if kind is None:
                self._finish()

    def write(self, shard: int, blocks: Iterable[Matrix]) -> None:
        """Write one shard from its blocks of rows (m, d), in order; they must come to just its rows."""
        path = self.folder / self.manifest.file_of(shard)
        digest = hashlib.sha256()
        with _said_in_a_sentence(path):
            with atomic_file(path, follow_link=False) as temporary, temporary.open("wb") as file:
                for piece in self._pieces(shard, blocks):
                    digest.update(piece)
                    file.write(piece)
            record = {"file": path.name, "rows": self.manifest.rows_of(shard), "sha256": digest.hexdigest()}
            write_json(self._record(shard), record)
        if not self._show:
            total, elapsed = self._bar.total, time.monotonic() - self._begun
            meter = tqdm.format_meter(
                self._rows, total, elapsed, unit=" rows", unit_scale=True, initial=self._first, ncols=0
            )
            logger.info("%s: shard %d written; %s", self.folder, shard, meter)

    def _pieces(self, shard: int, blocks: Iterable[Matrix]) -> Iterator[bytes | memoryview]:
        """Yield the bytes of a .npy file."""
        head, rows, done = self.manifest, self.manifest.rows_of(shard), 0
        yield npy_header((rows, head.dim), head.dtype)
        for block in blocks:
            done += len(block)
            if block.ndim != 2 or block.shape[1] != head.dim or done > rows:
                raise InputError(
                    f"Shard {shard} takes {rows} rows of {head.dim} dimensions; a block of shape {block.shape} came."
                )
            yield _exact(block, head.dtype, shard * head.shard_rows + done - len(block)).data.cast("B")
            self._rows += len(block)
            self._bar.update(len(block))
        if done < rows:
            raise InputError(f"Shard {shard} takes {rows} rows, but only {done} came: was the text changed meanwhile?")

    def _make_room(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        strange = [file for file in self.folder.iterdir() if not file.name.startswith(".") and file.suffix != ".lock"]
        if strange and not is_shards(self.folder):
            raise ShardsError(
                f"{self.folder} holds something else than shards; nothing was written. Give another folder."
            )

    def _claim(self) -> None:
        """Go on with what was begun here, or refuse if that was something else."""
        if is_shards(self.folder):
            read_manifest(self.folder)[0].refuse_other(self.manifest, self.folder)
        if self._write_views and not (self.folder / VIEWS).is_dir():
            with atomic_folder(self.folder / VIEWS) as temporary:
                self._write_views(temporary)
        if not is_shards(self.folder):
            write_manifest(self.folder, self.manifest)

    def _sweep(self) -> None:
        """Remove what a killed writer of this rank's shards left half-written; by the lock it has none that lives."""
        for file in self.folder.glob(".*.saving-*"):
            number = file.name.split(".")[1]
            if number.isdigit() and self.rank.owns(int(number)):
                file.unlink(missing_ok=True)

    def _unfinished(self, own: list[int]) -> list[int]:
        records = read_manifest(self.folder)[1]
        missing = []
        for i in own:
            path = self.folder / self.manifest.file_of(i)
            whole = i in records and path.is_file() and checksum(path) == records[i].get("sha256")
            if i in records and not whole:
                logger.warning("%s is lost, cut short or altered: it is written anew.", path)
                self._record(i).unlink(missing_ok=True)
            if not whole:
                missing.append(i)
        return missing

    def _finish(self) -> None:
        """Move the records into the manifest when all are there, whichever rank comes last."""
        records = read_manifest(self.folder)[1]
        missing = self.manifest.missing(records)
        if missing:
            ranks = sorted({i % self.rank.world_size for i in missing})
            logger.info(
                "%s: %s is done; %d of %d shards are still missing (%s), those of rank(s) %s.",
                self.folder,
                self.rank,
                len(missing),
                self.manifest.count,
                listed(missing),
                listed(ranks),
            )
            return
        write_manifest(self.folder, self.manifest, (records[i] for i in range(self.manifest.count)))
        for i in records:
            self._record(i).unlink(missing_ok=True)

    def _record(self, shard: int) -> Path:
        return (self.folder / self.manifest.file_of(shard)).with_suffix(".json")


@contextmanager
def _said_in_a_sentence(path: Path) -> Iterator[None]:
    """Say of a full disk and its like what is safe and what to do."""
    try:
        yield
    except BertflowError:
        raise
    except OSError as error:
        raise ShardsError(
            f"{path} could not be written: {error.strerror or error}. Shards finished before are whole and kept: mend that, "
            "and run the same command again to go on."
        ) from error


def _exact(block: Matrix, dtype: str, row: int) -> Any:
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(block, dtype=np.dtype(dtype).newbyteorder("<"))
    if not np.isfinite(rows).all():
        bad = row + int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        what = "has NaN or infinity" if not np.isfinite(block).all() else f"is too large for {dtype}: use float32"
        raise InputError(f"The vector of row {bad} {what}.")
    return rows
