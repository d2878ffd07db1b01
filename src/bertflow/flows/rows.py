"""The rows that a flow is trained on: selected without a copy, with noise in dimensions that do not vary."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bertflow.flows.presets import TrainingConfig

A_FEW = 512  # rows, mostly enough to see whether a dimension varies


class Rows:
    """Some rows of a matrix in some order, without a copy: they may need most of the memory.

    Args:
        x: Data (m, d).
        order: Which of them, n numbers.
    """

    def __init__(self, x: Tensor, order: Tensor) -> None:
        self.x, self.order = x, order.to(x.device)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, which: Tensor | slice) -> Tensor:
        """Return rows by their position in the order."""
        places = which if isinstance(which, slice) else which.to(self.order.device)
        return self.x.index_select(0, self.order[places])  # several times as fast as x[rows]

    @classmethod
    def divide(
        cls, x: Tensor, config: TrainingConfig, generator: torch.Generator, least: int
    ) -> tuple[Rows, Tensor | None]:
        """Return the rows to train on and the rows (k, d) to hold out: None where these would be fewer than ``least``."""
        held = int(len(x) * config.validation_fraction)
        if held < max(1, least):
            return cls(x, torch.arange(len(x))), None
        order = torch.randperm(len(x), generator=generator)
        return cls(x, order[held:]), cls(x, order[:held])[:]


def noise_for_flat_dimensions(rows: Rows) -> tuple[Tensor | None, list[int]]:
    """Return a noise deviation (d,) for the dimensions that do not vary in float32, or None where all vary.

    The likelihood of a constant is unbounded: the flow would stretch that dimension without end. Noise of a tenth of the
    others' typical deviation bounds it, as in the dequantisation of pixels. Nothing is added when the flow is applied.
    """
    low, high = torch.aminmax(rows[:A_FEW], dim=0)
    least = (high.double() - low) / math.sqrt(2 * len(rows))  # a lower bound of the deviation of all rows
    if (least > 1e-6 * max(extreme.abs() for extreme in torch.aminmax(rows.x))).all():
        return None, []  # and not all rows were read
    columns = (some.index_select(0, rows.order).double() for some in rows.x.split(16, dim=1))  # no second copy of all
    each = [torch.stack((some.abs().amax(0), some.std(0, correction=0))) for some in columns]
    size, deviation = torch.cat(each, dim=1)
    flat = (deviation <= 1e-6 * size) | (deviation <= 1e-6 * deviation.max())
    if not flat.any():
        return None, []
    typical = deviation[~flat].square().mean().sqrt() if not flat.all() else deviation.new_ones(())
    return (0.1 * typical * flat).to(rows.x), flat.nonzero()[:, 0].tolist()


def with_noise(rows: Tensor, noise: Tensor | None, generator: torch.Generator) -> Tensor:
    """Return rows (n, d) with noise of that deviation added, if there is one."""
    if noise is None:
        return rows
    return rows + noise * torch.randn(rows.shape, generator=generator).to(rows)
