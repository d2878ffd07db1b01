from __future__ import annotations

import pytest
import torch

from bertflow.flows.presets import TrainingConfig
from bertflow.flows.rows import Rows, noise_for_flat_dimensions


def numbered(n):
    return torch.arange(n * 3, dtype=torch.float32).view(n, 3)


def divided(n, fraction, least=1):
    config = TrainingConfig(validation_fraction=fraction)
    return Rows.divide(numbered(n), config, torch.Generator().manual_seed(0), least)


@pytest.mark.parametrize(("n", "fraction", "held"), [(100, 0.2, 20), (101, 0.05, 5), (5000, 0.1, 500)])
def test_every_row_is_either_trained_on_or_held_out(n, fraction, held):
    rows, held_out = divided(n, fraction)
    assert len(held_out) == held
    together = torch.cat([rows[:], held_out])
    assert torch.equal(together[together[:, 0].argsort()], numbered(n))


@pytest.mark.parametrize(("fraction", "least"), [(0.0, 1), (0.1, 64)])
def test_where_too_few_can_be_spared_all_are_trained_on_in_their_order(fraction, least):
    rows, held_out = divided(100, fraction, least)
    assert held_out is None
    assert torch.equal(rows[:], numbered(100))


def test_rows_are_found_by_their_place_in_the_order():
    rows = Rows(numbered(4), torch.tensor([3, 0, 2]))
    assert len(rows) == 3
    assert torch.equal(rows[torch.tensor([1, 2, 1])], numbered(4)[[0, 2, 0]])
    assert torch.equal(rows[::2], numbered(4)[[3, 2]])


def test_a_dimension_that_varies_in_a_held_out_row_alone_is_flat():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    x[:, 1] = 0
    x[7, 1] = 1
    without = torch.tensor([i for i in range(200) if i != 7])
    assert noise_for_flat_dimensions(Rows(x, without))[1] == [1]
    assert noise_for_flat_dimensions(Rows(x, torch.arange(200))) == (None, [])


def test_a_dimension_that_varies_late_is_not_flat():
    """The first rows do not show it."""
    x = torch.randn(5000, 3, generator=torch.Generator().manual_seed(0))
    x[:, 1] = 0
    assert noise_for_flat_dimensions(Rows(x, torch.arange(5000)))[1] == [1]
    x[4000, 1] = 1
    assert noise_for_flat_dimensions(Rows(x, torch.arange(5000))) == (None, [])
