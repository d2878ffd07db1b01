"""The quickest way from data to latents in torch: the folded form of a flow, made once until the flow changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from types import SimpleNamespace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from bertflow.arrays import version_of
from bertflow.flows.folded import COUPLINGS, FoldedFlow, fold_arrays, put
from bertflow.flows.glow import Glow


def _add_product(x: Tensor, columns: slice, a: Tensor, b: Tensor) -> Tensor:
    x[:, columns].addmm_(a, b)  # in one go, without another tensor
    return x


#: What the operations of ``bertflow.flows.folded`` ask of torch.
TORCH = SimpleNamespace(
    linear=torch.addmm,
    relu=torch.relu_,
    add_product=_add_product,
    put=put,
    take=torch.index_select,
    exp2=torch.exp2,
    tanh=torch.tanh,
)


def fold(flow: Glow) -> Callable[[Tensor], Tensor]:
    """Return the quickest map from data (n, d) to latents (n, d) of a flow as it is now, without gradients.

    The flow is folded once until it changes: that takes longer than to map a sentence. A coupling that has no folded form
    is no error: the flow's own layers are then the map.

    Example:
        >>> from bertflow.flows import GlowConfig
        >>> flow, x = Glow(GlowConfig(dim=5)), torch.ones(2, 5)
        >>> bool(torch.allclose(fold(flow)(x), flow(x)[0]))
        True
    """
    if flow.config.coupling not in COUPLINGS:
        return torch.no_grad()(lambda x: flow(x)[0])
    version = [version_of(tensor) for tensor in chain(flow.parameters(), flow.buffers())]
    if flow not in _folded or _folded[flow][0] != version:
        _folded[flow] = version, torch.no_grad()(partial(_fold(flow), xp=TORCH))
    return _folded[flow][1]


_folded: WeakKeyDictionary[Glow, tuple[list[tuple[int, int]], Callable[[Tensor], Tensor]]] = WeakKeyDictionary()


def _fold(flow: Glow) -> FoldedFlow:
    device = next(flow.parameters()).device
    arrays = {name: value.cpu().numpy() for name, value in flow.state_dict().items()}
    return fold_arrays(arrays, flow.config.coupling).map(lambda array: torch.from_numpy(array).to(device))
