"""Passes through a transformer and the templates they put texts into.

Where a text stands in its template follows from the attention mask alone, so a batch of prompted texts is a batch like any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from bertflow.encoders.base import Reading, Template
from bertflow.encoders.pooling import States, layers_of, pool


class OneReading(NamedTuple):
    """What a reading, or one template of it, takes from a pass.

    Args:
        column: Which reading it belongs to.
        pooling: Its pooling.
        words_only: Pool only tokens of words.
        layers: The hidden states.
        template: What the texts are put into.
    """

    column: int
    pooling: str
    words_only: bool
    layers: tuple[int, ...]
    template: Template | None

    def pool(self, states: States, mask: Tensor, words: Callable[[Tensor], Tensor]) -> Tensor:
        """Return vectors (n, d).

        Args:
            states: Hidden states (n, tokens, d) by their number.
            mask: Attention mask (n, tokens), padding on the right.
            words: Keeps of a mask the tokens of words.
        """
        inside = mask if self.template is None else read_tokens(self.template, mask)
        return pool(states, words(inside) if self.words_only else inside, self.pooling, self.layers)


def passes_of(readings: Iterable[Reading]) -> list[list[OneReading]]:
    """Return what each pass has to give: one pass for all readings of the same tokens."""
    passes: dict[object, list[OneReading]] = {}
    for column, (pooling, words_only, layers, templates) in enumerate(Reading(*reading) for reading in readings):
        for template in templates or (None,):
            one = OneReading(column, pooling, words_only, layers or layers_of(pooling), template)
            key = template and (template.pieces, template.lead, template.cuts)
            passes.setdefault(key, []).append(one)
    return list(passes.values())


def read_tokens(template: Template, mask: Tensor) -> Tensor:
    """Return which tokens (n, tokens) are read: one, or those of the last copy of the text; all where that is empty.

    Args:
        template: What the texts were put into.
        mask: Attention mask (n, tokens), padding on the right.
    """
    lengths = _lengths(template, mask)
    if template.place is None:
        inside = _copy(template, template.copies, lengths, mask)
        return torch.where(inside.any(1, keepdim=True), inside, mask > 0)
    piece, number = template.place
    return _places(mask) == _start(template, piece, lengths) + number


class Blank(NamedTuple):
    """A batch's templates with the text hidden: k rows, one for each length of text.

    Args:
        ids: Token ids (k, tokens).
        hidden: Attention mask (k, tokens) without the text.
        mask: Attention mask (k, tokens) with it.
        row: The row of each text (n,).
        counts: 1 where the text is not empty, else 0 (n, 1): nothing would be left of an empty one.
    """

    ids: Tensor
    hidden: Tensor
    mask: Tensor
    row: Tensor
    counts: Tensor


def blanked(template: Template, ids: Tensor, mask: Tensor) -> Blank:
    """Hide the texts in a batch (n, tokens); hidden tokens keep their places, so that those of the template keep theirs."""
    lengths = _lengths(template, mask)
    different, row = lengths[:, 0].unique(return_inverse=True)
    numbers = torch.arange(len(ids), device=ids.device)
    first = torch.full_like(different, len(ids)).scatter_reduce(0, row, numbers, "amin")
    hidden = torch.stack([_copy(template, copy + 1, lengths, mask) for copy in range(template.copies)]).any(0)
    return Blank(ids[first], mask.masked_fill(hidden, 0)[first], mask[first], row, (lengths > 0).float())


def _copy(template: Template, copy: int, lengths: Tensor, mask: Tensor) -> Tensor:
    """Return which tokens (n, tokens) are of a copy of the text; the first is 1."""
    end = _start(template, copy, lengths)
    return (_places(mask) >= end - lengths) & (_places(mask) < end)


def _start(template: Template, piece: int, lengths: Tensor) -> Tensor:
    """Return where a piece of the template begins (n, 1)."""
    return sum(map(len, template.pieces[:piece])) + piece * lengths


def _lengths(template: Template, mask: Tensor) -> Tensor:
    """Return how many tokens each text has (n, 1)."""
    return (mask.sum(1, keepdim=True) - template.length) // template.copies


def _places(mask: Tensor) -> Tensor:
    return torch.arange(mask.shape[1], device=mask.device)[None]
