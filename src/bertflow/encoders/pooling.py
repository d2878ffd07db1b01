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
``last-token``         last token of −1                            decoders: PromptEOL, E5-Mistral
``weighted-mean``      −1, later tokens weigh more                 SGPT
``last2avg``           −2 and −1, mean over tokens                 what the paper's name says
``first-last-avg``     1 and −1, mean over tokens                  **what the paper's figures are**
``embedding-last-avg`` 0 and −1, mean over tokens                  the PyTorch port, BERT-whitening
=====================  ==========================================  ==================================

Token means are over all tokens of the attention mask, [CLS] and [SEP] included, as in all of these codes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from bertflow.errors import InputError, did_you_mean

States: TypeAlias = Sequence[Tensor] | Mapping[int, Tensor]  # hidden states (n, tokens, d) by their number


@dataclass(frozen=True)
class Pooling:
    """How hidden states become one vector a text.

    Args:
        name: What users call it.
        layers: The hidden states it reads (0 = embeddings, -1 = last); several are averaged first.
        reduce: Maps states (n, tokens, d) and the mask of the tokens that count (n, tokens) to vectors (n, d).
    """

    name: str
    layers: tuple[int, ...]
    reduce: Callable[[Tensor, Tensor], Tensor]


def first_token(states: Tensor, mask: Tensor) -> Tensor:
    """The first token's state (n, d)."""
    return states[:, 0]


def last_token(states: Tensor, mask: Tensor) -> Tensor:
    """The last token's state (n, d) of those in the mask: where a decoder has read the whole text."""
    places = mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return states[torch.arange(len(states), device=states.device), places.argmax(1)]


def mean_of_tokens(states: Tensor, mask: Tensor) -> Tensor:
    """The mean (n, d) over the tokens of the mask."""
    inside = mask.unsqueeze(-1).bool()
    return states.masked_fill(~inside, 0).sum(1) / inside.sum(1)


def maximum_of_tokens(states: Tensor, mask: Tensor) -> Tensor:
    """The maximum (n, d) over the tokens of the mask."""
    return states.masked_fill(~mask.unsqueeze(-1).bool(), float("-inf")).amax(1)


def weighted_mean_of_tokens(states: Tensor, mask: Tensor) -> Tensor:
    """The mean (n, d) in which token i weighs i: in a decoder, later tokens have read more (SGPT, Muennighoff 2022)."""
    weights = (mask.cumsum(1) * mask).unsqueeze(-1).to(states.dtype)
    return (states.masked_fill(weights == 0, 0) * weights).sum(1) / weights.sum(1)


POOLINGS: dict[str, Pooling] = {}


def register_pooling(pooling: Pooling) -> Pooling:
    """Add a pooling under its name: recipes, the command line and the tests know it from then on."""
    POOLINGS[pooling.name] = pooling
    return pooling


for _name, _layers, _reduce in (
    ("cls", (-1,), first_token),
    ("mean", (-1,), mean_of_tokens),
    ("max", (-1,), maximum_of_tokens),
    ("last-token", (-1,), last_token),
    ("weighted-mean", (-1,), weighted_mean_of_tokens),
    ("last2avg", (-2, -1), mean_of_tokens),
    ("first-last-avg", (1, -1), mean_of_tokens),
    ("embedding-last-avg", (0, -1), mean_of_tokens),
):
    register_pooling(Pooling(_name, _layers, _reduce))


def check_pooling(pooling: str) -> str:
    """Return ``pooling`` if it exists."""
    if pooling not in POOLINGS:
        raise InputError(
            f"Unknown pooling {pooling!r}{did_you_mean(pooling, POOLINGS)}; choose from {', '.join(POOLINGS)}."
        )
    return pooling


def layers_of(pooling: str) -> tuple[int, ...]:
    """Return the hidden states that a pooling reads."""
    return POOLINGS[check_pooling(pooling)].layers


