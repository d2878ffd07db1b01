"""A flow's way to the latents with all that is linear multiplied out beforehand: what remains are the networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.functional import linear

from bertflow.arrays import version_of
from bertflow.flows.glow import Glow
from bertflow.flows.layers import SCALE_FACTOR, AdditiveCoupling


def fold(flow: Glow) -> Callable[[Tensor], Tensor]:
    """Return the quickest map from data (n, d) to latents (n, d) of a flow as it is now.

    The paper's flow is folded, once only until it changes: that takes longer than to map a sentence. Another is called as it
    is, without the log-dets.

    Example:
        >>> from bertflow.flows import GlowConfig
        >>> flow, x = Glow(GlowConfig(dim=5)), torch.ones(2, 5)
        >>> bool(torch.allclose(fold(flow)(x), flow(x)[0]))
        True
    """
    if not flow.config.is_the_papers:
        return lambda x: flow(x)[0]
    version = [version_of(parameter) for parameter in flow.parameters()]
    if flow not in _folded or _folded[flow][0] != version:
        _folded[flow] = version, FoldedFlow(flow)
    return _folded[flow][1]


_folded: WeakKeyDictionary[Glow, tuple[list[tuple[int, int]], FoldedFlow]] = WeakKeyDictionary()


class _Network(NamedTuple):
    """The network of a coupling: which columns it reads, which it adds to, weights and biases of two layers, and the third."""

    reads: slice
    adds: slice
    w1: Tensor
    b1: Tensor
    w2: Tensor
    b2: Tensor
    w3: Tensor


class FoldedFlow:
    """The map to latents of an additive flow: about twice as fast as ``Glow.forward``, without log-determinants.

    Actnorms and the networks' last biases only scale and shift, reversals only rename: all of that is left for the end. In
    between the rows keep the columns and the scale that the first actnorm gave them, and ``scale``, ``shift`` and ``order``
    say what a column stands for; the networks' weights are changed to suit. The first actnorm is applied at once, since a
    mean far from zero, folded into weights, would cost digits.

    Args:
        flow: The flow; later changes of its parameters are not seen.
    """

    @torch.no_grad()
    def __init__(self, flow: Glow) -> None:
        first = flow.levels[0][0].actnorm  # type: ignore[index]
        self.loc, self.scale = first.loc.clone(), torch.exp(SCALE_FACTOR * first.logscale)
        self.networks: list[_Network] = []
        order = torch.arange(flow.config.dim, device=self.loc.device)
        scale, shift, finished = torch.ones_like(self.loc), torch.zeros_like(self.loc), []
        for level, leaving in zip(flow.levels, flow.leaving, strict=True):
            for step in level:  # type: ignore[attr-defined]
                if step.actnorm is not first:
                    scale, shift = (
                        scale * torch.exp(SCALE_FACTOR * step.actnorm.logscale),
                        step.actnorm.normalize(shift),
                    )
                order, scale, shift = (vector.flip(0) for vector in (order, scale, shift))
                self.networks.append(_network(step.coupling, order, scale, shift))
                last = step.coupling.net.linear3
                shift[step.coupling.kept :] += last.bias * torch.exp(SCALE_FACTOR * last.logscale)
            stay = len(order) - leaving
            finished.append((order[stay:], scale[stay:], shift[stay:]))
            order, scale, shift = order[:stay], scale[:stay], shift[:stay]
        self.order, self.last_scale, self.last_shift = (torch.cat(parts) for parts in zip(*finished, strict=True))

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Map data (n, d) to latents (n, d)."""
        x = (x + self.loc).mul_(self.scale)
        for reads, adds, w1, b1, w2, b2, w3 in self.networks:
            hidden = linear(linear(x[:, reads], w1, b1).relu_(), w2, b2).relu_()
            x[:, adds].addmm_(hidden, w3.T)
        x = x.index_select(1, self.order)
        return torch.addcmul(self.last_shift, x, self.last_scale, out=x)


def _network(coupling: AdditiveCoupling, order: Tensor, scale: Tensor, shift: Tensor) -> _Network:
    """Fold what the columns stand for, given in the coupling's order, into its network."""
    net, kept = coupling.net, coupling.kept
    logscales = (net.actnorm1.logscale, net.actnorm2.logscale, net.linear3.logscale)
    s1, s2, s3 = (torch.exp(SCALE_FACTOR * logscale) for logscale in logscales)
    w1 = net.linear1.weight * s1[:, None]
    b1 = net.actnorm1.loc * s1 + w1 @ shift[:kept]
    s3 = s3 / scale[kept:]
    reads, adds = order[:kept].argsort(), order[kept:].argsort()
    return _Network(
        _span(order[:kept]),
        _span(order[kept:]),
        (w1 * scale[:kept])[:, reads],
        b1,
        net.linear2.weight * s2[:, None],
        net.actnorm2.loc * s2,
        (net.linear3.weight * s3[:, None])[adds],
    )


def _span(columns: Tensor) -> slice:
    """The slice of these neighbouring columns."""
    return slice(int(columns.min()), int(columns.max()) + 1)
