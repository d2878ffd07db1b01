"""The masked language model's task: which tokens are hidden, and what the model sees instead."""

from __future__ import annotations

import torch
from torch import Tensor

from pretraining.prepare import CLS, MASK, PAD, SPECIAL

IGNORED = -100  # the label that cross entropy passes over


def mask_tokens(ids: Tensor, rate: float, vocabulary: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Hide a share of the tokens of rows ``ids`` (b, t): of ten, eight by [MASK], one by a random token, one not at all.

    Returns:
        The rows as the model sees them (b, t); the positions to predict (k,) in the flattened rows, k the same for every batch
        of a shape, which is what a compiled step needs; their true tokens (k,).
    """
    flat = ids.flatten()
    score = torch.rand(flat.shape, generator=generator, device=ids.device)
    positions = score.masked_fill(flat < len(SPECIAL), -1.0).topk(round(rate * flat.numel())).indices
    labels = flat[positions]
    draw = torch.rand(labels.shape, generator=generator, device=ids.device)
    other = torch.randint(len(SPECIAL), vocabulary, labels.shape, generator=generator, device=ids.device)
    special = labels < len(SPECIAL)  # only where a row has too little else
    seen = torch.where((draw >= 0.9) | special, labels, torch.where(draw < 0.8, MASK, other))
    return flat.scatter(0, positions, seen).view_as(ids), positions, labels.masked_fill(special, IGNORED)


def keep_texts_apart(ids: Tensor) -> tuple[Tensor, Tensor]:
    """For packed rows (b, t): the attention mask (b, 1, t, t), true within a text; each token's place (b, t) in its text."""
    starts = ids == CLS
    text = starts.cumsum(1).masked_fill(ids == PAD, 0)
    places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    first = places.masked_fill(~starts, 0).cummax(1).values
    return (text[:, None, :, None] == text[:, None, None, :]), places - first