def pool(hidden_states: States, mask: Tensor, pooling: str, layers: Sequence[int] | None = None) -> Tensor:
    """Pool hidden states into one vector a text.

    Args:
        hidden_states: Embedding output and each layer's output, each (n, tokens, d); or those that the pooling reads, by
            their number.
        mask: Attention mask (n, tokens), 1 for real tokens; padding is on the right.
        pooling: One of ``POOLINGS``.
        layers: The hidden states to pool; by default the pooling's own.

    Returns:
        Vectors (n, d), float32.
    """
    chosen = [hidden_states[i].float() for i in layers or layers_of(pooling)]
    states = chosen[0] if len(chosen) == 1 else sum(chosen[1:], chosen[0]) / len(chosen)
    return POOLINGS[pooling].reduce(states, mask)


class LayerReader:
    """Runs a transformer and keeps the hidden states that some poolings read, and no others.

    Asked for hidden states, transformers keeps all of them, and (seen in 5.22) leaves hooks on the model that cannot be
    pickled and that record nothing once the model is in another process. Inside ``with``, this has hooks of its own: hidden
    state i is what layer i is given, and the last is the model's output. Threads may call it at the same time.

    Args:
        model: The transformer.
        poolings: One or more of ``POOLINGS``.
        layers: More hidden states to keep, by their number.
    """

    def __init__(self, model: Any, *poolings: str, layers: Sequence[int] = ()) -> None:
        self.model = model
        self._layers = {*layers, *(i for pooling in poolings for i in layers_of(pooling))}
        self._count = int(model.config.num_hidden_layers)
        # what a pooling calls a hidden state, and the layer that is given it: −2 is what the last layer is given
        numbers = {i: i % (self._count + 1) for i in self._layers}
        self._inner = {i: number for i, number in numbers.items() if number < self._count}
        self._stack = _layer_stack(model)
        self._seen = threading.local()
        self._hooks: list[Any] = []

    def __enter__(self) -> LayerReader:
        for layer in (self._stack or ()) if self._inner else ():
            self._hooks.append(layer.register_forward_pre_hook(self._keep, with_kwargs=True))
        return self

    def __exit__(self, *_: object) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def __call__(self, ids: Tensor, mask: Tensor) -> States:
        """Return the hidden states of a batch of token ids (n, tokens), as ``pool`` takes them."""
        if self._stack is None:
            return self.model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
        self._seen.calls, self._seen.states = 0, {}
        last = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        inner, self._seen.states = self._seen.states, None
        as_usual = self._seen.calls == self._count and all(state.shape == last.shape for state in inner.values())
        if as_usual or not self._inner:
            return dict.fromkeys(self._layers, last) | inner
        self._stack = None  # layers that run not once each, or on something else than (n, tokens, d)
        return self(ids, mask)

    def _keep(self, _: nn.Module, args: tuple[Any, ...], options: dict[str, Any] | None = None) -> None:
        # without options, torch calls the hooks that another thread is just now removing
        states: dict[int, Tensor] | None = getattr(self._seen, "states", None)
        if states is None:  # another reader of the same model runs it, in a thread of its own
            return
        for i, number in self._inner.items():
            if number == self._seen.calls:
                states[i] = args[0] if args else (options or {})["hidden_states"]
        self._seen.calls += 1


def _layer_stack(model: Any) -> nn.ModuleList | None:
    """The list of a transformer's layers; None where hidden states are not simply what these are given.

    So it is without attention (Mamba counts from the first layer's output) and in the text halves of CLIP and its kin (their
    output is normalised once more). ALBERT has fewer layers than it runs.
    """
    config = model.config
    if not getattr(config, "num_attention_heads", None) or config.model_type.endswith("_text_model"):
        return None
    sizes = {config.num_hidden_layers, getattr(config, "num_hidden_groups", config.num_hidden_layers)}
    lists = (module for module in model.modules() if isinstance(module, nn.ModuleList))
    return next((layers for layers in lists if len(layers) in sizes), None)
