"""Padded batches of texts of like length."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Batch(NamedTuple):
    """Texts of like length as a model reads them.

    Attributes:
        rows: Where each text stands among all, n numbers.
        ids: Token ids (n, tokens), padded on the right.
        mask: 1 for tokens, 0 for padding, (n, tokens).
        cut: How many of the texts were longer than the model reads.
    """

    rows: list[int]
    ids: Tensor
    mask: Tensor
    cut: int

    def pinned(self) -> Batch:
        """Return it in memory that a GPU copies from while it computes."""
        return self._replace(ids=self.ids.pin_memory(), mask=self.mask.pin_memory())


def pad(rows: Sequence[Sequence[int]], padding_id: int) -> tuple[Tensor, Tensor]:
    """Return token ids and mask, both (n, longest), padded on the right."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    inside = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(inside.shape, padding_id, dtype=np.int64)
    ids[inside] = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum()))
    return torch.from_numpy(ids), torch.from_numpy(inside.astype(np.int64))
