"""Keep a model's hidden states when it is sent to other processes, as the pools of sentence-transformers do.

The poolings over two layers read hidden states. transformers (seen in 5.22) records them by hooks that it puts on at the
first forward, and both are in a pool's way: the hooks are local functions, so that a model that wears them cannot be
pickled, and what they record is noted when a model is built, so that one that was pickled records nothing. Then a stock
``WeightedLayerPooling`` passes on the last layer alone, without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_RECORDER = "transformers.utils.output_capturing"
_RECORDS = "_output_capturing_hooks_installed"


class HiddenStatesKeeper(nn.Module):
    """Sits beside a transformer and sees to its hidden states whenever both are moved or arrive in another process.

    It has no weights and is not saved.

    Args:
        transformer: The model of the transformers library.
    """

    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        self._transformer = (transformer,)  # in a tuple, or it would become a part of this module

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> HiddenStatesKeeper:
        """Take the hooks off, since a pool moves a model to the CPU before it pickles it; the next forward puts them on."""
        take_hooks_off(*self._transformer)
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Let transformers note what such a model records, by building one without memory."""
        super().__setstate__(state)
        (transformer,) = self._transformer
        with torch.device("meta"):
            type(transformer)(transformer.config)


def keep_hidden_states(model: Any) -> None:
    """Give a ``SentenceTransformer`` its keeper, if it reads hidden states."""
    from transformers import PreTrainedModel

    transformer = model.transformers_model
    if isinstance(transformer, PreTrainedModel) and reads_hidden_states(model):
        take_hooks_off(transformer)
        model[0].hidden_states_keeper = HiddenStatesKeeper(transformer)


def reads_hidden_states(model: Any) -> bool:
    """Whether a ``SentenceTransformer`` uses more than the last layer."""
    return bool(getattr(model.config, "output_hidden_states", False))


def take_hooks_off(transformer: nn.Module) -> None:
    """Remove the hooks that record hidden states, and the marks that say they are on."""
    modules = list(transformer.modules())
    hooks = [
        (module._forward_hooks, key)
        for module in modules
        for key, hook in module._forward_hooks.items()
        if getattr(hook, "__module__", None) == _RECORDER
    ]
    for registered, key in hooks:
        del registered[key]
    for module in modules if hooks else ():
        module.__dict__.pop(_RECORDS, None)
