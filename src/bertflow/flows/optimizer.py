"""Adam on one flat vector: a flow has a hundred small parameters, and one large update is faster than a hundred small ones."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, TracebackType

import torch
from torch import Tensor, nn


class FlatParameters:
    """All parameters of a module in one vector, and all gradients in another, inside a ``with`` block.

    First come those called ``logscale``, then ``loc`` and ``bias``, then the others, each kind in the module's order. In the
    block the module's parameters are views of the vector, except the mirrored ones, which ``write`` and ``read`` copy.

    Args:
        module: The module; its parameters keep their names, shapes and values.
        no_decay: Parameters whose name ends like this are exempt from weight decay.
        mirrored: By name, the dimension along which the vector holds the parameter in reversed order.
    """

    def __init__(
        self, module: nn.Module, no_decay: tuple[str, ...] = (), mirrored: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        self.parameters = dict(sorted(module.named_parameters(), key=lambda named: _kind(named[0])))
        self.mirrored = mirrored
        self.values = torch.cat([parameter.detach().flatten() for parameter in self.parameters.values()])
        self.read()
        self.gradients = torch.zeros_like(self.values)
        self.decays = torch.ones_like(self.values)
        for name, decays in self.named(self.decays).items():
            if name.endswith(no_decay):
                decays.zero_()

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Return the parts of a flat vector by their parameters' names, as views with the parameters' shapes."""
        parts = vector.split([parameter.numel() for parameter in self.parameters.values()])
        return {name: part.view_as(p) for (name, p), part in zip(self.parameters.items(), parts, strict=True)}

    @torch.no_grad()
    def write(self) -> None:
        """Copy the mirrored parameters' values into the module."""
        values = self.named(self.values)
        for name, dim in self.mirrored.items():
            self.parameters[name].copy_(values[name].flip(dim))

    def read(self) -> None:
        """Copy the mirrored parameters' values from the module."""
        values = self.named(self.values)
        for name, dim in self.mirrored.items():
            values[name].copy_(self.parameters[name].detach().flip(dim))

    def __enter__(self) -> FlatParameters:
        """Make the module's parameters views of the vector."""
        values, gradients = self.named(self.values), self.named(self.gradients)
        for name, parameter in self._viewed():
            parameter.data, parameter.grad = values[name], gradients[name]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give each parameter its own memory again."""
        self.write()
        for _, parameter in self._viewed():
            parameter.data = parameter.data.clone()
            parameter.grad = None

    def _viewed(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, parameter) for name, parameter in self.parameters.items() if name not in self.mirrored]


def _kind(name: str) -> int:
    return 0 if name.endswith("logscale") else 1 if name.endswith(("loc", "bias")) else 2


class Adam:
    """Adam with clipped gradients and decoupled weight decay (ε = 1e-6, β₁ = 0.9), with or without bias correction.

    The reference code's optimiser is BERT's: p ← p − lr·(m/(√v + ε) + decay·p), without correction.

    Args:
        parameters: The parameters to optimise.
        beta2: Decay of the second moment.
        weight_decay: Decoupled decay of the parameters that are not exempt.
        bias_correction: Whether to correct the moments for starting at zero.
        clip_norm: Largest norm of the gradient.
    """

    def __init__(
        self, parameters: FlatParameters, beta2: float, weight_decay: float, bias_correction: bool, clip_norm: float
    ) -> None:
        self.parameters = parameters
        self.beta2, self.bias_correction, self.clip_norm = beta2, bias_correction, clip_norm
        self.decay = weight_decay * parameters.decays
        self.mean, self.square, self.change = (torch.zeros_like(self.decay) for _ in range(3))
        self.pace = torch.zeros(3, dtype=self.decay.dtype, device=self.decay.device)
        self.forget()

    def forget(self) -> None:
        """Reset the moments."""
        self.count = 0
        self.mean.zero_()
        self.square.zero_()

    def step(self, rate: float) -> None:
        """Update the parameters from their gradients."""
        self.advance(rate)
        self.update()

    def advance(self, rate: float) -> None:
        """Set what changes from step to step. It is on the device, so that a captured ``update`` can read it."""
        self.count += 1
        first, second = (1 - 0.9**self.count, 1 - self.beta2**self.count) if self.bias_correction else (1.0, 1.0)
        # m/c₁ / (√(v/c₂) + ε) = √c₂/c₁ · m / (√v + ε·√c₂)
        pace = [-rate, second**0.5 / first, 1e-6 * second**0.5]
        self.pace.copy_(torch.tensor(pace, dtype=self.pace.dtype))

    @torch.no_grad()
    def update(self) -> None:
        """Apply the step that ``advance`` prepared; gradients that are not finite count as zero."""
        minus_rate, correction, epsilon = self.pace.unbind()
        gradient, values, change = self.parameters.gradients, self.parameters.values, self.change
        norm = torch.linalg.vector_norm(gradient)
        share = (self.clip_norm / (norm + 1e-6)).clamp(max=1.0).nan_to_num(0.0)
        gradient.nan_to_num_(0.0, 0.0, 0.0).mul_(share)  # all zero for a batch that overflows
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        torch.sqrt(self.square, out=change).add_(epsilon)
        torch.div(self.mean, change, out=change).mul_(correction).addcmul_(self.decay, values)
        values.addcmul_(change, minus_rate)
