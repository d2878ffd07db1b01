"""The rows that a flow is trained on: chosen without a copy, and with noise where they do not vary."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bertflow.flows.presets import TrainingConfig

A_FEW = 512  # rows that mostly tell whether a dimension varies


class Rows:
    """Some rows of a matrix in some order, without a copy of them: they may fill most of the memory.

    Args:
        x: Data (m, d).
        order: Which of them, n numbers.
    """

    def __init__(self, x: Tensor, order: Tensor) -> None:
        self.x, self.order = x, order.to(x.device)

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, which: Tensor | slice) -> Tensor:
        """Return rows by their place in the order."""
        places = which if isinstance(which, slice) else which.to(self.order.device)
        return self.x.index_select(0, self.order[places])  # several times as fast as x[rows]

    @classmethod
    def divide(
        cls, x: Tensor, config: TrainingConfig, generator: torch.Generator, least: int
    ) -> tuple[Rows, Tensor | None]:
        """Return the rows to train on, and those (k, d) to hold out, if that is ``least`` of them or more."""
        held = int(len(x) * config.validation_fraction)
        if held < max(1, least):
            return cls(x, torch.arange(len(x))), None
        order = torch.randperm(len(x), generator=generator)
        return cls(x, order[held:]), cls(x, order[:held])[:]


def noise_for_flat_dimensions(rows: Rows) -> tuple[Tensor | None, list[int]]:
    """Return a noise deviation (d,) for the dimensions that float32 sees no variation in, or None when all vary.

    The likelihood of a constant is unbounded: the flow would stretch that dimension without end. A tenth of the typical
    deviation of the others, as one dequantises pixels, bounds it; at inference nothing is added.
    """
    low, high = torch.aminmax(rows[:A_FEW], dim=0)
    least = (high.double() - low) / math.sqrt(2 * len(rows))  # of all rows the deviation is never less
    if (least > 1e-6 * max(extreme.abs() for extreme in torch.aminmax(rows.x))).all():
        return None, []  # without a look at all rows
    columns = (some.index_select(0, rows.order).double() for some in rows.x.split(16, dim=1))  # never all rows twice
    each = [torch.stack((some.abs().amax(0), some.std(0, correction=0))) for some in columns]
    size, deviation = torch.cat(each, dim=1)
    flat = (deviation <= 1e-6 * size) | (deviation <= 1e-6 * deviation.max())
    if not flat.any():
        return None, []
    typical = deviation[~flat].square().mean().sqrt() if not flat.all() else deviation.new_ones(())
    return (0.1 * typical * flat).to(rows.x), flat.nonzero()[:, 0].tolist()


def with_noise(rows: Tensor, noise: Tensor | None, generator: torch.Generator) -> Tensor:
    """Return rows (n, d) with that noise added, as they are without any."""
    if noise is None:
        return rows
    return rows + noise * torch.randn(rows.shape, generator=generator).to(rows)
