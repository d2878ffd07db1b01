"""The objective of a batch and its gradients, written into the flat gradient vector.

For the paper's flow (additive couplings, reversed dimensions) the gradients are written by hand: its tensors are so small
that most of a step with autograd is autograd's own bookkeeping. Other flows use autograd.
No step waits for the device or branches on a tensor's value, so that it can be captured as a CUDA graph.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear

from bertflow.flows.glow import Glow
from bertflow.flows.layers import SCALE_FACTOR
from bertflow.flows.optimizer import FlatParameters


class Objective:
    """Bits per dimension of a batch, and their gradients by autograd.

    It is called inside ``with objective.parameters:``, which holds the flow's parameters and takes their gradients.

    Args:
        flow: The flow.
        no_decay: Parameters whose name ends like this are exempt from weight decay.
    """

    def __init__(self, flow: Glow, no_decay: tuple[str, ...] = ()) -> None:
        self.flow, self.parameters = flow, FlatParameters(flow, no_decay, self._mirrored(flow))

    def __call__(self, x: Tensor) -> Tensor:
        """Return the objective () of ``x`` (n, d) and overwrite the gradients."""
        self.parameters.gradients.zero_()
        bits = self.flow.bits_per_dim(x)
        bits.backward()
        return bits.detach()

    @torch.no_grad()
    def bits(self, x: Tensor) -> Tensor:
        """Return the objective alone."""
        return self.flow.bits_per_dim(x)

    @staticmethod
    def _mirrored(flow: Glow) -> dict[str, int]:
        """Which parameters are kept in reversed order, and along which dimension."""
        return {}


def objective(flow: Glow, no_decay: tuple[str, ...] = ()) -> Objective:
    """Return the fastest objective for the flow's layers."""
    return (AdditiveObjective if flow.config.is_the_papers else Objective)(flow, no_decay)


class AdditiveObjective(Objective):
    """The same numbers without autograd, for the paper's flow.

    Every layer with parameters is y = (W·x + b)·s with s = exp(3·logscale); a step's own actnorm has W = 1. As the flat
    vectors hold all logscales, then all b in the same order, s is one exponential for the whole flow, and so are the last
    steps of the chain rule: with ∂log s and ∂(b·s) collected from all layers, ∂logscale = 3·∂log s and ∂b = s·∂(b·s).

    Nothing is reversed here. The dimensions stay in the order of the data. A step that would see them reversed uses
    reversed ("mirrored") parameters instead.
    """

    def __init__(self, flow: Glow, no_decay: tuple[str, ...] = ()) -> None:
        super().__init__(flow, no_decay)
        parameters = self.parameters
        values, gradients = parameters.named(parameters.values), parameters.named(parameters.gradients)
        layers = [name.removesuffix(".logscale") for name in values if name.endswith(".logscale")]
        sizes = [values[f"{layer}.logscale"].numel() for layer in layers]
        count = sum(sizes)
        self.logscale, self.b = parameters.values[:count], parameters.values[count : 2 * count]
        self.d_logscale, self.d_b = parameters.gradients[:count], parameters.gradients[count : 2 * count]
        self.scale, self.shift, self.d_log, self.d_shift = (torch.empty_like(self.b) for _ in range(4))
        of_step = [layer.endswith(".actnorm") for layer in layers]
        #: 1 where ∂log s does not include the part through b·s yet; a step's actnorm includes it, as x + b may nearly cancel
        self.apart = torch.cat([torch.full((n,), float(not a)) for n, a in zip(sizes, of_step, strict=True)]).to(self.b)
        self.nats = flow.config.dim * math.log(2)
        self.d_log_det = SCALE_FACTOR / self.nats * (1 - self.apart)
        vectors = (self.scale, self.shift, self.b, self.d_log, self.d_shift)
        views = {layer: _Layer(*rest) for layer, *rest in zip(layers, *(v.split(sizes) for v in vectors), strict=True)}
        for name in (name for name in values if name.endswith(".weight")):
            layer = views[
                name.removesuffix(".weight").replace(".linear1", ".actnorm1").replace(".linear2", ".actnorm2")
            ]
            layer.weight, layer.d_weight = values[name], gradients[name]
        #: for each level, the columns it works on and its steps
        self.levels: list[tuple[slice, list[_Step]]] = []
        start, stop, t = 0, flow.config.dim, 0
        for i, leaving in enumerate(flow.leaving):
            steps = []
            for j in range(flow.config.depth):
                steps.append(_Step(t, *(views[f"levels.{i}.{j}.{part}"] for part in _Step.PARTS)))
                t += 1
            self.levels.append((slice(start, stop), steps))
            # the last dimensions are finished: after an odd number of reversals these are the first columns
            start, stop = (start + leaving, stop) if t % 2 else (start, stop - leaving)

    @staticmethod
    def _mirrored(flow: Glow) -> dict[str, int]:
        mirrored: dict[str, int] = {}
        depth = flow.config.depth
        for t in range(depth * len(flow.levels)):
            step = f"levels.{t // depth}.{t % depth}"
            if t % 2:  # its actnorm comes after t reversals, its coupling after t + 1
                mirrored |= {f"{step}.actnorm.{name}": 0 for name in ("loc", "logscale")}
            else:
                mirrored |= {f"{step}.coupling.net.linear3.{name}": 0 for name in ("weight", "bias", "logscale")}
                mirrored[f"{step}.coupling.net.linear1.weight"] = 1
        return mirrored

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:  # noqa: D102
        z = self._latents(x)
        bits = self._bits(z)
        gradient = z.div_(len(z) * self.nats)
        for columns, steps in reversed(self.levels):
            for step in reversed(steps):
                step.backward(gradient[:, columns])
        self.d_log.addcmul_(self.d_shift * self.apart, self.shift)
        torch.mul(self.d_log, SCALE_FACTOR, out=self.d_logscale).sub_(self.d_log_det)
        torch.mul(self.d_shift, self.scale, out=self.d_b)
        return bits

    @torch.no_grad()
    def bits(self, x: Tensor) -> Tensor:  # noqa: D102
        return self._bits(self._latents(x))

    def _bits(self, z: Tensor) -> Tensor:
        distance = z.square().sum() / (2 * len(z) * self.nats)
        return distance - self.logscale @ self.d_log_det + math.log2(2 * math.pi) / 2

    def _latents(self, x: Tensor) -> Tensor:
        torch.exp(SCALE_FACTOR * self.logscale, out=self.scale)
        torch.mul(self.b, self.scale, out=self.shift)
        z = x.clone()
        for columns, steps in self.levels:
            y = z[:, columns]
            for step in steps:
                y = step.forward(y)
            z[:, columns] = y
        return z


