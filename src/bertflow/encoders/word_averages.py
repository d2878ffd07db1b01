"""Averages of token vectors as the field weighs them: SIF, uSIF and Zipfian whitening, on the table of single tokens.

They are here so that "why not X?" has an answer; ``TokenTable`` is ours. Word frequencies are those of the user's own text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertflow.arrays import Matrix
from bertflow.encoders.base import TokenRows
from bertflow.encoders.token_table import Numbers, TokenTable

SENTENCE_LENGTH = 11  # uSIF's expected number of words in a sentence
_DEAD = 1e-10  # a direction with less than this share of the largest variance is rounding


class Sif(TokenTable):
    """Smooth inverse frequency (Arora et al. 2017): the mean of a / (a + p(w)) · x_w.

    The first singular vector is then removed by ``RemoveTopComponents(1, center=False)``: the recipe ``sif``.

    Args:
        a: The smaller, the less frequent words count.
    """

    def __init__(self, a: float = 1e-3) -> None:
        self.a = a

    def _make_vectors(self, tokens: Matrix, words: Any) -> Matrix:
        return _as_kept(tokens)

    def _weigh(self, counts: Matrix) -> Matrix:
        return self._of_frequency(counts / counts.sum())

    def _of_frequency(self, p: Matrix) -> Matrix:
        return self.a / (self.a + p)

    def _shares(self, text: Numbers, tokens: Numbers, lengths: Numbers) -> Matrix:
        return self.weights[tokens] / lengths[text]

    def as_table(self) -> TokenRows | None:
        """Return the weighted rows, which are averaged as they are."""
        rows = (self.vectors * self.weights[:, None]).astype(np.float32)
        return TokenRows(self.tokenizer, rows, np.ones_like(self.weights), self.nothing)


class Usif(Sif):
    """Unsupervised SIF (Ethayarajh 2018): weights a / (a/2 + p(w)) with a from the text, each dimension normalised.

    Five components are then removed in part by ``RemoveTopComponents(5, center=False, partly=True)``: the recipe ``usif``.
    """

    def __init__(self) -> None:
        pass

    def as_table(self) -> None:
        """Return nothing: what is divided by a norm of its own tokens is no mean of rows."""
        return

    def _of_frequency(self, p: Matrix) -> Matrix:
        known = p[p > 0]
        size = len(known)
        share = float((known > 1 - (1 - 1 / size) ** SENTENCE_LENGTH).mean())
        a = (1 - share) / max(share * size / 2, 1e-12)
        return a / (a / 2 + p)

    def encode(self, texts: Sequence[str], *, show_progress_bar: bool = False) -> Matrix:
        """Map n texts to float32 vectors (n, d)."""
        import scipy.sparse

        vectors = super().encode(texts, show_progress_bar=show_progress_bar)
        tokens, lengths = self._tokens(list(texts))
        rows = np.repeat(np.arange(len(texts)), lengths)
        shape = len(texts), len(self.vectors)
        counts = scipy.sparse.csr_array((np.ones(len(tokens), np.float32), (rows, tokens)), shape)
        norms = np.sqrt(counts @ np.square(self.vectors))
        return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


class ZipfianWhitening(Sif):
    """Zipfian whitening (Yokoi et al. 2024): token vectors whitened with word frequencies as the measure, then averaged."""

    def __init__(self) -> None:
        pass

    def _weigh(self, counts: Matrix) -> Matrix:
        p = (counts / counts.sum()).astype(np.float64)
        mean = p @ self.vectors
        centred = self.vectors - mean
        values, axes = np.linalg.eigh((centred * p[:, None]).T @ centred)
        scale = np.where(values > _DEAD * values.max(), 1 / np.sqrt(np.maximum(values, 1e-300)), 0)
        both = _as_kept(np.vstack([centred, self.nothing - mean]) @ axes * scale)
        self.vectors, self.nothing = both[:-1], both[-1]
        return np.ones(len(p))


def _as_kept(table: Matrix) -> Matrix:
    """Round to half precision, in which tables are saved: a model that was loaded gives the same vectors."""
    return table.astype(np.float16).astype(np.float32)
