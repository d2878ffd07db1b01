"""How several processes train one flow together: each computes its part of every batch, and their sums are shared."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Reducer(Protocol):
    """What training asks of a group of processes; ``bertflow.scale.torchrun`` has one for torch.distributed.

    Attributes:
        rank: This process's number, from 0.
        world_size: How many there are.
    """

    rank: int
    world_size: int

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of all processes' tensors of this shape, the same bits in each of them; may change ``tensor``."""


class Alone:
    """A group of one."""

    rank = 0
    world_size = 1

    def sum(self, tensor: Tensor) -> Tensor:
        """Return ``tensor``."""
        return tensor


ALONE = Alone()


def part(rows: Tensor, reducer: Reducer) -> Tensor:
    """Return this process's share of rows (n, d): every world_size-th one; together the shares are all rows, once."""
    return rows[reducer.rank :: reducer.world_size]


def weighted(mean: Tensor, count: int, reducer: Reducer) -> tuple[Tensor, float]:
    """Join the means () that all processes took over ``count`` rows of their own, none of them perhaps.

    Returns:
        mean: Over all rows.
        share: Of the rows, this process's.
    """
    if reducer.world_size == 1:
        return mean, 1.0
    own = mean.double() * count if count else mean.new_zeros((), dtype=torch.float64)  # a mean of nothing is NaN
    total, rows = reducer.sum(torch.stack((own, torch.full_like(own, count))))
    return total / rows, count / float(rows)
