"""A cache on disk, so that a frozen encoder meets each distinct sentence once, however many methods are tried on it.

Each encoder has a folder of shards, two files each: ``NAME.npy`` with float32 vectors (n, d) and ``NAME.keys.npy`` with
n + 1 rows of 32 bytes: the SHA-256 of the file of vectors, and the SHA-256 keys of the sentences. The keys are written last:
a shard without them does not exist. Names are unique and files never change, so that processes can share a folder without
locks. Each file of vectors that is used is read through once a process to verify it; what is damaged is encoded again.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from bertflow.arrays import Matrix, as_matrix
from bertflow.errors import InputError, ModelFolderError
from bertflow.storage.atomic import atomic_file
from bertflow.storage.checksums import checksum, verify
from bertflow.storage.folders import cache_folder

logger = logging.getLogger(__name__)


class CachedEncoder:
    """An encoder that remembers.

    Args:
        encode: Maps a list of n sentences to vectors (n, d).
        fingerprint: Says all that the vectors depend on: model, revision, pooling, maximum length. Two encoders with
            one fingerprint share their vectors.
        folder: Where encoders' folders lie; by default ``embeddings`` in ``$BERTFLOW_CACHE`` or ``~/.cache/bertflow``.
        shard_size: New sentences are encoded and written in pieces of this many, so that a broken run loses one piece.
    """

    def __init__(
        self,
        encode: Callable[[list[str]], Matrix],
        fingerprint: str,
        folder: str | Path | None = None,
        shard_size: int = 16384,
    ) -> None:
        if shard_size < 1:
            raise InputError(f"shard_size is {shard_size}; at least 1 was expected.")
        self._encode = encode
        self._salt = hashlib.sha256(fingerprint.encode()).digest()
        base = Path(folder) if folder is not None else cache_folder() / "embeddings"
        self.folder = base / self._salt.hex()[:32]
        self._shard_size = shard_size
        self._vectors: list[Matrix] = []
        self._row: dict[bytes, tuple[int, int]] = {}  # key -> (shard, row)
        self._sums: dict[int, tuple[str, str]] = {}  # shard on disk -> (name, SHA-256 of its vectors)
        self._seen: set[str] = set()

    def encode(self, sentences: Sequence[str]) -> Matrix:
        """Return vectors (n, d), float32, in the order of ``sentences``; only unknown sentences are encoded."""
        if isinstance(sentences, str) or not len(sentences):
            raise InputError(f"encode takes a list of one or more sentences; {sentences!r} came.")
        keys = [self._key(sentence) for sentence in sentences]
        self._scan()  # other processes may have written meanwhile
        self._forget_damaged({self._row[key][0] for key in keys if key in self._row})
        new = {key: text for key, text in zip(keys, sentences, strict=True) if key not in self._row}
        new_keys, texts = list(new), list(new.values())
        for start in range(0, len(new), self._shard_size):
            piece = slice(start, start + self._shard_size)
            self._add(new_keys[piece], self._encode_checked(texts[piece]))
        return self._gather(keys)

    def _key(self, sentence: str) -> bytes:
        if not isinstance(sentence, str):
            raise InputError(f"Sentences must be text; {sentence!r} came.")
        return hashlib.sha256(self._salt + sentence.encode("utf-8", "surrogatepass")).digest()

    def _encode_checked(self, sentences: list[str]) -> Matrix:
        vectors = as_matrix(self._encode(sentences), "embeddings")
        if len(vectors) != len(sentences):
            raise InputError(f"{len(sentences)} sentences gave {len(vectors)} embeddings; one each was expected.")
        return vectors.astype(np.float32, copy=False)

    def _gather(self, keys: list[bytes]) -> Matrix:
        shards, rows = np.array([self._row[key] for key in keys]).T
        used = np.unique(shards)
        widths = {self._vectors[shard].shape[1] for shard in used}
        if len(widths) > 1:
            raise InputError(
                f"The cache {self.folder} holds vectors of {' and '.join(map(str, sorted(widths)))} dimensions for one"
                " encoder: its fingerprint does not tell two encoders apart. Make it do so, or delete the folder."
            )
        out = np.empty((len(keys), widths.pop()), dtype=np.float32)
        for shard in used:
            here = shards == shard
            out[here] = self._vectors[shard][rows[here]]
        return out

    def _scan(self) -> None:
        """Take in every shard that was not seen yet."""
        for path in sorted(self.folder.glob("*.keys.npy")):
            name = path.name.removesuffix(".keys.npy")
            if name not in self._seen:
                self._seen.add(name)
                self._load(name)

    def _load(self, name: str) -> bool:
        """Take in a shard if it is whole; its sentences are encoded again otherwise."""
        try:
            keys = np.lib.format.open_memmap(self.folder / f"{name}.keys.npy", mode="r")
            vectors = np.lib.format.open_memmap(self.folder / f"{name}.npy", mode="r")
            sound = vectors.ndim == 2 and vectors.dtype == np.float32 and keys.dtype == np.uint8
            if not sound or keys.shape != (len(vectors) + 1, 32):
                raise ValueError(
                    f"keys {keys.dtype} {keys.shape} do not go with vectors {vectors.dtype} {vectors.shape}"
                )
        except Exception as error:  # of a damaged header numpy raises whatever Python's own parser says
            logger.warning("Shard %s in %s is damaged or foreign and is ignored: %s", name, self.folder, error)
            return False
        self._sums[len(self._vectors)] = name, keys[0].tobytes().hex()
        self._register([row.tobytes() for row in keys[1:]], vectors)
        return True

    def _forget_damaged(self, shards: set[int]) -> None:
        """Verify the shards that are about to be used, and leave out those that were altered."""
        for shard in shards & self._sums.keys():
            name, known = self._sums.pop(shard)
            try:
                verify(self.folder / f"{name}.npy", known, "its sentences are encoded again")
            except ModelFolderError as error:
                logger.warning("%s", error)
                self._row = {key: place for key, place in self._row.items() if place[0] != shard}

    def _register(self, keys: list[bytes], vectors: Matrix) -> None:
        shard = len(self._vectors)
        self._vectors.append(vectors)
        self._row.update((key, (shard, row)) for row, key in enumerate(keys))

    def _add(self, keys: list[bytes], vectors: Matrix) -> None:
        """Write a new shard, or keep it in memory where the disk does not take it."""
        name = f"{len(self._seen):05d}-{uuid.uuid4().hex[:12]}"
        self._seen.add(name)
        try:
            with atomic_file(self.folder / f"{name}.npy", follow_link=False) as path:
                np.save(path, vectors, allow_pickle=False)
                head = bytes.fromhex(checksum(path))
            with atomic_file(self.folder / f"{name}.keys.npy", follow_link=False) as path:
                np.save(path, np.frombuffer(head + b"".join(keys), dtype=np.uint8).reshape(-1, 32), allow_pickle=False)
            kept = self._load(name)
        except OSError as error:
            logger.warning("Embeddings are not kept in %s: %s", self.folder, error)
            kept = False
        if not kept:
            self._register(keys, vectors)
