"""How several processes train one flow together: each computes its part of every batch, and the results are summed."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Reducer(Protocol):
    """What training needs of a group of processes; ``bertflow.scale.torchrun`` has one for torch.distributed.

    Attributes:
        rank: This process's number, from 0.
        world_size: How many there are.
    """

    rank: int
    world_size: int

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of all processes' tensors, bit for bit the same in each process; may change ``tensor``."""


class Alone:
    """A group of one."""

    rank = 0
    world_size = 1

    def sum(self, tensor: Tensor) -> Tensor:
        """Return ``tensor``."""
        return tensor


ALONE = Alone()


def part(rows: Tensor, reducer: Reducer) -> Tensor:
    """Return this process's share of rows (n, d): every world_size-th row, so that each row has one process."""
    return rows[reducer.rank :: reducer.world_size]


def weighted(mean: Tensor, count: int, reducer: Reducer) -> tuple[Tensor, float]:
    """Combine the means () of all processes, each over its own ``count`` rows, perhaps 0.

    Returns:
        mean: The mean over all rows.
        share: This process's share of the rows.
    """
    if reducer.world_size == 1:
        return mean, 1.0
    own = mean.double() * count if count else mean.new_zeros((), dtype=torch.float64)  # a mean of nothing is NaN
    total, rows = reducer.sum(torch.stack((own, torch.full_like(own, count))))
    return total / rows, count / float(rows)
