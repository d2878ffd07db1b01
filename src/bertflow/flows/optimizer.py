"""Adam on one flat vector: a flow has a hundred small parameters, and a step should not cost a hundred small updates."""

from __future__ import annotations

from types import TracebackType

import torch
from torch import nn


class FlatParameters:
    """All parameters of a module as views of one vector, while the ``with`` block lasts; gradients likewise.

    Args:
        module: The module; its parameters keep their names, shapes and values.
        no_decay: Parameters whose name ends so are exempt from weight decay.
    """

    def __init__(self, module: nn.Module, no_decay: tuple[str, ...] = ()) -> None:
        named = list(module.named_parameters())
        self.parameters = [parameter for _, parameter in named]
        self.values = torch.cat([parameter.detach().flatten() for parameter in self.parameters])
        self.gradients = torch.zeros_like(self.values)
        exempt = [torch.full((p.numel(),), not name.endswith(no_decay)) for name, p in named]
        self.decays = torch.cat(exempt).to(self.values) if no_decay else torch.ones_like(self.values)

    def __enter__(self) -> FlatParameters:
        """Turn the module's parameters into views."""
        sizes = [parameter.numel() for parameter in self.parameters]
        for parameter, value, gradient in zip(
            self.parameters, self.values.split(sizes), self.gradients.split(sizes), strict=True
        ):
            parameter.data = value.view_as(parameter)
            parameter.grad = gradient.view_as(parameter)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give each parameter its own memory back."""
        for parameter in self.parameters:
            parameter.data = parameter.data.clone()
            parameter.grad = None

    def clip_gradients(self, largest: float) -> None:
        """Scale all gradients down so that their norm is at most ``largest``."""
        norm = torch.linalg.vector_norm(self.gradients)
        self.gradients.mul_((largest / (norm + 1e-6)).clamp(max=1.0))


class Adam:
    """Adam with decoupled weight decay (ε = 1e-6, β₁ = 0.9), with or without bias correction.

    The reference code's optimiser is BERT's: p ← p − lr·(m/(√v + ε) + decay·p), without correction.
    """

    def __init__(self, parameters: FlatParameters, beta2: float, weight_decay: float, bias_correction: bool) -> None:
        self.parameters = parameters
        self.beta2, self.bias_correction = beta2, bias_correction
        self.decay = weight_decay * parameters.decays
        self.forget()

    def forget(self) -> None:
        """Start the moments anew."""
        self.count = 0
        self.mean = torch.zeros_like(self.parameters.values)
        self.square = torch.zeros_like(self.parameters.values)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Update the parameters from their gradients."""
        self.count += 1
        gradient, values = self.parameters.gradients, self.parameters.values
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        mean, square = self.mean, self.square
        if self.bias_correction:
            mean, square = mean / (1 - 0.9**self.count), square / (1 - self.beta2**self.count)
        update = mean / square.sqrt().add_(1e-6)
        values.sub_(update.addcmul_(self.decay, values), alpha=rate)
