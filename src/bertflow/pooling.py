"""From hidden states to one vector a text: pure functions, under their true names.

The paper's "last2avg" is a trap: its code loops over ``all_encoder_layers[-i] for i in range(2)``, that is layers 0 and −1 of
the transformer, so all its "last2avg" and "flow" figures are really **first-last-avg**. The PyTorch port and BERT-whitening
average hidden state 0, the *embedding* output, with the last layer. Each is offered here as what it is:

=====================  ==========================================  ==================================
name                   hidden states (0 = embeddings, −1 = last)   who
=====================  ==========================================  ==================================
``cls``                first token of −1                           BERT CLS
``mean``               −1, mean over tokens                        BERT-base in the paper; SBERT
``max``                −1, maximum over tokens
``last2avg``           −2 and −1, mean over tokens                 what the paper's name says
``first-last-avg``     1 and −1, mean over tokens                  **what the paper's figures are**
``embedding-last-avg`` 0 and −1, mean over tokens                  the PyTorch port, BERT-whitening
=====================  ==========================================  ==================================

Token means are over all tokens of the attention mask, [CLS] and [SEP] included, as in all of these codes.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bertflow.errors import InputError

LAYERS: dict[str, tuple[int, ...]] = {
    "cls": (-1,),
    "mean": (-1,),
    "max": (-1,),
    "last2avg": (-2, -1),
    "first-last-avg": (1, -1),
    "embedding-last-avg": (0, -1),
}
POOLINGS = tuple(LAYERS)


def check_pooling(pooling: str) -> str:
    """Return ``pooling`` if it exists."""
    if pooling not in LAYERS:
        raise InputError(f"Unknown pooling {pooling!r}; choose from {', '.join(POOLINGS)}.")
    return pooling


def pool(hidden_states: Sequence[Tensor], mask: Tensor, pooling: str) -> Tensor:
    """Pool hidden states into one vector a text.

    Args:
        hidden_states: Embedding output and each layer's output, each (n, tokens, d).
        mask: Attention mask (n, tokens), 1 for real tokens; padding is on the right.
        pooling: One of ``POOLINGS``.

    Returns:
        Vectors (n, d), float32.
    """
    layers = [hidden_states[i].float() for i in LAYERS[check_pooling(pooling)]]
    states = layers[0] if len(layers) == 1 else (layers[0] + layers[1]) / 2
    if pooling == "cls":
        return states[:, 0]
    inside = mask.unsqueeze(-1).bool()
    if pooling == "max":
        return states.masked_fill(~inside, float("-inf")).amax(1)
    return states.masked_fill(~inside, 0).sum(1) / inside.sum(1)
