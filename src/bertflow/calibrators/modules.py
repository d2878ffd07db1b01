"""Fitted calibrators as torch modules, for exports."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertflow.flows import Glow


class AffineMap(nn.Module):
    """(x − mean) @ kernel, in this order: folded into one bias, a mean far from zero would cost digits of float32.

    Args:
        mean: What is subtracted (d,).
        kernel: What the difference is multiplied by (d, k).
    """

    mean: Tensor
    kernel: Tensor

    def __init__(self, mean: Tensor, kernel: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("kernel", kernel)

    @classmethod
    def of(cls, mean: Any, kernel: Any) -> AffineMap:
        """Make one of numpy arrays, in float32."""
        return cls(*(torch.tensor(np.asarray(array), dtype=torch.float32) for array in (mean, kernel)))

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (n, d) to (n, k)."""
        return (x.to(self.mean.dtype) - self.mean) @ self.kernel


class FlowMap(nn.Module):
    """The forward map of a flow, without its log-determinant; fixed.

    Args:
        flow: The fitted flow.
    """

    def __init__(self, flow: Glow) -> None:
        super().__init__()
        self.flow = flow.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (n, d) to latents (n, d), float32; computed in the flow's own precision."""
        latents, _ = self.flow(x.to(next(self.flow.parameters()).dtype))
        return latents.float()
