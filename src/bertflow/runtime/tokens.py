"""A saved table of token vectors without torch and scipy: text to vectors by numpy and tokenizers alone.

Where an affine map follows, as in the recipe ``static``, it is folded into the rows: the weighted mean is linear, so mapping
each token once gives what mapping each text's mean would. Tokens are mapped when they are first seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from bertflow.arrays import Matrix
from bertflow.errors import ModelFolderError
from bertflow.texts import check_sentences

TABLE, TOKENIZER = "table.safetensors", "tokenizer.json"
TEXTS_AT_ONCE = 64  # of like length: their vectors stay in the processor's cache while tokens are added to them
FEW = 8  # texts that are faster one by one
CLASSES = ("TokenTable", "Sif", "ZipfianWhitening", "Usif")


class LightTable:
    """What a ``TokenTable``, or a view of its kind, saved.

    Args:
        folder: Where.
        kind: The view's class.

    Attributes:
        raw: Vectors of the tokens (tokens, d), float16.
        weights: How much each token counts (tokens,).
        nothing: The vector of a text without any token (d,).
    """

    def __init__(self, folder: Path, kind: str = "TokenTable") -> None:
        from tokenizers import Tokenizer

        self.kind = kind
        try:
            arrays = safetensors.numpy.load((folder / TABLE).read_bytes())
            self.raw, self.weights, self.nothing = (arrays[name] for name in ("vectors", "weights", "nothing"))
            self.tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
            if len(self.raw) != len(self.weights) or self.raw.shape[1:] != self.nothing.shape:
                raise ValueError("its arrays do not fit together")
        except Exception as error:  # tokenizers raises plain Exception
            raise ModelFolderError(
                f"{folder} holds no table of token vectors ({error}): copy it again, or fit the model again."
            ) from None
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.dim = int(self.raw.shape[1])
        self.fold(None, None)

    def fold(self, kernel: Matrix | None, bias: Matrix | None) -> None:
        """Let ``encode`` give ``vectors @ kernel + bias``."""
        if kernel is not None and self.kind == "Usif":  # its vectors are divided by norms: nothing linear
            raise ValueError("Nothing can be folded into uSIF.")
        self._kernel = None if kernel is None else kernel.astype(np.float32)
        self._bias: Any = np.float32(0) if bias is None else bias.astype(np.float32)
        width = self.dim if self._kernel is None else self._kernel.shape[1]
        self._rows = np.zeros(
            (len(self.raw) + 1, width), np.float32
        )  # the last one pads; others come when they are seen
        self._seen = np.zeros(len(self.raw), dtype=bool)
        nothing = np.zeros_like(self.nothing) if self.kind == "Usif" else self.nothing
        self._nothing = nothing if self._kernel is None else nothing @ self._kernel + self._bias

    def encode(self, texts: Sequence[str]) -> Matrix:
        """Map n texts to float32 vectors (n, k); of texts without any word, all tokens count alike."""
        encodings = self.tokenizer.encode_batch_fast(check_sentences(texts), add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        if len(ids) <= FEW and self.kind != "Usif" and all(map(self._has_words, ids)):
            return np.stack([self._encode_one(np.array(tokens)) for tokens in ids])
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        flat = np.fromiter(chain.from_iterable(ids), np.int64, int(lengths.sum()))
        self._see(flat)
        starts = np.cumsum(lengths) - lengths
        found = np.empty((len(ids), self._rows.shape[1]), np.float32)
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), TEXTS_AT_ONCE):
            rows = order[start : start + TEXTS_AT_ONCE]
            found[rows] = self._sums(flat, starts[rows], lengths[rows])
        found /= self._divisors(flat, lengths)[:, None]
        if self.kind == "Usif":
            found = self._normalized(found, flat, lengths)
        for row in np.flatnonzero(self._without_words(flat, lengths)):
            tokens = self.raw[ids[row]].astype(np.float32).mean(0)
            found[row] = tokens if self._kernel is None else tokens @ self._kernel
        found += self._bias
        found[lengths == 0] = self._nothing
        return found

    def _has_words(self, tokens: list[int]) -> bool:
        return bool(tokens) and bool(self.weights[tokens].any())

    def _encode_one(self, tokens: Any) -> Matrix:
        """Return the vector (k,) of a text's tokens."""
        if not self._seen[tokens].all():
            self._see(tokens)
        total = self.weights[tokens].sum() if self.kind == "TokenTable" else np.float32(len(tokens))
        return self._rows[tokens].sum(0) / total + self._bias

    def _see(self, tokens: Any) -> None:
        """Weigh and map the rows of tokens that no text had so far."""
        new = np.zeros(len(self._seen), dtype=bool)
        new[tokens] = True
        new &= ~self._seen
        if new.any():
            rows = self.raw[new].astype(np.float32)
            rows = rows if self._kernel is None else rows @ self._kernel
            self._rows[:-1][new] = rows * self.weights[new, None]
            self._seen |= new

    def _sums(self, flat: Any, starts: Any, lengths: Any) -> Matrix:
        """Return the sums (n, k) of the rows of texts of like length."""
        sums = np.zeros((len(starts), self._rows.shape[1]), np.float32)
        padding = len(self.raw)
        for place in range(int(lengths.max())):
            inside = place < lengths
            if inside.all():
                tokens = flat[starts + place]
            else:
                tokens = np.full(len(starts), padding)
                tokens[inside] = flat[starts[inside] + place]
            sums += self._rows[tokens]
        return sums

    def _totals(self, flat: Any, lengths: Any) -> Any:
        text = np.repeat(np.arange(len(lengths)), lengths)
        return np.bincount(text, self.weights[flat], len(lengths))

    def _divisors(self, flat: Any, lengths: Any) -> Matrix:
        """What each text's sum is divided by (n,)."""
        total: Any = self._totals(flat, lengths) if self.kind == "TokenTable" else lengths
        return np.where(total > 0, total, 1).astype(np.float32)

    def _without_words(self, flat: Any, lengths: Any) -> Any:
        if self.kind != "TokenTable":
            return np.zeros(len(lengths), dtype=bool)
        return (self._totals(flat, lengths) <= 0) & (lengths > 0)

    def _normalized(self, vectors: Matrix, flat: Any, lengths: Any) -> Matrix:
        """Divide each dimension by the norm of the text's tokens in it, as uSIF does."""
        norms = np.empty_like(vectors)
        for row, (start, length) in enumerate(zip(np.cumsum(lengths) - lengths, lengths, strict=True)):
            tokens = self.raw[flat[start : start + length]].astype(np.float32)
            norms[row] = np.sqrt(np.square(tokens).sum(0))
        return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the vectors, the weights and the tokenizer: that of the view."""
        digest = hashlib.sha256(self.tokenizer.to_str().encode())
        for array in (self.raw.astype(np.float32), self.weights, self.nothing):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:32]