@dataclass
class _Layer:
    """A layer (W·x + b)·s with m outputs, and its gradients, as views of the flow's flat vectors.

    Args:
        scale: s (m,).
        shift: b·s (m,).
        b: The parameter (m,).
        d_log: Gradient of log s; in a layer with weights, without the part through b·s.
        d_shift: Gradient of b·s.
        weight: W (m, inputs); a step's actnorm has none.
        d_weight: Its gradient.
    """

    scale: Tensor
    shift: Tensor
    b: Tensor
    d_log: Tensor
    d_shift: Tensor
    weight: Tensor = None  # type: ignore[assignment]
    d_weight: Tensor = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.column = self.scale[:, None]

    def fold(self) -> Tensor:
        """Return V = s·W (m, inputs)."""
        return self.weight * self.column

    def take(self, gradient: Tensor, x: Tensor) -> None:
        """Compute the gradients of W, s and b·s from the output's gradient (n, m) and the input (n, inputs)."""
        torch.mm(gradient.T, x, out=self.d_weight).mul_(self.column)
        torch.sum(self.d_weight * self.weight, dim=1, out=self.d_log)
        torch.sum(gradient, dim=0, out=self.d_shift)


@dataclass
class _Step:
    """One step of flow, number ``t`` from 0; ``forward`` keeps what ``backward`` needs."""

    PARTS = ("actnorm", "coupling.net.actnorm1", "coupling.net.actnorm2", "coupling.net.linear3")

    t: int
    actnorm: _Layer
    first: _Layer
    second: _Layer
    third: _Layer

    def __post_init__(self) -> None:
        kept, changed = self.first.weight.shape[1], self.third.weight.shape[0]
        self.sizes = (kept, changed) if self.t % 2 else (changed, kept)
        self.d_log_of_changed = self._parts(self.actnorm.d_log)[1]

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Split (…, d) into the dimensions that the coupling keeps and those that it changes."""
        one, other = x.split(self.sizes, dim=-1)
        return (one, other) if self.t % 2 else (other, one)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, d) to (n, d)."""
        norm = self.actnorm
        # the data's mean may be far from zero: subtract it first, or float32 loses digits
        self.y = torch.addcmul(norm.shift, x, norm.scale) if self.t else (x + norm.b).mul_(norm.scale)
        self.kept, changed = self._parts(self.y)
        self.v1, self.v2, self.v3 = self.first.fold(), self.second.fold(), self.third.fold()
        self.h1 = linear(self.kept, self.v1, self.first.shift).relu_()
        self.h2 = linear(self.h1, self.v2, self.second.shift).relu_()
        changed.add_(self.third.shift).addmm_(self.h2, self.v3.T)
        return self.y

    def backward(self, gradient: Tensor) -> None:
        """Turn the output's gradient (n, d) into the input's, in place, and compute the parameters' gradients."""
        kept, changed = self._parts(gradient)
        self.third.take(changed, self.h2)
        hidden = (changed @ self.v3).mul_(self.h2.sign())  # 1 where the ReLU was active, 0 elsewhere
        self.second.take(hidden, self.h1)
        hidden = (hidden @ self.v2).mul_(self.h1.sign())
        self.first.take(hidden, self.kept)
        kept.addmm_(hidden, self.v1)
        torch.sum(gradient, dim=0, out=self.actnorm.d_shift)
        torch.sum(self.y.mul_(gradient), dim=0, out=self.actnorm.d_log)
        # y is the coupling's output, not the actnorm's: subtract what the coupling added
        self.d_log_of_changed.sub_(self.third.d_log).addcmul_(self.third.d_shift, self.third.shift, value=-1)
        gradient.mul_(self.actnorm.scale)
