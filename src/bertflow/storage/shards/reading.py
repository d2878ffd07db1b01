"""Shards as one long (n, d) array that never is in memory as a whole."""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.errors import InputError
from bertflow.storage.checksums import verify
from bertflow.storage.shards.manifest import VIEWS, Record, ShardsError, listed, npy_header, read_manifest

BLOCK_ROWS = 8192
RUN_ROWS = 1024  # rows that stay neighbours on disk in a shuffled pass: reading them one by one would take hours


class Shards:
    """A finished folder of shards, memory-mapped one shard at a time; rows come out as float32.

    Only one shard is mapped at any time: what is mapped and was touched counts as memory in use.

    Args:
        folder: What ``bertflow embed`` or ``write_shards`` wrote; every shard must be there.

    Attributes:
        manifest: What the shards have in common: encoder, calibrator, dtype, text.

    Example:
        >>> shards = Shards("vectors")  # doctest: +SKIP
        >>> len(shards), shards.dim  # doctest: +SKIP
        (5000000, 256)
        >>> shards.rows(1000, 1010).shape  # doctest: +SKIP
        (10, 256)
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.manifest, records = read_manifest(self.folder)
        missing = self.manifest.missing(records)
        if missing:
            raise ShardsError(
                f"{folder} is not finished: of {self.manifest.count} shards {len(missing)} are missing ({listed(missing)}). "
                "Run the same command again, every rank of it; what is there is kept."
            )
        self.records: list[Record] = [records[i] for i in range(self.manifest.count)]
        self._columns = slice(None)
        for i in range(self.manifest.count):
            self._open(i)  # truncated or lost ones are found at once, altered ones when they are first read

    @property
    def dim(self) -> int:
        """Dimensions."""
        return len(range(self.manifest.dim)[self._columns])

    @property
    def views(self) -> Path:
        """The folder of what the views learnt."""
        return self.folder / VIEWS

    def columns(self, start: int, stop: int) -> Shards:
        """Return the same rows with the dimensions from ``start`` up to ``stop`` only, such as those of one view."""
        part = copy(self)
        part._columns = slice(start, stop)
        return part

    def __len__(self) -> int:
        return self.manifest.rows

    def __repr__(self) -> str:
        head = self.manifest
        return (
            f"Shards({str(self.folder)!r}, rows={head.rows}, dim={head.dim}, dtype={head.dtype!r}, shards={head.count})"
        )

    def rows(self, start: int, stop: int) -> Matrix:
        """Return the rows from ``start`` up to ``stop`` as float32, a copy."""
        if not 0 <= start <= stop <= len(self):
            raise InputError(f"Rows {start} to {stop} were asked for; there are rows 0 to {len(self)}.")
        size, parts = self.manifest.shard_rows, []
        for i in range(start // size, -(-stop // size)):
            first = i * size
            parts.append(self._array(i)[max(start - first, 0) : stop - first].astype(np.float32))
        return np.concatenate(parts) if parts else np.empty((0, self.dim), np.float32)

    def blocks(self, size: int = BLOCK_ROWS, *, start: int = 0, stop: int | None = None) -> Iterator[Matrix]:
        """Yield the rows from ``start`` up to ``stop`` (all of them) in order, ``size`` at a time."""
        end = len(self) if stop is None else stop
        for first in range(start, end, size):
            yield self.rows(first, min(first + size, end))

    def shuffled(self, size: int, seed: int = 0) -> Iterator[Matrix]:
        """Yield every row once in blocks of ``size``, each mixed from all over the shards; the same for the same seed.

        Runs of 1 024 neighbours are drawn at random, and the rows of a block are shuffled, so that the disk reads along.
        """
        rng = np.random.default_rng(seed)
        runs = rng.permutation(-(-len(self) // RUN_ROWS)) * RUN_ROWS
        rows = (self.rows(start, min(start + RUN_ROWS, len(self))) for start in runs)
        left, rest = np.empty((0, self.dim), np.float32), len(self)
        while rest:
            block = np.empty((min(size, rest), self.dim), np.float32)
            filled = 0
            while filled < len(block):
                left = left if len(left) else next(rows)
                taken, left = left[: len(block) - filled], left[len(block) - filled :]
                block[filled : filled + len(taken)] = taken
                filled += len(taken)
            rest -= len(block)
            rng.shuffle(block)
            yield block

    def sample(self, n: int, seed: int = 0) -> Matrix:
        """Return ``n`` different rows drawn evenly from all, in their order; all of them if there are no more."""
        if n >= len(self):
            return self.rows(0, len(self))
        chosen = np.sort(random.Random(seed).sample(range(len(self)), n))  # numpy would list all the others too
        result, done = np.empty((n, self.dim), np.float32), 0
        for i, first in enumerate(range(0, len(self), self.manifest.shard_rows)):
            end = int(np.searchsorted(chosen, first + self.manifest.shard_rows))
            result[done:end] = self._array(i)[chosen[done:end] - first]
            done = end
        return result

    def verify(self) -> None:
        """Read every shard and compare its checksum; raise for those that were altered."""
        bad = []
        for i in range(self.manifest.count):
            try:
                self._array(i)
            except ShardsError:
                bad.append(i)
        if bad:
            raise ShardsError(
                f"{self.folder}: shard(s) {listed(bad)} differ from their checksum: run the command that wrote them again, "
                "and they are written again."
            )

    def _path(self, i: int) -> Path:
        return self.folder / self.manifest.file_of(i)

    def _array(self, i: int) -> Any:
        """Return a shard's vectors (m, d), memory-mapped; its checksum is compared when it is first read."""
        again = "run the command that wrote it again, and this shard alone is written again"
        verify(self._path(i), self.records[i].get("sha256"), again, ShardsError)
        return self._open(i)[:, self._columns]

    def _open(self, i: int) -> Any:
        shape = self.manifest.rows_of(i), self.manifest.dim
        head = npy_header(shape, self.manifest.dtype)
        try:
            with self._path(i).open("rb") as file:
                if file.read(len(head)) != head:
                    raise ValueError(f"it does not begin as {self.manifest.dtype} of shape {shape} does")
            return np.memmap(self._path(i), np.dtype(self.manifest.dtype).newbyteorder("<"), "r", len(head), shape)
        except (OSError, ValueError) as error:
            raise ShardsError(
                f"{self._path(i)} is lost or damaged ({error}): run the command that wrote it again, and it is written again."
            ) from None
