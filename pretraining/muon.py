"""Muon for many small matrices: those of one shape are orthogonalised together, which `torch.optim.Muon` does one by one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def orthogonalize(x: Tensor, steps: int = 5) -> Tensor:
    """Bring all singular values of matrices (n, a, b) near one."""
    tall = x.shape[1] > x.shape[2]
    x = (x.mT if tall else x).bfloat16()
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = 3.4445, -4.7750, 2.0315  # Newton–Schulz, as in Jordan et al., 2024
    for _ in range(steps):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised: every direction of a matrix learns at the same pace (Jordan et al., 2024).

    Updates are given the root mean square of AdamW's, so ``lr`` is of AdamW's scale (Liu et al., 2025).
    """

    def __init__(self, matrices: list[Tensor], lr: float, weight_decay: float, momentum: float = 0.95) -> None:
        shapes = sorted({tuple(matrix.shape) for matrix in matrices})
        groups = [{"params": [m for m in matrices if tuple(m.shape) == shape]} for shape in shapes]
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update all matrices of a shape in one go."""
        for group in self.param_groups:
            matrices, state = group["params"], self.state[group["params"][0]]
            gradient = torch.stack([matrix.grad for matrix in matrices])
            average = state.setdefault("average", torch.zeros_like(gradient))
            average.lerp_(gradient, 1 - group["momentum"])
            update = orthogonalize(gradient.lerp(average, group["momentum"])).to(gradient.dtype)
            scale = 0.2 * max(gradient.shape[1:]) ** 0.5
            torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(matrices, list(update), alpha=-group["lr"] * scale)
